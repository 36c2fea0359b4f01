"""What the facts of events are: an event in which one is something else changes nothing.

Whoever may write to a lab's database, or a damaged file, could put anything there.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Goal, Refusal, RequestKind
from tpuherd.model.sweep_trials import TrialEnd

Check = Callable[[Any], bool]
HALF = re.compile("[\ud800-\udfff]")  #: of a character: JSON may have it, UTF-8 can't
WHOLE_MAX, NUMBER_MAX = 1 << 63, 1e300
COUNT_MAX = 1_000_000  #: of what is made one by one, such as the items of a map


def is_text(value: Any) -> bool:
    return isinstance(value, str) and (value.isascii() or HALF.search(value) is None)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and -1 <= value <= COUNT_MAX


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < WHOLE_MAX


def is_number(value: Any) -> bool:
    return is_whole(value) or (isinstance(value, float) and abs(value) < NUMBER_MAX)  # NaN is not


def or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def all_of(check: Check, kind: type[list[Any]] | type[dict[str, Any]] = list) -> Check:
    """The check of a list, or of the values of an object."""
    return lambda value: (
        isinstance(value, kind)
        and all(map(check, value.values() if isinstance(value, dict) else value))
    )


def one_of(words: type[StrEnum]) -> Check:
    known = frozenset(map(str, words))
    return lambda value: isinstance(value, str) and value in known


def fields_of(checks: Mapping[str, Check], needed: str = "") -> Check:
    """The check of an object with these fields; others are left to a newer herd."""
    return lambda value: (
        isinstance(value, dict)
        and value.keys() >= set(needed.split())
        and all(check(value[name]) for name, check in checks.items() if name in value)
    )


def same_check(check: Check, names: str) -> dict[str, Check]:
    return dict.fromkeys(names.split(), check)


OFFER = fields_of({
    **same_check(is_text, "zone type runtime tier"), **same_check(is_count, "rank hosts"),
    **same_check(or_none(is_number), "price egress per_gib"), "kind": one_of(RequestKind),
}, "zone type runtime tier")  # fmt: skip
USAGE = fields_of(same_check(is_count, "failures preemptions stalls")
                  | same_check(or_none(is_number), "saved since"))  # fmt: skip
FAILED_HOSTS = all_of(fields_of({"tail": all_of(is_text), "exit": or_none(is_whole)}))
#: By name, in events of all kinds.
FACT_TYPES: Mapping[str, Check] = {
    **same_check(is_text, "attempt bid cause code_digest engine environment file folder host image"
                 " items log lost_how message mode node node_digest prepared receiver run_id"
                 " sentence source state unhealthy_state user withdrawn_why zone"),
    **same_check(is_count, "complete count failed faults first generation halts made missing_inputs"
                 " node_failures nodes number sends trial uncollected unprepared withdrawals"),
    **same_check(or_none(is_whole), "best_step exit milestone resumed saved step total"),
    **same_check(is_number, "dollars paused_s since weight"),
    **same_check(or_none(is_number), "per_hour save_bytes saves value"),
    **same_check(all_of(is_text), "boots cut_off lines paths prepared_on texts"),
    "again": all_of(is_count),
    "goal": one_of(Goal),
    "offer": OFFER,
    "outcome": one_of(TrialEnd),
    "params": all_of(lambda value: is_text(value) or is_number(value), dict),
    "receivers": all_of(fields_of(same_check(is_text, "receiver code"), "receiver code")),
    "refusal": one_of(Refusal),
    "startup": or_none(all_of(is_number, dict)),
    "usage": USAGE,
    "verdict": one_of(Verdict),
}  # fmt: skip
#: In events of one kind.
OF_KIND: Mapping[tuple[str, str], Check] = {
    ("attempt.ended", "hosts"): FAILED_HOSTS,
    ("attempt.launched", "hosts"): FAILED_HOSTS,
    ("attempt.saved", "step"): is_number,
    ("attempt.stopping", "grace_s"): is_number,
    ("attempt.stopping", "why"): is_text,
    ("bid.adopted", "refusal"): lambda value: not value or FACT_TYPES["refusal"](value),
    ("map.ended", "exit"): is_number,
    ("slot.prepared", "hosts"): all_of(is_text),
    ("slot.setup_failed", "hosts"): FAILED_HOSTS,
    ("trial.reported", "step"): is_number,
}


def find_wrong_fact(kind: str, facts: Mapping[str, Any]) -> str:
    """Return the name of a fact that is not what it is in this kind of events; "" if none is."""
    for name, value in facts.items():
        check = find_check(kind, name)
        if check is not None and not check(value):
            return name
    return ""


@lru_cache(4096)
def find_check(kind: str, name: str) -> Check | None:
    """Return the check of a fact; None for what only a newer herd knows, or what is never read."""
    check = OF_KIND.get((kind, name)) or FACT_TYPES.get(name)
    if check is None and name.endswith(("_at", "_s")):
        check = or_none(is_number)
    return check if kind in EVENT_KINDS else None
