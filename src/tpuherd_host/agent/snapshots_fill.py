"""Taking a snapshot or a copy out of its stream and writing it beside its destination."""

import hashlib
import os
import shutil
from functools import lru_cache
from pathlib import Path

from tpuherd_host.agent import snapshots_place
from tpuherd_host.agent.blobs import Blobs, Spoiled
from tpuherd_host.agent.snapshots_place import (
    PART,
    blobs,
    known,
    path_of,
    place,
    remembered,
    rows_of,
    writable,
)
from tpuherd_host.agent.snapshots_rows import (
    Row,
    applied,
    checked,
    contents,
    named,
    packed,
    parsed,
    replaced,
    unpacked,
)
from tpuherd_host.agent.snapshots_stream import Source, Torn, plain
from tpuherd_host.agent.snapshots_tree import dress, inside, lay, moves, share, write
from tpuherd_host.agent.thin import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
)
from tpuherd_host.agent.turn import Refused

MARGIN = 8 << 20  #: bytes that stay free
TOKEN_MAX = 64


class Order(NamedTuple):
    """What is to be filled, as the controller said over SSH."""

    id: str
    dest: str
    token: str
    force: bool
    tops: Optional[List[str]]  #: a copy's topmost names; None: a snapshot


class Growth(NamedTuple):
    """A tree to be, and the one that stands there now."""

    tree: bytes
    base: bytes
    before: Mapping[bytes, Row]  #: by path, what the base was written as


class Target(NamedTuple):
    """Where a copy goes."""

    tree: Path  #: the folder for trees on the same file system
    into: Path
    renamed: Dict[bytes, bytes]


ORDERS: Dict[str, Order] = {}  #: by their tokens, so that they are told once
ORDERS_MAX = 256


def ordered(content: Mapping[str, Any]) -> Order:
    """The order in a call, or the one that it names by its token."""
    if "id" not in content:
        told = ORDERS.get(str(content.get("token")))
        if told is None:
            raise Refused("not-found", "this agent was restarted meanwhile; try again")
        return told
    id, dest, token = (str(content.get(key) or "") for key in ("id", "dest", "token"))
    if len(id) != 64 or not id.isalnum() or not token.isalnum() or len(token) > TOKEN_MAX:
        raise Refused("unfit", "this is no order to fill a host")
    while len(ORDERS) >= ORDERS_MAX:
        ORDERS.pop(next(iter(ORDERS)))
    tops = content.get("tops")
    ORDERS[token] = Order(id, dest, token, bool(content.get("force")), tops)
    return ORDERS[token]


def target(house: Path, home: Path, dest: str, tops: Sequence[str]) -> Target:
    """Where a copy goes, by cp's rules: into a folder that is there, else under the new name."""
    path = path_of(home, dest)
    inner = path.is_dir() or dest.endswith("/") or len(tops) > 1
    if inner and path.exists() and not path.is_dir():
        raise Refused("unfit", f"{path} is a file, not a folder; name another destination")
    above = path if inner else path.parent
    while not above.is_dir():
        if above.exists():
            raise Refused("unfit", f"{path} leads through a file; name another destination")
        above = above.parent
    writable(above)
    trees = house / "trees"
    trees.mkdir(parents=True, exist_ok=True, mode=0o700)
    if above.stat().st_dev != trees.stat().st_dev:
        trees = above / ".tpuherd-trees"
    if inner:
        return Target(trees / "copies", path, {})
    return Target(trees / "copies", path.parent, {os.fsencode(tops[0]): os.fsencode(path.name)})


def staged(house: Path, home: Path, order: Order) -> Path:
    """Where it is filled."""
    if order.tops is not None:
        return target(house, home, order.dest, order.tops).tree / order.token
    return place(house, home, order.dest, force=order.force).folder / order.token


