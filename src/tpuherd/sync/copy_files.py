"""Copies files and folders to and from many hosts."""

import asyncio
import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpuherd.errors import (
    DiskFilled,
    HerdError,
    InvalidInput,
    NotFound,
    NotReached,
    OperationFailed,
)
from tpuherd.ports import FetchedFiles, Link, RpcRequest, Stream
from tpuherd.sync.name_case import require_distinct_names
from tpuherd.sync.ship import (
    Payload,
    ProgressCallback,
    Shipment,
    ShipOptions,
    deliver_payload,
    links_by_label,
)
from tpuherd_host.agent.frames import BLOBS
from tpuherd_host.agent.snapshots.blobs import CorruptBlob
from tpuherd_host.agent.snapshots.manifest import (
    UNHASHED,
    BadRows,
    ManifestRow,
    check_rows,
    pack_row,
    parse_row,
    rows_id,
    unpack_rows,
)
from tpuherd_host.agent.snapshots.safe_tree import SafeTree, open_subtree, open_tree
from tpuherd_host.agent.snapshots.stream import (
    BrokenStream,
    ContentReader,
    decode_blocks,
    read_blocks,
)
from tpuherd_host.agent.snapshots.tree import (
    error_text,
    merge_tree,
    needed_folders,
    write_row,
)

PIECE = 1 << 20
FULL_DISK = frozenset((errno.ENOSPC, errno.EDQUOT))
PATH_MAX = 300  #: of a name in reports
AT_ONCE = 8  #: hosts to copy from at the same time
SPARED = 20  #: this part of the free disk stays free
BODY_MAX = 1 << 28  #: bytes of a list of files: about two million of them


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyResult:
    """The result of a copy from hosts."""

    got: dict[str, Path]  #: by host, where its files are now
    failed: dict[str, str]  #: by host, the reason
    skipped: dict[str, tuple[str, ...]]  #: by host, what is neither file, folder nor symlink
    only_home: dict[str, tuple[str, ...]]  #: by host, paths that its home has, not the job's code
    bytes_down: int


