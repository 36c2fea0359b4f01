"""One line per event: what happened, and why."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import HistoryEvent


def event_line(event: HistoryEvent) -> str:
    """kind, facts: why."""
    facts = event.facts
    why = str(facts.get("why") or "")
    known = {name: fact_text(name, value) for name, value in facts.items()}
    kind = EVENT_KINDS.get(event.kind)
    text = fill_line(kind.line if kind else "", known | told_by_reason(facts))
    if why and why not in text:
        text = why if text in why else f"{text}: {why}"
    return f"{event.kind}  {text}".rstrip()


def told_by_reason(facts: Mapping[str, Any]) -> dict[str, str]:
    """Leave out the host and its exit status where the reason names both."""
    named = facts.get("verdict") == Verdict.FAILURE or facts.get("chips")
    return dict.fromkeys(("host", "exit"), "") if named and facts.get("why") else {}


def fact_text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "offer" and isinstance(value, Mapping):
        return f"{value.get('type', '')} {value.get('tier', '')} in {value.get('zone', '')}"
    if name == "exit":
        return f"exit {value}"
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return " ".join(str(value).split())


def fill_line(template: str, known: Mapping[str, str]) -> str:
    """Fill in known facts; an unknown one is left out with the words before it."""
    parts, is_known = [], True
    for words, name, *_ in Formatter().parse(template):
        is_known = is_known if name is None else bool(known.get(name))
        parts += [words, known.get(name or "", "")] if is_known else []
    return " ".join("".join(parts).split()).strip(" :")


def event_json(seq: int, event: HistoryEvent) -> dict[str, Any]:
    """The event as a flat object; no fact may hide the fixed fields."""
    return {
        **event.facts,
        "seq": seq,
        "at": event.at,
        "kind": event.kind,
        "job": event.job,
        "slot": event.slot,
    }
