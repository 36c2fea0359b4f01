"""Which orphans there are, according to the events that say so."""

from collections.abc import Iterable

from tpuherd.model.slots_and_plan import HistoryEvent

FOUND, GONE = "orphan.found", "orphan.gone"
ORPHAN_KINDS = (FOUND, GONE)


def current_orphans(events: Iterable[HistoryEvent]) -> dict[str, str]:
    """Return those that were found and are not gone, by name, each with its zone."""
    found: dict[str, str] = {}
    for event in events:
        name = str(event.facts.get("bid"))
        if event.kind == FOUND:
            found[name] = str(event.facts.get("zone"))
        elif event.kind == GONE:
            found.pop(name, None)
    return found