@dataclass(kw_only=True, slots=True)
class WriteLimit:
    """How much one host may still write here: the free disk less a twentieth.

    Sizes are counted as they seem, since some disks compress; the disk is asked, too, since other
    hosts write at the same time.
    """

    folder: Path
    bytes_left: int
    entries_left: int
    bytes_spared: int  #: that stay free

    @classmethod
    def from_free_disk(cls, folder: Path) -> "WriteLimit":
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        entries = disk.f_favail if disk.f_files else free // disk.f_frsize
        spared = free // SPARED
        return cls(
            folder=folder,
            bytes_left=free - spared,
            entries_left=entries - entries // SPARED,
            bytes_spared=spared,
        )

    def count_entry(self) -> None:
        """Count a new file, link or folder."""
        self.entries_left -= 1
        self.count_bytes(0)

    def count_bytes(self, size: int) -> None:
        """Count what is about to be written; DiskFilled at the limit."""
        self.bytes_left -= size
        disk = os.statvfs(self.folder)
        free = disk.f_bavail * disk.f_frsize - size
        if min(self.bytes_left, self.entries_left) < 0 or free < self.bytes_spared:
            raise self.make_error()

    def count_pieces(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.count_bytes(len(piece))
            yield piece

    def make_error(self) -> DiskFilled:
        return DiskFilled(
            f"the copy was stopped before it fills this machine's disk; what came is in"
            f" {self.folder}",
            hint="make room there, and try again",
        )


# ---- to hosts ------------------------------------------------------------------------------------


async def copy_to(
    paths: Sequence[Path],
    dest: str,
    links: Sequence[Link],
    *,
    report: ProgressCallback = lambda progress: None,
    in_code: bool = False,
) -> Shipment:
    """Copy files and folders with modes and times by cp's rules: into an existing folder, else
    under the new name. Other files there stay. No host puts files in place
    before all hosts have all of them.
    """
    if not paths or not links:
        raise InvalidInput("nothing to copy, or no host to copy to")
    found, skipped = await asyncio.to_thread(collect_files, paths)
    rows = sorted(found)
    places = {parse_row(each).id: found[each] for each in rows if not parse_row(each).is_folder}
    payload = Payload(id=rows_id(rows).hex(), rows=rows, pieces=lambda id: read_pieces(places[id]))
    tops = tuple(sorted({os.fsdecode(parse_row(each).path.split(b"/")[0]) for each in rows}))
    shipment = await deliver_payload(
        payload, dest, links, report=report, options=ShipOptions(tops=tops, in_code=in_code)
    )
    return replace(shipment, skipped=tuple(map(str, skipped)))


def collect_files(paths: Sequence[Path]) -> tuple[dict[bytes, Path], list[Path]]:
    """Manifest rows with their local paths, and what is neither file, folder nor symlink."""
    found: dict[bytes, Path] = {}
    skipped: list[Path] = []
    tops: set[str] = set()
    for path in paths:
        whole = Path(os.path.realpath(path))
        top = path.absolute().name if path.name != ".." else whole.name
        if not os.path.lexists(path):
            raise NotFound(f"{path} does not exist")
        if not top or top in tops:
            raise InvalidInput(
                f"{path} can't be copied with the others: its name is empty or not unique"
            )
        tops.add(top)
        try:
            for each, inner in walk_tree(whole, os.fsencode(top), skipped):
                found[hashed_row(each, inner)] = each
        except OSError as error:
            raise InvalidInput(f"can't read {path}: {error_text(error)}") from None
    if not found:
        raise InvalidInput(f"{', '.join(map(str, paths))}: not a file or folder")
    return found, skipped


def walk_tree(whole: Path, path: bytes, skipped: list[Path]) -> Iterator[tuple[Path, bytes]]:
    """A file, or a folder with everything in it; other kinds of files are added to `skipped`."""
    waiting = [(whole, path)]
    while waiting:
        whole, path = waiting.pop()
        mode = whole.lstat().st_mode
        if stat.S_ISDIR(mode):
            waiting += [(child, path + b"/" + os.fsencode(child.name)) for child in whole.iterdir()]
        elif not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            skipped.append(whole)
            continue
        yield whole, path


def hashed_row(whole: Path, path: bytes) -> bytes:
    """The manifest row of a file, with the hash of its content."""
    facts = whole.lstat()
    if stat.S_ISDIR(facts.st_mode):
        return pack_row(path, facts.st_mode, 0, UNHASHED, facts.st_mtime_ns or 1)
    digest, size = hashlib.sha256(), 0
    for piece in read_pieces(whole):
        digest.update(piece)
        size += len(piece)
    return pack_row(path, facts.st_mode, size, digest.digest(), facts.st_mtime_ns or 1)


def read_pieces(whole: Path) -> Iterator[bytes]:
    """A file's content in pieces. If it changed after it was hashed, hosts reject it."""
    if whole.is_symlink():
        yield os.fsencode(os.readlink(whole))  # noqa: PTH115 - a Path would tidy it up
        return
    with whole.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


# ---- from hosts ----------------------------------------------------------------------------------


async def copy_from(paths: Sequence[str], links: Sequence[Link], into: Path) -> CopyResult:
    """Copy files, folders and patterns; from several hosts each into a folder of its own."""
    if not paths or not links:
        raise InvalidInput("nothing to copy, or no host to copy from")
    lanes = asyncio.Semaphore(AT_ONCE)
    got: dict[str, Path] = {}
    failed: dict[str, str] = {}
    skipped: dict[str, tuple[str, ...]] = {}
    only_home: dict[str, tuple[str, ...]] = {}
    received: list[int] = []

    async def one(name: str, link: Link) -> None:
        folder = None if len(links) == 1 else name.replace("/", "-")
        place = into / (folder or "")
        try:
            async with lanes:
                many, reply = await fetch_files(paths, link, into, folder)
            for field, told in (("skipped", skipped), ("only_home", only_home)):
                if named := named_paths(reply, field):
                    told[name] = named
            got[name] = place
            received.append(many)
        except HerdError as error:
            failed[name] = error.sentence
        except OSError as error:
            failed[name] = error_text(error) if error.filename else f"{place}: {error_text(error)}"

    async with asyncio.TaskGroup() as group:
        for name, link in links_by_label(links).items():
            group.create_task(one(name, link))
    return CopyResult(
        got=got, failed=failed, skipped=skipped, only_home=only_home, bytes_down=sum(received)
    )


async def fetch_files(
    paths: Sequence[str], link: Link, into: Path, folder: str | None = None
) -> tuple[int, Mapping[str, Any]]:
    """Copy from one host by cp's rules, or into a folder of `into`, created if missing; returns the
    bytes received and the host's reply. Relative paths begin in the code of the host's job."""
    verb = RpcRequest(name="give", arguments={"paths": list(paths), "code": link.host.code_folder})
    return await receive_stream(link, verb, lambda come: unpack_files(come, into, folder))


def named_paths(reply: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """Return the paths that a host's reply names; OperationFailed if they are none."""
    named = reply.get(field) or ()
    if not isinstance(named, list | tuple) or not all(isinstance(path, str) for path in named):
        raise OperationFailed(f"the host sent malformed data: {field} {named!r:.60}")
    return tuple(named)


async def collect_paths(
    paths: Sequence[str], link: Link, into: Path, folder: str, within_s: float | None = None
) -> FetchedFiles:
    """Copy what a host has of these paths and patterns, as one tree with one limit. With a time,
    what has not come by then, or before the host goes, is cut off."""
    into.mkdir(parents=True, exist_ok=True)
    limit = WriteLimit.from_free_disk(into)
    fetched = FetchedFiles()
    until = None if within_s is None else asyncio.get_running_loop().time() + within_s
    left = list(paths)
    while left:
        many = len(fetched.cut_off)
        verb = RpcRequest(name="give", arguments={"paths": left[:1]})
        try:
            with suppress(NotFound):  # this host did not write it
                await receive_stream(
                    link,
                    verb,
                    lambda come: unpack_files(come, into, folder, limit, fetched),
                    until=until,
                )
        except (NotReached, TimeoutError):
            if until is None:
                raise
            fetched.cut_off += left[1:] if len(fetched.cut_off) > many else left
            break
        left.pop(0)
    return fetched


async def receive_stream(
    link: Link,
    verb: RpcRequest,
    take: Callable[[Callable[[], bytes]], None],
    *,
    until: float | None = None,
) -> tuple[int, Mapping[str, Any]]:
    """Receive a stream from a host in a thread; returns the bytes received and the reply. `until`:
    the loop's time at which it is given up with TimeoutError."""
    loop = asyncio.get_running_loop()
    many = 0
    async with link.open_stream(verb) as stream:

        async def next_in_time() -> bytes:
            async with asyncio.timeout_at(until):
                return await next_piece(stream)

        def come() -> bytes:
            nonlocal many
            piece = asyncio.run_coroutine_threadsafe(next_in_time(), loop).result()
            many += len(piece)
            return piece

        try:
            await asyncio.to_thread(take, come)
        except (BrokenStream, BadRows, CorruptBlob) as error:
            reply = await stream.reply()  # raises the reason, if the host knows it
            raise OperationFailed(f"the host sent malformed data: {error}; {dict(reply)}") from None
        async with asyncio.timeout_at(until):
            reply = await stream.reply()
    return many, reply


async def next_piece(stream: Stream) -> bytes:
    """The next bytes of the stream; empty at the end."""
    while (come := await stream.read()) is not None:
        if come[0] == BLOBS:
            return come[1]
    return b""


def read_rows(source: ContentReader) -> tuple[int, list[bytes]]:
    """Read how many contents a stream has, and its rows."""
    head = source.read_head()
    size = int(head["body"])
    if size > BODY_MAX:
        raise BadRows("more files than one copy can have")
    return int(head["give"]), unpack_rows(source.read_bytes(size))


def unpack_files(
    come: Callable[[], bytes],
    place: Path,
    folder: str | None = None,
    limit: WriteLimit | None = None,
    fetched: FetchedFiles | None = None,
) -> None:
    """Unpack the stream into a temporary folder, then move it in place, so that an interrupted copy
    leaves nothing half written; at the limit, or if `fetched` counts, what came whole. No link
    below the place is followed.
    """
    source = ContentReader(decode_blocks(read_blocks(come)))
    give, packed = read_rows(source)
    rows = check_rows(packed)
    tops = sorted({one.path.split(b"/")[0] for one in rows})
    inner = folder is not None or place.is_dir() or len(tops) > 1
    if not inner and rows[0].is_link:
        raise BadRows(f"a link in the place of {place}")
    above = place if inner else place.parent
    above.mkdir(parents=True, exist_ok=True)
    limit = limit or WriteLimit.from_free_disk(above)
    require_distinct_names(above, [one.path for one in rows], "copy them into different folders")
    names = {} if inner else {tops[0]: os.fsencode(place.name)}
    with (
        open_tree(os.fsencode(above)) as tree,
        open_subtree(tree, os.fsencode(folder)) if folder else nullcontext(tree) as dest,
        temporary_tree(dest) as staged,
    ):
        came: list[ManifestRow] = []
        try:
            for one in write_files(staged, source, give, rows, limit):
                came.append(one)
        except (DiskFilled, NotReached, OSError) as error:
            full = isinstance(error, DiskFilled) or error_number(error) in FULL_DISK
            if not full and (fetched is None or error_number(error) is not None):
                raise
            merge_tree(staged, dest, came, names)
            count_files(fetched, rows, came)
            if full:
                raise limit.make_error() from error
            raise
        merge_tree(staged, dest, rows, names)
        count_files(fetched, rows, rows)


def error_number(error: Exception) -> int | None:
    """Return the system's number of a failed call of ours; None: nothing came from the host."""
    return error.errno if isinstance(error, OSError) else None


def count_files(
    fetched: FetchedFiles | None, rows: Sequence[ManifestRow], came: Sequence[ManifestRow]
) -> None:
    """Note which files of these rows came, and which were cut off."""
    if fetched is None:
        return
    here = {one.path for one in came}
    for one in rows:
        if not one.is_folder:
            there = one.path in here
            path = one.path.decode(errors="replace")[:PATH_MAX]
            (fetched.came if there else fetched.cut_off).append(path)
            fetched.bytes += one.size if there else 0


@contextmanager
def temporary_tree(above: SafeTree) -> Iterator[SafeTree]:
    """A new folder in this one, removed at the end."""
    name = f".herd-{secrets.token_hex(6)}"
    try:
        with open_subtree(above, os.fsencode(name)) as tree:
            yield tree
    finally:
        shutil.rmtree(name, ignore_errors=True, dir_fd=above.root)


def write_files(
    tree: SafeTree,
    source: ContentReader,
    give: int,
    rows: Sequence[ManifestRow],
    limit: WriteLimit,
) -> Iterator[ManifestRow]:
    """Write every received file to the path of its row; yield each row that is whole."""
    folders = {one.path: one for one in rows if one.is_folder}
    for path in sorted(needed_folders(rows) - {b""}):
        limit.count_entry()
        tree.open_folder(path, make=True)
        if path in folders:
            yield folders[path]
    for _ in range(give):
        one = rows[source.read_number()]
        limit.count_entry()
        write_row(tree, one, limit.count_pieces(source.read_pieces(one.size)))
        yield one
    source.drain()
