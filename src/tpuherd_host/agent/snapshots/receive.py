"""Read a snapshot or a copy from its stream and write it beside its destination."""

import hashlib
import os
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from tpuherd_host.agent.base_folder import place_path
from tpuherd_host.agent.snapshots import tree_layout
from tpuherd_host.agent.snapshots.blobs import BlobStore, CorruptBlob
from tpuherd_host.agent.snapshots.manifest import (
    ManifestRow,
    apply_diff,
    check_rows,
    content_sizes,
    pack_rows,
    parse_row,
    row_at_path,
    rows_id,
    unpack_rows,
)
from tpuherd_host.agent.snapshots.safe_tree import SafeTree, open_tree
from tpuherd_host.agent.snapshots.stream import (
    BrokenStream,
    ContentReader,
    decode_blocks,
)
from tpuherd_host.agent.snapshots.tree import (
    link_unchanged,
    make_folders,
    plan_moves,
    read_row,
    write_row,
)
from tpuherd_host.agent.snapshots.tree_layout import (
    PART,
    check_writable,
    find_destination,
    known_rows,
    load_rows,
    open_blobs,
    remember_rows,
    resolve_path,
)
from tpuherd_host.agent.state_machine.transition import CallRefused

MARGIN, SPARED = 8 << 20, 20  #: so many bytes stay free, and this part of the free disk
TOKEN_MAX = 64


class FillOrder(NamedTuple):
    """What to receive, as the controller asked over SSH."""

    id: str
    dest: str
    token: str
    force: bool
    tops: Optional[List[str]]  #: a copy's top-level names; None for a snapshot
    only_home: bool = False  #: whether the home has the destination, and the code folder does not


class TreeUpdate(NamedTuple):
    """The new tree, and the tree that is in place now."""

    tree: bytes
    base: bytes
    before: Mapping[bytes, ManifestRow]  #: by path, the rows of the tree in place


class CopyTarget(NamedTuple):
    """Where a copy goes."""

    tree: Path  #: the folder for trees on the same file system
    into: Path
    renamed: Dict[bytes, bytes]


ORDERS: Dict[str, FillOrder] = {}  #: by token: an order is sent once
ORDERS_MAX = 256


def parse_order(content: Mapping[str, Any], home: Path) -> FillOrder:
    """Return the order in a call, or the one that its token names."""
    if "id" not in content:
        order = ORDERS.get(str(content.get("token")))
        if order is None:
            raise CallRefused("not-found", "this agent was restarted meanwhile; try again")
        return order
    id, dest, token = (str(content.get(key) or "") for key in ("id", "dest", "token"))
    if len(id) != 64 or not id.isalnum() or not token.isalnum() or len(token) > TOKEN_MAX:
        raise CallRefused("unfit", "this request lacks id, dest or token")
    while len(ORDERS) >= ORDERS_MAX:
        ORDERS.pop(next(iter(ORDERS)))
    dest, only_home = place_path(home, dest, str(content.get("code") or ""))
    force, tops = bool(content.get("force")), content.get("tops")
    ORDERS[token] = FillOrder(id, dest, token, force, tops, only_home)
    return ORDERS[token]


def copy_target(agent_folder: Path, home: Path, dest: str, tops: Sequence[str]) -> CopyTarget:
    """Return where a copy goes, by cp's rules: into an existing folder, else under the new name."""
    path = resolve_path(home, dest)
    inner = path.is_dir() or dest.endswith("/") or len(tops) > 1
    if inner and path.exists() and not path.is_dir():
        raise CallRefused("unfit", f"{path} is a file, not a folder; name another destination")
    above = path if inner else path.parent
    while not above.is_dir():
        if above.exists():
            raise CallRefused("unfit", f"{path} leads through a file; name another destination")
        above = above.parent
    check_writable(above)
    trees = agent_folder / "trees"
    trees.mkdir(parents=True, exist_ok=True, mode=0o700)
    if above.stat().st_dev != trees.stat().st_dev:
        trees = above / ".tpuherd-trees"
    if inner:
        return CopyTarget(trees / "copies", path, {})
    return CopyTarget(trees / "copies", path.parent, {os.fsencode(tops[0]): os.fsencode(path.name)})


def staging_path(agent_folder: Path, home: Path, order: FillOrder) -> Path:
    """Return the folder in which it is received."""
    if order.tops is not None:
        return copy_target(agent_folder, home, order.dest, order.tops).tree / order.token
    return find_destination(agent_folder, home, order.dest, force=order.force).folder / order.token


