"""What each slot of a job did when, as spans for a timeline, and what each loss cost."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tpuherd.accounting.goodput import MEANINGS, GoodputState, SlotAccount, StateSpan

Json = dict[str, Any]
SPANS_MAX = 2000  #: of one slot: no screen shows more

#: What people call the states.
STATE_TITLES: Mapping[GoodputState, str] = {
    GoodputState.QUEUE_FIRST: "queued",
    GoodputState.CAPACITY_WAIT: "queued again",
    GoodputState.CONTROLLER_GAP: "waiting for herd",
    GoodputState.PROVISION: "provisioning",
    GoodputState.HOST_SETUP: "setup",
    GoodputState.STARTING: "starting",
    GoodputState.RESTORE: "restoring",
    GoodputState.COMPILE: "compiling",
    GoodputState.PRODUCTIVE: "training",
    GoodputState.UNREPORTED: "running without reports",
    GoodputState.SAVING: "saving",
    GoodputState.WASTED: "lost work",
    GoodputState.STOPPING: "stopping",
    GoodputState.DETECT: "loss not noticed yet",
    GoodputState.PROCESS_DOWN: "failed",
    GoodputState.HUNG: "hung",
    GoodputState.UNKNOWN: "silent",
    GoodputState.IDLE: "idle",
    GoodputState.STOPPED: "stopped",
    GoodputState.DONE: "done",
    GoodputState.GAVE_UP: "gave up",
}


def state_rows() -> list[Json]:
    """All states, in the order of a legend."""
    return [
        {"state": str(state), "title": title, "meaning": MEANINGS[state]}
        for state, title in STATE_TITLES.items()
    ]


def job_timeline(accounts: Mapping[str, SlotAccount], now: float) -> Json:
    """The spans of each slot as [start, end, state], and the time that they cover."""
    return {
        "start": min((one.start for one in accounts.values()), default=now),
        "end": max((one.end for one in accounts.values()), default=now),
        "slots": {
            name: [[span.start, span.end, str(span.state)] for span in thin_spans(one.spans)]
            for name, one in accounts.items()
        },
    }


def thin_spans(spans: Sequence[StateSpan], most: int = SPANS_MAX) -> Sequence[StateSpan]:
    """At most so many spans that cover the same time: short ones give way to the longest beside.

    The time is cut into `most` equal parts, and each part has the state that lasted longest in it.
    """
    if len(spans) <= most:
        return spans
    start, end = spans[0].start, spans[-1].end
    width = (end - start) / most
    longest: list[dict[GoodputState, float]] = [{} for _ in range(most)]
    for span in spans:
        first = min(int((span.start - start) / width), most - 1)
        last = min(int((span.end - start) / width), most - 1)
        for part in range(first, last + 1):
            low = max(span.start, start + part * width)
            high = min(span.end, start + (part + 1) * width)
            known = longest[part]
            known[span.state] = known.get(span.state, 0.0) + high - low
    found: list[StateSpan] = []
    for part, known in enumerate(longest):
        state = max(known, key=lambda one: known[one])
        until = end if part == most - 1 else start + (part + 1) * width
        begun = found.pop().start if found and found[-1].state is state else start + part * width
        found.append(StateSpan(start=begun, end=until, state=state))
    return found


def incident_rows(slot_details: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Every loss of a job and the recovery from it, the oldest first."""
    found = [
        {"slot": page["slot"], **recovery}
        for page in slot_details
        for recovery in page["recoveries"]
    ]
    return sorted(found, key=lambda row: row["at"])
