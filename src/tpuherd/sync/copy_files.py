"""Copying files and folders as they are: to many hosts, and from them."""

import asyncio
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpuherd.errors import HerdError, InvalidInput, NotFound, OperationFailed
from tpuherd.ports import Link, RpcRequest, Stream
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
    NOBODY,
    BadRows,
    ManifestRow,
    check_rows,
    pack_row,
    parse_row,
    rows_id,
    unpack_rows,
)
from tpuherd_host.agent.snapshots.stream import (
    BrokenStream,
    ContentReader,
    decode_blocks,
    read_blocks,
)
from tpuherd_host.agent.snapshots.tree import (
    error_text,
    make_folders,
    merge_tree,
    write_row,
)

PIECE = 1 << 20
AT_ONCE = 8  #: hosts that are copied from at a time


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyResult:
    """What became of a copy from hosts."""

    got: dict[str, Path]  #: where what each gave is now
    failed: dict[str, str]  #: and why
    skipped: dict[str, tuple[str, ...]]  #: what is neither file, folder nor symlink
    bytes_down: int


# ---- to hosts ------------------------------------------------------------------------------------


async def copy_to(
    paths: Sequence[Path],
    dest: str,
    links: Sequence[Link],
    *,
    report: ProgressCallback = lambda progress: None,
) -> Shipment:
    """Files and folders, with modes and times, by cp's rules: into a folder that is there, else
    under the new name. What else is there stays. Nothing is in its place before all have all of it.
    """
    if not paths or not links:
        raise InvalidInput("there is nothing to copy, or no host to copy to")
    found, skipped = await asyncio.to_thread(collect_files, paths)
    rows = sorted(found)
    places = {parse_row(each).id: found[each] for each in rows if not parse_row(each).is_folder}
    cargo = Payload(id=rows_id(rows).hex(), rows=rows, pieces=lambda id: read_pieces(places[id]))
    tops = tuple(sorted({os.fsdecode(parse_row(each).path.split(b"/")[0]) for each in rows}))
    shipment = await deliver_payload(
        cargo, dest, links, report=report, terms=ShipOptions(tops=tops)
    )
    return replace(shipment, skipped=tuple(map(str, skipped)))


def collect_files(paths: Sequence[Path]) -> tuple[dict[bytes, Path], list[Path]]:
    """Rows with where each is; and what is neither file, folder nor symlink."""
    found: dict[bytes, Path] = {}
    skipped: list[Path] = []
    tops: set[str] = set()
    for path in paths:
        whole = Path(os.path.realpath(path))
        top = path.absolute().name if path.name != ".." else whole.name
        if not os.path.lexists(path):
            raise NotFound(f"{path} is not there")
        if not top or top in tops:
            raise InvalidInput(
                f"{path} cannot be copied beside the others: it has no name of its own"
            )
        tops.add(top)
        try:
            for each, inner in walk_tree(whole, os.fsencode(top), skipped):
                found[hashed_row(each, inner)] = each
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error_text(error)}") from None
    if not found:
        raise InvalidInput(f"{', '.join(map(str, paths))}: neither a file nor a folder")
    return found, skipped


def walk_tree(whole: Path, path: bytes, skipped: list[Path]) -> Iterator[tuple[Path, bytes]]:
    """A file, or a folder with all that is in it; what is neither is skipped."""
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
    """A row, with the content's id."""
    facts = whole.lstat()
    if stat.S_ISDIR(facts.st_mode):
        return pack_row(path, facts.st_mode, 0, NOBODY, facts.st_mtime_ns or 1)
    digest, size = hashlib.sha256(), 0
    for piece in read_pieces(whole):
        digest.update(piece)
        size += len(piece)
    return pack_row(path, facts.st_mode, size, digest.digest(), facts.st_mtime_ns or 1)


def read_pieces(whole: Path) -> Iterator[bytes]:
    """A content, piece by piece. If it changes after it was hashed, no host takes it."""
    if whole.is_symlink():
        yield os.fsencode(os.readlink(whole))  # noqa: PTH115 - a Path would tidy it up
        return
    with whole.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