def fill_tree(agent_folder: Path, home: Path, order: FillOrder, coming: Iterator[bytes]) -> None:
    """Receive. Nothing is in place yet; after an interruption the received contents stay."""
    store = open_blobs(agent_folder)
    base: List[bytes] = []
    rows: List[bytes] = []

    @lru_cache(maxsize=1)  # it is the same for all its pieces
    def old(number: int) -> bytes:
        was = row_at_path(base, parse_row(rows[number]).path)
        return b"".join(store.read_pieces(was.id)) if was else b""

    source = ContentReader(decode_blocks(coming, old))
    head = source.read_head()
    base += base_rows(agent_folder, head["base"])
    body, cut = source.read_bytes(int(head["body"])), int(head["gone"])
    rows += apply_diff(base, unpack_rows(body[:cut]), unpack_rows(body[cut:]))
    if rows_id(rows).hex() != order.id:
        raise BrokenStream("the snapshot is not the announced one")
    found = remember_rows(order.id, check_rows(rows))
    file = tree_layout.rows_file(agent_folder, order.id)
    if not file.exists():
        file.with_name(file.name + PART).write_bytes(pack_rows(rows))
    tree = staging_path(agent_folder, home, order)
    tree.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.rmtree(str(tree), ignore_errors=True)
    tree.mkdir(mode=0o755)
    try:
        if order.tops is None:
            spot = find_destination(agent_folder, home, order.dest, force=order.force)
            before = {one.path: one for one in known_rows(agent_folder, spot.current)}
            store_contents(store, source, int(head["give"]), found, before)
            growth = TreeUpdate(os.fsencode(str(tree)), os.fsencode(str(spot.dest)), before)
            build_tree(store, file, growth, found)
        else:
            check_disk_space(tree.parent, sum(one.size for one in found), len(found))
            with open_tree(os.fsencode(str(tree))) as staged:
                write_copy(staged, source, int(head["give"]), found)
            goal = copy_target(agent_folder, home, order.dest, order.tops)
            if goal.into.exists():
                with open_tree(os.fsencode(str(goal.into))) as dest:
                    plan_moves(dest, found, goal.renamed)
        source.drain()
    except BaseException:
        shutil.rmtree(str(tree), ignore_errors=True)
        raise


def base_rows(agent_folder: Path, start: Optional[str]) -> List[bytes]:
    """Return the rows of the local snapshot whose id starts like this, or none.
    If this is not the sender's base, the result's id does not match the announced one."""
    if start is None:
        return []
    ids = [id for id in tree_layout.complete_snapshots(agent_folder) if id.startswith(start)]
    base = load_rows(agent_folder, ids[0]) if ids else None
    if base is None:
        raise BrokenStream("the earlier snapshot is no longer on the host; sync again")
    return base


def check_disk_space(path: Path, needed: int, entries: int) -> None:
    """Refuse what does not fit on the disk. Each content is as large as its row says."""
    disk = os.statvfs(str(path))
    free = disk.f_bavail * disk.f_frsize
    if needed + MARGIN + free // SPARED > free:
        sentence = f"{needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free"
        raise CallRefused("full", f"the disk is full: {sentence}")
    if disk.f_files and entries > disk.f_favail - disk.f_favail // SPARED:
        raise CallRefused("full", f"the disk is full: it has no room for {entries} more files")


def store_contents(
    store: BlobStore,
    source: ContentReader,
    give: int,
    rows: Sequence[ManifestRow],
    before: Mapping[bytes, ManifestRow],
) -> None:
    wanted = content_sizes(rows)
    needed = sum(wanted[id] for id in store.missing_ids(wanted))
    changed = [one.size for one in rows if before.get(one.path) != one]
    check_disk_space(store.folder, needed + sum(changed), len(rows))
    with store.shared_lock(), store.new_pack() as pack:
        for _ in range(give):
            one = rows[source.read_number()]
            pieces = source.read_pieces(one.size)
            if one.id in store:
                for _ in pieces:
                    pass
            else:
                pack.add(pieces, one.id)
    if store.missing_ids(wanted):
        raise BrokenStream("contents are missing; sync again")


def build_tree(
    store: BlobStore, file: Path, growth: TreeUpdate, rows: Sequence[ManifestRow]
) -> None:
    """Build the tree from unchanged files of the present one and from the store."""
    part = file.with_name(file.name + PART)
    if part.exists():
        part.replace(file)
    os.utime(str(file))
    before = growth.before
    kept = [one for one in rows if before.get(one.path) == one]
    try:
        with store.shared_lock(), open_tree(growth.tree) as tree:
            make_folders(tree, rows)
            left = link_unchanged(growth.base, tree, kept)
            for one in (*left, *(one for one in rows if before.get(one.path) != one)):
                write_row(tree, one, store.read_pieces(one.id))
    except CorruptBlob:
        file.replace(part)
        raise


def write_copy(
    tree: SafeTree, source: ContentReader, give: int, rows: Sequence[ManifestRow]
) -> None:
    """Write a copy's contents straight into its tree."""
    make_folders(tree, rows)
    first: Dict[bytes, ManifestRow] = {}
    for _ in range(give):
        one = rows[source.read_number()]
        write_row(tree, one, verify_pieces(source.read_pieces(one.size), one.id))
        first[one.id] = one
    for one in rows:
        if one.is_folder or first.get(one.id) == one:
            continue
        if one.id not in first:
            raise BrokenStream("contents are missing; copy again")
        write_row(tree, one, read_row(tree, first[one.id]))


def verify_pieces(pieces: Iterable[bytes], id: bytes) -> Iterator[bytes]:
    """Pass the pieces on; raise CorruptBlob at the end if they are wrong."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.digest() != id:
        raise CorruptBlob(f"{id.hex()}arrived as {digest.hexdigest()}")