def filled(house: Path, home: Path, order: Order, coming: Iterator[bytes]) -> None:
    """Fill. Nothing of it is in its place yet; cut, what came is kept for the next time."""
    store = blobs(house)
    base: List[bytes] = []
    rows: List[bytes] = []

    @lru_cache(maxsize=1)  # all its pieces are told by the same one
    def old(number: int) -> bytes:
        was = replaced(base, parsed(rows[number]).path)
        return b"".join(store.pieces(was.id)) if was else b""

    source = Source(plain(coming, old))
    head = source.head()
    base += based(house, head["base"])
    body, cut = source.take(int(head["body"])), int(head["gone"])
    rows += applied(base, unpacked(body[:cut]), unpacked(body[cut:]))
    if named(rows).hex() != order.id:
        raise Torn("it is another snapshot than was announced")
    found = remembered(order.id, checked(rows))
    file = snapshots_place.rows_file(house, order.id)
    if not file.exists():
        file.with_name(file.name + PART).write_bytes(packed(rows))
    tree = staged(house, home, order)
    tree.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.rmtree(str(tree), ignore_errors=True)
    try:
        if order.tops is None:
            spot = place(house, home, order.dest, force=order.force)
            before = {one.path: one for one in known(house, spot.current)}
            took(store, source, int(head["give"]), found, before)
            growth = Growth(os.fsencode(str(tree)), os.fsencode(str(spot.dest)), before)
            grown(store, file, growth, found)
        else:
            room(tree.parent, sum(one.size for one in found))
            spread(os.fsencode(str(tree)), source, int(head["give"]), found)
            goal = target(house, home, order.dest, order.tops)
            moves(os.fsencode(str(tree)), os.fsencode(str(goal.into)), found, goal.renamed)
        source.drain()
    except BaseException:
        shutil.rmtree(str(tree), ignore_errors=True)
        raise


def based(house: Path, start: Optional[str]) -> List[bytes]:
    """The rows by which others are told: of the snapshot here whose id begins like that, or none.
    Were it another than was meant, what comes of it would not have the id that was announced."""
    if start is None:
        return []
    ids = [id for id in snapshots_place.whole(house) if id.startswith(start)]
    base = rows_of(house, ids[0]) if ids else None
    if base is None:
        raise Torn("the snapshot that this one is told by is not here any more; sync again")
    return base


def room(path: Path, needed: int) -> None:
    """Refused where it would not fit."""
    free = shutil.disk_usage(str(path)).free
    if needed + MARGIN > free:
        sentence = f"{needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free"
        raise Refused("full", f"the disk is full: {sentence}")


def took(
    store: Blobs, source: Source, give: int, rows: Sequence[Row], before: Mapping[bytes, Row]
) -> None:
    """The contents that came, into the store."""
    wanted = contents(rows)
    needed = sum(wanted[id] for id in store.missing(wanted))
    room(store.folder, needed + sum(one.size for one in rows if before.get(one.path) != one))
    with store.held(), store.writer() as pack:
        for _ in range(give):
            one = rows[source.number()]
            pieces = source.pieces(one.size)
            if one.id in store:
                for _ in pieces:
                    pass
            else:
                pack.add(pieces, one.id)
    if store.missing(wanted):
        raise Torn("contents are missing; sync again")


def grown(store: Blobs, file: Path, growth: Growth, rows: Sequence[Row]) -> None:
    """The tree, of files that the present one has unchanged and of the store's contents."""
    part = file.with_name(file.name + PART)
    if part.exists():
        part.replace(file)
    os.utime(str(file))
    lay(growth.tree, rows)
    before = growth.before
    kept = [one for one in rows if before.get(one.path) == one]
    left = share(growth.base, growth.tree, kept)
    try:
        with store.held():
            for one in (*left, *(one for one in rows if before.get(one.path) != one)):
                write(growth.tree, one, store.pieces(one.id))
    except Spoiled:
        file.replace(part)
        raise


def spread(tree: bytes, source: Source, give: int, rows: Sequence[Row]) -> None:
    """The contents of a copy, straight into its tree."""
    lay(tree, rows)
    first: Dict[bytes, Row] = {}
    for _ in range(give):
        one = rows[source.number()]
        write(tree, one, verified(source.pieces(one.size), one.id))
        first[one.id] = one
    for one in rows:
        if one.folder or first.get(one.id) == one:
            continue
        if one.id not in first:
            raise Torn("contents are missing; copy again")
        twin(tree, first[one.id], one)


def twin(tree: bytes, first: Row, one: Row) -> None:
    """The same content at another path."""
    here, there = inside(tree, first.path), inside(tree, one.path)
    shutil.copyfile(here, there, follow_symlinks=False)
    if not one.link:
        file = os.open(there, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            dress(file, one)
        finally:
            os.close(file)


def verified(pieces: Iterable[bytes], id: bytes) -> Iterator[bytes]:
    """The same; Spoiled at the end if they are not what they should be."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.digest() != id:
        raise Spoiled(f"{id.hex()} came as {digest.hexdigest()}")
