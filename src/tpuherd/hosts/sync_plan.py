"""What is to be sent, and who passes it on to whom. Pure."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpuherd_host.agent.snapshots_rows import changed, contents, packed, parsed

FANOUT = 4
DIRECT_AFTER = 2  #: rounds in which nothing came through the other hosts


@dataclass(frozen=True, kw_only=True, slots=True)
class Child:
    """A host that listens, and to whom it passes on."""

    name: str
    address: str
    port: int
    token: str  #: by which both ends know each other
    children: tuple["Child", ...] = ()

    def all(self) -> Iterator["Child"]:
        """Itself, and all that are below it."""
        yield self
        for child in self.children:
            yield from child.all()

    def names(self) -> set[str]:
        """Of those below it."""
        return {child.name for child in self.all()} - {self.name}

    def json(self) -> list[Any]:
        """As the agents take it."""
        below = [child.json() for child in self.children]
        return [self.address, self.port, self.token, below]


def grown(hosts: Sequence[Child], fanout: int = FANOUT) -> tuple[Child, ...]:
    """Hosts as a tree: at most `fanout` below each, all branches of about the same depth."""
    branches = (hosts[start::fanout] for start in range(min(fanout, len(hosts))))
    return tuple(
        Child(
            name=branch[0].name,
            address=branch[0].address,
            port=branch[0].port,
            token=branch[0].token,
            children=grown(branch[1:], fanout),
        )
        for branch in branches
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """What must travel so that all of some hosts have a snapshot."""

    base: str | None  #: told as changes to this one, which all have
    gone: tuple[bytes, ...]
    put: tuple[bytes, ...]
    give: tuple[tuple[int, bytes, int], ...]  #: contents that one of them lacks: row, id, size

    @property
    def size(self) -> int:
        """Bytes of content, before they are compressed."""
        return sum(size for _, _, size in self.give)

    def head(self, id: str) -> dict[str, Any]:
        """What stands at the front of the stream."""
        cut = len(packed(self.gone))
        return {"id": id, "base": self.base, "gone": cut, "give": len(self.give)}

    def body(self) -> bytes:
        """The rows, or the changes."""
        return packed(self.gone) + packed(self.put)


def offer(
    rows: Sequence[bytes],
    haves: Sequence[Mapping[str, Any]],
    rows_of: Callable[[str], Sequence[bytes] | None],
) -> Offer:
    """What those hosts lack, by what each says it has. `rows_of` knows snapshots by their ids."""
    base, base_rows = shared(haves, rows_of)
    found = [parsed(each) for each in rows]
    wanted = contents(found)
    numbers = {one.id: number for number, one in reversed(list(enumerate(found)))}
    lacking: set[bytes] = set()
    for have in haves:
        lacking |= wanted.keys() - held(have, list(wanted), base_rows, rows_of)
    give = tuple((numbers[id], id, size) for id, size in wanted.items() if id in lacking)
    if base is None:
        return Offer(base=None, gone=(), put=tuple(rows), give=give)
    gone, put = changed(base_rows, rows)
    return Offer(base=base, gone=tuple(gone), put=tuple(put), give=give)


def shared(
    haves: Sequence[Mapping[str, Any]], rows_of: Callable[[str], Sequence[bytes] | None]
) -> tuple[str | None, Sequence[bytes]]:
    """The latest snapshot that all of them have whole, and that we know too."""
    everywhere = set.intersection(*(set(have.get("whole", ())) for have in haves))
    for id in haves[0].get("whole", ()):
        if id in everywhere and (rows := rows_of(id)) is not None:
            return id, rows
    return None, ()


def held(
    have: Mapping[str, Any],
    wanted: Sequence[bytes],
    base: Sequence[bytes],
    rows_of: Callable[[str], Sequence[bytes] | None],
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
