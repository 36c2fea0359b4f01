"""One line an event: what happened, and why."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

from tpuherd.model.slots_and_plan import HistoryEvent

#: What of an event's facts stands in its line; what it does not have is left out.
SAYS: Mapping[str, str] = {
    "wish.made": "{who}",
    "wish.changed": "{difference}",
    "wish.stopped": "{who}",
    "wish.resumed": "{who}",
    "wish.dropped": "{who}",
    "bid.asked": "{bid} {offer}",
    "bid.answered": "{bid}",
    "bid.refused": "{bid} {refusal}: {sentence}",
    "bid.granted": "{bid}",
    "bid.ready": "{bid}",
    "bid.sick": "{bid} {state}",
    "bid.well": "{bid}",
    "bid.noticed": "{host} {what}",
    "bid.missed": "{bid}",
    "bid.seen": "{bid}",
    "bid.lost": "{bid} {how}",
    "bid.freed": "{bid}",
    "bid.withdrawn": "{bid}",
    "bid.gone": "{bid}",
    "bid.adopted": "{bid} {offer}",
    "node.quarantined": "{node}",
    "host.nonsense": "",
    "host.failed": "",
    "log.trimmed": "",
    "log.removed": "{log}",
    "slot.prepared": "{bid}",
    "slot.unprepared": "{bid}: {sentence}",
    "slot.collected": "{bid}",
    "slot.uncollected": "{bid}: {sentence}",
    "slot.done": "",
    "slot.gave_up": "",
    "attempt.launched": "{attempt} on {bid}",
    "attempt.started": "{attempt}",
    "attempt.stepped": "{attempt} step {step}",
    "attempt.saved": "{attempt} step {step}",
    "attempt.stopping": "{attempt}",
    "attempt.ended": "{attempt} {verdict} {host} {exit}",
    "attempt.stacks": "{attempt} {file}",
    "trial.made": "trial {trial}",
    "trial.given": "trial {trial}",
    "trial.waits": "trial {trial}",
    "trial.told": "trial {trial}",
    "trial.ended": "trial {trial} {how}",
    "engine.started": "pid {pid} on {host}",
    "engine.stopped": "",
    "engine.crashed": "{count} in a row",
    "engine.frozen": "",
    "engine.thawed": "",
    "engine.trouble": "{sentence}",
    "store.set_aside": "",
    "store.recovered": "",
}


def event_line(event: HistoryEvent) -> str:
    """kind, facts: why."""
    facts = event.facts
    known = {name: fact_text(name, value) for name, value in facts.items()}
    said = fill_line(SAYS.get(event.kind, ""), known)
    why = str(facts.get("why") or "")
    if why and why not in said:
        said = why if said in why else f"{said}: {why}"
    return f"{event.kind}  {said}".rstrip()


def fact_text(name: str, value: Any) -> str:
    """A fact in a line."""
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
    """What is not known is not said, nor the words that lead to it."""
    parts, said = [], True
    for words, name, *_ in Formatter().parse(template):
        said = said if name is None else bool(known.get(name))
        parts += [words, known.get(name or "", "")] if said else []
    return " ".join("".join(parts).split()).strip(" :")


def event_json(seq: int, event: HistoryEvent) -> dict[str, Any]:
    """A line of JSON: the facts stand beside the rest, which no fact may hide."""
    return {
        **event.facts,
        "seq": seq,
        "at": event.at,
        "kind": event.kind,
        "job": event.job,
        "slot": event.slot,
    }