# ---- from hosts ----------------------------------------------------------------------------------


async def copy_from(paths: Sequence[str], links: Sequence[Link], into: Path) -> CopyResult:
    """Files, folders and patterns: of one host by cp's rules, of several into a folder each."""
    if not paths or not links:
        raise InvalidInput("there is nothing to copy, or no host to copy from")
    lanes = asyncio.Semaphore(AT_ONCE)
    got: dict[str, Path] = {}
    failed: dict[str, str] = {}
    skipped: dict[str, tuple[str, ...]] = {}
    total = 0

    async def one(name: str, link: Link) -> None:
        nonlocal total
        place = into if len(links) == 1 else into / name.replace("/", "-")
        try:
            async with lanes:
                many, left = await fetch_files(paths, link, place, new=len(links) > 1)
            got[name] = place
            total += many
            if left:
                skipped[name] = left
        except HerdError as error:
            failed[name] = error.sentence
        except OSError as error:
            failed[name] = error_text(error) if error.filename else f"{place}: {error_text(error)}"

    async with asyncio.TaskGroup() as group:
        for name, link in links_by_label(links).items():
            group.create_task(one(name, link))
    return CopyResult(got=got, failed=failed, skipped=skipped, bytes_down=total)


async def fetch_files(
    paths: Sequence[str], link: Link, into: Path, *, new: bool = False
) -> tuple[int, tuple[str, ...]]:
    """From one host: how many bytes came, and what was left out; `new`: `into` is to be a folder,
    made where it is missing."""
    verb = RpcRequest(name="give", arguments={"paths": list(paths)})
    many, reply = await receive_stream(link, verb, lambda come: unpack_files(come, into, new))
    return many, tuple(reply.get("skipped", ()))


async def receive_stream(
    link: Link, verb: RpcRequest, take: Callable[[Callable[[], bytes]], None]
) -> tuple[int, Mapping[str, Any]]:
    """What a host gives, taken piece by piece in a thread: how many bytes, and its answer."""
    loop = asyncio.get_running_loop()
    many = 0
    async with link.open_stream(verb) as stream:

        def come() -> bytes:
            nonlocal many
            piece = asyncio.run_coroutine_threadsafe(next_piece(stream), loop).result()
            many += len(piece)
            return piece

        try:
            await asyncio.to_thread(take, come)
        except (BrokenStream, BadRows, CorruptBlob) as error:
            reply = await stream.reply()  # says why, if the host knows
            raise OperationFailed(f"what came makes no sense: {error}; {dict(reply)}") from None
        reply = await stream.reply()
    return many, reply


async def next_piece(stream: Stream) -> bytes:
    """The next bytes of it; none at the end."""
    while (come := await stream.read()) is not None:
        if come[0] == BLOBS:
            return come[1]
    return b""


def unpack_files(come: Callable[[], bytes], place: Path, new: bool) -> None:
    """Out of the stream into a folder beside, then to its place: not half, should it be cut."""
    source = ContentReader(decode_blocks(read_blocks(come)))
    head = source.read_head()
    rows = check_rows(unpack_rows(source.read_bytes(int(head["body"]))))
    tops = sorted({one.path.split(b"/")[0] for one in rows})
    inner = new or place.is_dir() or len(tops) > 1
    above = place if inner else place.parent
    above.mkdir(parents=True, exist_ok=True)
    names = {} if inner else {tops[0]: os.fsencode(place.name)}
    aside = above / f".herd-{secrets.token_hex(6)}"
    try:
        write_files(os.fsencode(aside), source, int(head["give"]), rows)
        merge_tree(os.fsencode(aside), os.fsencode(above), rows, names)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_files(tree: bytes, source: ContentReader, give: int, rows: Sequence[ManifestRow]) -> None:
    """Every file where its row says."""
    make_folders(tree, rows)
    for _ in range(give):
        one = rows[source.read_number()]
        write_row(tree, one, source.read_pieces(one.size))
    source.drain()
