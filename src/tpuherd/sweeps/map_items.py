"""The items of a map: checked lines of a file, and the events that hold them."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from tpuherd.errors import InvalidInput
from tpuherd.model.slots_and_plan import HistoryEvent

ITEMS_MAX = 100_000
ITEM_BYTES_MAX = 8_192  #: of one item: it is an argument of a command, and part of events
TOTAL_BYTES_MAX = 16 << 20  #: of all items: they are kept in the store
CHUNK = 500  #: items in one event
SHOWN = 60  #: characters of an item in a message
ITEM = "item"  #: the parameter's name in the trial of an item


def parse_items(content: bytes, name: str) -> tuple[str, ...]:
    """Return the lines of a file without empty ones; InvalidInput names the first bad line."""
    items: list[str] = []
    if len(content) > TOTAL_BYTES_MAX:
        raise InvalidInput(f"{name} is larger than {TOTAL_BYTES_MAX >> 20} MiB: {FEWER}")
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = line.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{name}, line {number} is not UTF-8 text") from error
        if text.strip():
            items.append(text)
            check_item(text, f"{name}, line {number}")
    check_number(items, name)
    return tuple(items)


FEWER = "split it into several maps, or let an item name a file of values"


def check_items(items: Iterable[str]) -> tuple[str, ...]:
    """Return items that a program has passed; InvalidInput names the first bad one."""
    found = tuple(items)
    for number, item in enumerate(found):
        if not isinstance(item, str) or not item.strip():
            raise InvalidInput(f"item {number} should be text, not {item!r}")
        if "\n" in item or (not item.isascii() and "\ud800" <= max(item) <= "\udfff"):
            raise InvalidInput(f"item {number} should be one line of text, not {item[:SHOWN]!r}")
        check_item(item, f"item {number}")
    check_number(found, "the list of items")
    if sum(len(item) for item in found) > TOTAL_BYTES_MAX:
        raise InvalidInput(f"the items are larger than {TOTAL_BYTES_MAX >> 20} MiB: {FEWER}")
    return found


def check_item(item: str, where: str) -> None:
    if (size := len(item.encode(errors="replace"))) > ITEM_BYTES_MAX:
        raise InvalidInput(f"{where} has {size:,} bytes: an item may have {ITEM_BYTES_MAX:,}")
    if "\0" in item:
        raise InvalidInput(f"{where} has a NUL character, which no command can receive")


def check_number(items: Sequence[str], name: str) -> None:
    if not items:
        raise InvalidInput(f"{name} has no items: write one on each line")
    if len(items) > ITEMS_MAX:
        raise InvalidInput(f"{name} has {len(items):,} items, the most are {ITEMS_MAX:,}: {FEWER}")


def items_digest(items: Iterable[str]) -> str:
    """Return the same for the same items in the same order."""
    return sha256("\n".join(items).encode()).hexdigest()


def item_events(job: str, items: Sequence[str], digest: str, at: float) -> Iterator[HistoryEvent]:
    """Yield the events that hold the items."""
    for first in range(0, len(items), CHUNK):
        facts = {"items": digest, "first": first, "texts": list(items[first : first + CHUNK])}
        yield HistoryEvent(at=at, kind="map.items", job=job, facts=facts)


def join_items(events: Iterable[HistoryEvent], digest: str) -> dict[int, str]:
    """Return the items of this digest by number, as far as the events have them."""
    return {
        number: text
        for event in events
        if event.facts.get("items") == digest
        for number, text in enumerate(event.facts.get("texts", ()), event.facts.get("first", 0))
    }
