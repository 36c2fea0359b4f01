"""What must travel so that hosts have a snapshot, by what they say they have. Pure."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tpuherd_host.agent.snapshots.manifest import (
    content_sizes,
    diff_rows,
    pack_rows,
    parse_row,
    row_at_path,
)
from tpuherd_host.agent.snapshots.stream import LIKE_MAX, StreamContent

BASE_LETTERS = 16  #: of a snapshot's id: enough to find it, for what comes of it is checked whole

LoadRows = Callable[[str], Sequence[bytes] | None]
LoadPieces = Callable[[bytes], Iterable[bytes]]


class SentContent(NamedTuple):
    """A content that travels."""

    number: int  #: of the row that has it
    id: bytes
    size: int
    old: bytes | None = None  #: the content that it replaces, of which all have a copy


@dataclass(frozen=True, kw_only=True, slots=True)
class Delta:
    """What must travel so that all of some hosts have a snapshot."""

    base: str | None  #: told as changes to this one, which all have
    gone: tuple[bytes, ...]
    put: tuple[bytes, ...]
    give: tuple[SentContent, ...]  #: contents that one of them lacks

    @property
    def size(self) -> int:
        """Bytes of content, before they are compressed."""
        return sum(gift.size for gift in self.give)

    def stream_head(self) -> dict[str, Any]:
        """What stands at the front of the stream."""
        base = self.base and self.base[:BASE_LETTERS]
        return {"base": base, "gone": len(pack_rows(self.gone)), "give": len(self.give)}

    def stream_body(self) -> bytes:
        """The rows, or the changes."""
        return pack_rows(self.gone) + pack_rows(self.put)

    def iter_contents(
        self, pieces: LoadPieces, kept: Callable[[bytes], bool]
    ) -> Iterator[StreamContent]:
        """All that is given, with what it replaces where we have kept that too."""
        for number, id, size, old in self.give:
            like = b"".join(pieces(old)) if old and kept(old) else b""
            yield StreamContent(number, size, pieces(id), like)


def compute_delta(
    rows: Sequence[bytes], haves: Sequence[Mapping[str, Any]], rows_of: LoadRows
) -> Delta:
    """What those hosts lack, by what each says it has. `rows_of` knows snapshots by their ids."""
    base, base_rows = common_base(haves, rows_of)
    found = [parse_row(each) for each in rows]
    wanted = content_sizes(found)
    numbers = {one.id: number for number, one in reversed(list(enumerate(found)))}
    lacking: set[bytes] = set()
    for have in haves:
        lacking |= wanted.keys() - contents_on_host(have, list(wanted), base_rows, rows_of)
    give = []
    for id, size in wanted.items():
        if id in lacking:
            old = row_at_path(base_rows, found[numbers[id]].path)
            like = old is not None and not old.is_link and max(size, old.size) <= LIKE_MAX
            give.append(SentContent(numbers[id], id, size, old.id if old and like else None))
    if base is None:
        return Delta(base=None, gone=(), put=tuple(rows), give=tuple(give))
    gone, put = diff_rows(base_rows, rows)
    return Delta(base=base, gone=tuple(gone), put=tuple(put), give=tuple(give))


def common_base(
    haves: Sequence[Mapping[str, Any]], rows_of: LoadRows
) -> tuple[str | None, Sequence[bytes]]:
    """The latest snapshot that all of them have whole, and that we know too."""
    everywhere = set.intersection(*(set(have.get("whole", ())) for have in haves))
    for id in haves[0].get("whole", ()):
        if id in everywhere and (rows := rows_of(id)) is not None:
            return id, rows
    return None, ()


def contents_on_host(
    have: Mapping[str, Any], wanted: Sequence[bytes], base: Sequence[bytes], rows_of: LoadRows
) -> set[bytes]:
    """Of the wanted contents those that a host has for sure."""
    if have.get("held"):
        bits = base64.b64decode(have["held"])
        return {id for n, id in enumerate(wanted) if bits[n // 8] >> n % 8 & 1}
    found = {each[-32:] for each in base}
    if not found:
        for id in have.get("whole", ()):
            found.update(each[-32:] for each in rows_of(id) or ())
    return found
