"""What `herd map status` shows: the items of a map with their results, as values and text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.views.format_text import NOTHING, format_span, format_table
from tpuherd.views.printable import show_controls

Json = dict[str, Any]
MAP_KINDS = ("map.started", "map.items", "map.ended", "trial.created", "trial.assigned",
             "trial.waiting", "trial.ended", "attempt.launched")  # fmt: skip
HEAD = ("ITEM", "PHASE", "EXIT", "ATTEMPTS", "SLOT", "TIME", "TEXT")
TEXT_MAX = 60  #: characters of an item in the table
ROWS_MAX = 50  #: of ended items, and of waiting ones
LINES_SHOWN = 5  #: last lines of a failed item
#: How an item ended, by the outcome of its trial.
OUTCOMES: Mapping[str, str] = {"complete": "complete", "failed": "failed"}


@dataclass(slots=True)
class ItemRow:
    """One item, as its events tell."""

    text: str = ""
    phase: str = "waiting"
    exit: int | None = None
    attempts: int = 0
    attempt: str = ""
    slot: str = ""
    assigned_at: float | None = None
    ended_at: float | None = None
    lines: Sequence[str] = ()
    why: str = ""


@dataclass(slots=True)
class MapRows:
    """All items of the latest map of a job."""

    digest: str = ""
    rows: dict[int, ItemRow] = field(default_factory=dict)
    exit: int | None = None


def map_page(name: str, events: Iterable[HistoryEvent], now: float) -> Json | None:
    """The whole map; None if these events have no map."""
    found = MapRows()
    texts: dict[str, dict[int, str]] = {}
    for event in events:
        if event.kind == "map.items":
            known = texts.setdefault(event.facts["items"], {})
            known.update(enumerate(event.facts["texts"], event.facts["first"]))
        else:
            add_map_event(found, event)
    if not found.digest:
        return None
    for number, text in texts.get(found.digest, {}).items():
        if number in found.rows:
            found.rows[number].text = text
    phases = Counter(one.phase for one in found.rows.values())
    return {
        "map": name,
        "total": len(found.rows),
        "phases": dict(phases),
        "exit": found.exit,
        "items": [item_json(number, one, now) for number, one in sorted(found.rows.items())],
    }


def add_map_event(found: MapRows, event: HistoryEvent) -> None:
    """Apply an event to the items."""
    facts = event.facts
    if event.kind == "map.started":
        begin_map(found, facts)
    elif event.kind == "map.ended":
        found.exit = int(facts["exit"])
    row = found.rows.get(facts.get("trial", -1))
    if row is None:
        return
    match event.kind:
        case "trial.assigned":
            row.phase, row.slot, row.assigned_at = "running", event.slot, event.at
        case "trial.waiting":
            row.phase = "waiting"
        case "attempt.launched":
            row.attempts += row.attempt != facts["attempt"]
            row.attempt = str(facts["attempt"])
        case "trial.ended":
            row.phase = OUTCOMES.get(facts["outcome"], "failed")
            row.exit = 0 if row.phase == "complete" else int(facts.get("exit") or 1)
            row.ended_at, row.why = event.at, str(facts.get("why", ""))
            row.lines = list(facts.get("lines", ()))


def begin_map(found: MapRows, facts: Mapping[str, Any]) -> None:
    """Begin anew, or let items that failed wait again."""
    found.exit = None
    if "again" in facts and found.digest == facts["items"]:
        for number in found.rows.keys() & facts["again"]:
            found.rows[number] = ItemRow(attempts=found.rows[number].attempts)
        return
    found.digest = facts["items"]
    found.rows = {number: ItemRow() for number in range(facts["count"])}


def item_json(number: int, row: ItemRow, now: float) -> Json:
    seconds = None
    if row.assigned_at is not None and row.phase != "waiting":
        seconds = (now if row.ended_at is None else row.ended_at) - row.assigned_at
    return {
        "item": number,
        "text": row.text,
        "phase": row.phase,
        "exit": row.exit,
        "attempts": row.attempts,
        "attempt": row.attempt,
        "slot": row.slot,
        "seconds": seconds,
        "lines": list(row.lines),
        "why": row.why,
    }


def keep_failed(page: Json) -> Json:
    """The page with its failed items only."""
    return {**page, "items": [one for one in page["items"] if one["phase"] == "failed"]}


def map_text(page: Mapping[str, Any], *, colour: bool = False, width: int | None = None) -> str:
    """`herd map status`: failed and running items first, then the latest and the next ones."""
    rows = list(shown_rows(page["items"]))
    parts = [map_heading(page)]
    if rows:
        cells = [
            (
                str(row["item"]),
                row["phase"],
                NOTHING if row["exit"] is None else str(row["exit"]),
                str(row["attempts"]),
                row["slot"] or NOTHING,
                NOTHING if row["seconds"] is None else format_span(row["seconds"]),
                shorten_item(row["text"]),
            )
            for row in rows
        ]
        right = (0, 2, 3, 5)
        parts.append(format_table([HEAD, *cells], right=right, colour=colour, width=width))
    hidden = len(page["items"]) - len(rows)
    if hidden:
        parts.append(f"{hidden:,} more items: --json shows all, --failed only failed ones")
    failed = [one for one in rows if one["phase"] == "failed"]
    parts += ["\n".join(failure_lines(one)) for one in failed[:ROWS_MAX]]
    return "\n\n".join(parts)


def shown_rows(items: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The items that the table has room for, by number within each phase."""
    for phase in ("failed", "running"):
        yield from [one for one in items if one["phase"] == phase][:ROWS_MAX]
    yield from [one for one in items if one["phase"] == "waiting"][:ROWS_MAX]
    yield from [one for one in items if one["phase"] == "complete"][:ROWS_MAX]


def map_heading(page: Mapping[str, Any]) -> str:
    """evals: 40 of 100 items have ended: 38 complete, 2 failed, 8 running, 52 waiting"""
    phases = page["phases"]
    ended = phases.get("complete", 0) + phases.get("failed", 0)
    order = ("complete", "failed", "running", "waiting")
    counts = ", ".join(f"{phases[word]:,} {word}" for word in order if phases.get(word))
    return f"{page['map']}: {ended:,} of {page['total']:,} items have ended: {counts}"


def failure_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """item 17 (data/17.bin) failed with exit status 1, then its last lines."""
    yield f"item {row['item']} ({shorten_item(row['text'])}) failed with exit status {row['exit']}:"
    lines = [line for line in row["lines"] if not line.startswith("herd: ")][-LINES_SHOWN:]
    yield from (f"  {show_controls(line)}" for line in lines)
    if not lines:
        yield f"  {row['why']}"


def shorten_item(text: str) -> str:
    shown = show_controls(text)
    return shown if len(shown) <= TEXT_MAX else f"{shown[: TEXT_MAX - 1]}…"
