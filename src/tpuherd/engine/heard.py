"""What agents say of attempts and of their hosts, in the words of the judgement. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from tpuherd.core.facts import HostWord, Work, WorkWord
from tpuherd_host.agent.attempts import DEADLY
from tpuherd_host.agent.state import CLOSING, ENDED, FREEING, LOST, SWEEPING

Json = Mapping[str, Any]
STEPS_KEPT = 21  #: by so many reports the median duration of a step is told
TAIL = 30  #: lines
NOTHING = frozenset({"", "NONE", "FALSE"})  #: values of a notice that say that all is well
ENDING = frozenset({SWEEPING, FREEING, CLOSING})
OWN = frozenset("step total saved resumed restore_s step_s time".split())  #: words of a report


def work(told: Json, before: Work | None, now: float) -> Work:
    """An attempt as its agent tells it, with what is remembered of it here."""
    known = before or Work(attempt=str(told["id"]), word=WorkWord.ABSENT)
    heard = replace(
        known,
        word=word(told),
        started=told.get("started"),
        ended=told.get("ended"),
        exit=told.get("exit"),
        signal=told.get("signal"),
        termed=bool(told.get("stopped")),
        deadman=bool(told.get("deadman")),
        why=str(told.get("why") or ""),
        tail=tuple(told.get("tail") or ())[-TAIL:],
        logged_at=known.logged_at or told.get("started") or now,
    )
    return reported(heard, told.get("report") or {}, now)


def word(told: Json) -> WorkWord:
    """How far it is. One that is being stopped is ending, whatever else its phase says."""
    phase = told.get("phase")
    if phase == ENDED:
        return WorkWord.ENDED
    if phase == LOST:
        return WorkWord.LOST
    if phase in ENDING or told.get("stopped"):
        return WorkWord.ENDING
    if told.get("stage", 0) < told.get("stages", 1) - 1:
        return WorkWord.SETUP
    return WorkWord.RUNNING


def reported(known: Work, report: Json, now: float) -> Work:
    """With what the script itself said of its steps."""
    step, saved = whole(report.get("step")), whole(report.get("saved"))
    metrics = {name: float(value) for name, value in report.items() if tells(name, value)}
    if step is None and saved is None and not report.get("complete") and not metrics:
        return known
    newer = step is not None and step != known.step
    return replace(
        known,
        step=known.step if step is None else step,
        resumed=whole(report.get("resumed")) if known.resumed is None else known.resumed,
        restore_s=real(report.get("restore_s")) or known.restore_s,
        saved=known.saved if saved is None else max(saved, known.saved or 0),
        complete=known.complete or bool(report.get("complete")),
        stepped_at=report.get("time", now) if newer else known.stepped_at,
        step_s=real(report.get("step_s")) or known.step_s,
        metrics={**known.metrics, **metrics},
    )


def tells(name: str, value: object) -> bool:
    """Whether it is a number that says how well the command does, not how far it is."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and name not in OWN


def pace(steps: Sequence[tuple[float, int]]) -> float | None:
    """The median duration of a step, by when reports of it came."""
    gaps = [
        (at - before) / (step - earlier)
        for (before, earlier), (at, step) in pairwise(steps)
        if step > earlier and at > before
    ]
    return median(gaps) if gaps else None


def whole(value: object) -> int | None:
    """A number of steps, if it is one; scripts say what they like."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def real(value: object) -> float | None:
    """A duration, if it is one."""
    return float(value) if isinstance(value, int | float) and value > 0 else None


def noticed(host: HostWord, key: str, value: str, at: float) -> HostWord:
    """With what the metadata server said. A deadly word stays: nobody comes back from it."""
    deadly = value in DEADLY.get(key, ())
    mine = host.notice.partition(" ")[0] in ("", key)
    if value in NOTHING:
        if not mine or host.deadly:
            return host
        return replace(host, notice="", noticed_at=None)
    if host.deadly and not deadly:
        return host
    return replace(
        host,
        notice=key if value == "TRUE" else f"{key} {value}",
        noticed_at=host.noticed_at if host.deadly else at,
        deadly=deadly,
    )
