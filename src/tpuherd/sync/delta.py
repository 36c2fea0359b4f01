"""Computes what to send so that hosts have a snapshot, from what they report to have. Pure."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tpuherd_host.agent.snapshots.manifest import (
    content_sizes,
    diff_rows,
    pack_rows,
    parse_row,
)
from tpuherd_host.agent.snapshots.stream import StreamContent

BASE_LETTERS = (
    16  #: letters of a snapshot's id that are sent; the result is verified by the whole id
)

LoadRows = Callable[[str], Sequence[bytes] | None]
LoadPieces = Callable[[bytes], Iterable[bytes]]


class SentContent(NamedTuple):
    """A content to send."""

    number: int  #: of its row
    id: bytes
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Delta:
    """What to send so that all hosts of a group have a snapshot."""

    base: str | None  #: the snapshot that the changes refer to, which all hosts have
    gone: tuple[bytes, ...]
    put: tuple[bytes, ...]
    give: tuple[SentContent, ...]  #: contents that any of the hosts lacks

    @property
    def size(self) -> int:
        """Bytes of content before compression."""
        return sum(gift.size for gift in self.give)

    def stream_head(self) -> dict[str, Any]:
        """The header of the stream."""
        base = self.base and self.base[:BASE_LETTERS]
        return {"base": base, "gone": len(pack_rows(self.gone)), "give": len(self.give)}

    def stream_body(self) -> bytes:
        """The changed rows: removed ones, then added ones."""
        return pack_rows(self.gone) + pack_rows(self.put)

    def iter_contents(self, pieces: LoadPieces) -> Iterator[StreamContent]:
        """The contents to send."""
        for number, id, size in self.give:
            yield StreamContent(number, size, pieces(id))


def compute_delta(
    rows: Sequence[bytes], haves: Sequence[Mapping[str, Any]], rows_of: LoadRows
) -> Delta:
    """What these hosts lack, given what each reports. `rows_of` loads a snapshot by its id."""
    base, base_rows = common_base(haves, rows_of)
    found = [parse_row(each) for each in rows]
    wanted = content_sizes(found)
    numbers = {one.id: number for number, one in reversed(list(enumerate(found)))}
    lacking: set[bytes] = set()
    for have in haves:
        lacking |= wanted.keys() - contents_on_host(have, list(wanted), base_rows, rows_of)
    give = tuple(SentContent(numbers[id], id, size) for id, size in wanted.items() if id in lacking)
    if base is None:
        return Delta(base=None, gone=(), put=tuple(rows), give=give)
    gone, put = diff_rows(base_rows, rows)
    return Delta(base=base, gone=tuple(gone), put=tuple(put), give=give)


def common_base(
    haves: Sequence[Mapping[str, Any]], rows_of: LoadRows
) -> tuple[str | None, Sequence[bytes]]:
    """The latest snapshot that all hosts have completely and that we know, with its rows."""
    everywhere = set.intersection(*(set(have.get("whole", ())) for have in haves))
    for id in haves[0].get("whole", ()):
        if id in everywhere and (rows := rows_of(id)) is not None:
            return id, rows
    return None, ()


def contents_on_host(
    have: Mapping[str, Any], wanted: Sequence[bytes], base: Sequence[bytes], rows_of: LoadRows
) -> set[bytes]:
    """The wanted contents that a host certainly has."""
    if have.get("held"):
        bits = base64.b64decode(have["held"])
        return {id for n, id in enumerate(wanted) if bits[n // 8] >> n % 8 & 1}
    found = {each[-32:] for each in base}
    if not found:
        for id in have.get("whole", ()):
            found.update(each[-32:] for each in rows_of(id) or ())
    return found
