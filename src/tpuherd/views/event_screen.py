"""`herd events` and `herd why` on a terminal: signs for what went wrong, and hanging indents."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.targets import fold_names
from tpuherd.views.event_lines import event_line
from tpuherd.views.finding_lines import cause_lines
from tpuherd.views.format_text import wrap_text
from tpuherd.views.job_pages import withheld_line
from tpuherd.views.phase_signs import DONE, NO_SIGN, RESTING, WARNING, WORKING, WRONG, PhaseSign
from tpuherd.views.printable import show_controls
from tpuherd.views.text_width import cell_width, pad_text, paint_text

NAME = 12  #: columns of a slot's name
FAINT, BOLD = "2", "1"
EVENT_SIGNS: Mapping[str, PhaseSign] = {
    "bid.ready": WORKING,
    "bid.healthy": WORKING,
    "attempt.first_step": WORKING,
    "slot.done": DONE,
    "bid.notice_received": WARNING,
    "bid.lost": WARNING,
    "bid.unhealthy": WARNING,
    "bid.idle": WARNING,
    "bid.missing": WARNING,
    "bid.refused": WARNING,
    "node.quarantined": WARNING,
    "slot.collect_failed": WARNING,
    "host.invalid_data": WARNING,
    "host.unexpected_error": WARNING,
    "slot.setup_failed": WRONG,
    "slot.gave_up": WRONG,
    "engine.crashed": WRONG,
}
#: How attempts and trials ended.
END_SIGNS: Mapping[str, PhaseSign] = {
    "success": DONE,
    "complete": DONE,
    "stopped": RESTING,
    "pruned": RESTING,
    "preempted": WARNING,
    "lost": WARNING,
    "failure": WRONG,
    "failed": WRONG,
    "stalled": WRONG,
    "node fault": WRONG,
}
ENDS = {"attempt.ended": "verdict", "trial.ended": "outcome"}


def event_sign(event: HistoryEvent) -> PhaseSign:
    if event.kind in ENDS:
        return END_SIGNS.get(str(event.facts.get(ENDS[event.kind])), WARNING)
    return EVENT_SIGNS.get(event.kind, NO_SIGN)


def event_screen(
    when: str, event: HistoryEvent, *, colour: bool, width: int, name: str | None = None
) -> str:
    """The time, the slot, and what happened, which goes on below itself."""
    sign = event_sign(event)
    kind, _, text = show_controls(event_line(event)).partition("  ")
    slot = "" if name is None else f"{pad_text(show_controls(name), NAME)}  "
    head = f"{paint_text(when, FAINT, colour=colour)}  {slot}"
    mark = paint_text(sign.sign, sign.tint, colour=colour)
    line = f"{head}{mark} {paint_text(kind, sign.tint, colour=colour)}  {text}".rstrip()
    return wrap_text(line, width, min(cell_width(head) + 2, width // 3))


def why_screen(content: Mapping[str, Any], *, current: bool, colour: bool, width: int) -> str:
    """`herd why`: what each slot does or waits for, and the cause of a failure."""
    lines = reason_lines(content, current=current, colour=colour)
    return "\n".join(wrap_text(line, width) for line in lines)


def reason_lines(content: Mapping[str, Any], *, current: bool, colour: bool) -> Iterator[str]:
    """Yield each sentence with the slots that it is true of; those with a cause first."""
    findings = content["findings"]
    same: dict[str, list[str]] = {}
    for name, sentence in content["slots"].items():
        same.setdefault(sentence or "the engine has not looked at it yet", []).append(name)
    for sentence, names in sorted(same.items(), key=lambda it: not has_finding(it[1], findings)):
        sign = WRONG if has_finding(names, findings) else NO_SIGN
        title = paint_text(fold_names(names), BOLD, colour=colour)
        yield f"{paint_text(sign.sign, sign.tint, colour=colour)} {title}: {sentence}".lstrip()
        causes = {findings[name]["id"]: findings[name] for name in names if name in findings}
        yield from (f"    {line}" for cause in causes.values() for line in cause_lines(cause))
    for row in content["withheld"]:
        yield f"{paint_text(WARNING.sign, WARNING.tint, colour=colour)} {withheld_line(row)}"
    if not current:
        mark = paint_text(WARNING.sign, WARNING.tint, colour=colour)
        yield (
            f"{mark} No engine is running, so this may be out of date."
            " Start one with `herd engine start`."
        )


def has_finding(names: Iterable[str], findings: Mapping[str, Any]) -> bool:
    return any(name in findings for name in names)
