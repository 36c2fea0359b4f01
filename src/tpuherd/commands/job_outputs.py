"""Finds the outputs of a job, here and on the hosts where it runs, and copies them."""

import asyncio
import os
import posixpath
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tpuherd.commands.console import Console
from tpuherd.commands.running_attempts import RunningAttempt, list_running_attempts
from tpuherd.errors import HerdError, InvalidInput, NotFound
from tpuherd.jobfile.read_job import JobSpec, read_fields
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import Link, RpcRequest, Stream
from tpuherd.settings import project_access
from tpuherd.sync.copy_files import collect_paths, next_piece, read_rows
from tpuherd.targets import CODE_ROOT, natural_key
from tpuherd_host.agent.snapshots.manifest import ManifestRow, check_rows
from tpuherd_host.agent.snapshots.stream import (
    BrokenStream,
    ContentReader,
    decode_blocks,
    read_blocks,
)

ATTEMPT = re.compile(r".*-a(\d+)-[^-]+")
HOST = re.compile(r"(?P<node>.+)\.w(?P<worker>\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    """A file that a job wrote below its `outputs`."""

    slot: str
    attempt: int
    host: str  #: w0; the node, too, if the attempt ran on several
    path: str
    bytes: int
    file: Path | None = None  #: where it is here
    link: Link | None = None  #: of the host that still has it, where it is `remote`
    remote: str = ""

    @property
    def levels(self) -> tuple[str, str, str]:
        return self.slot, f"a{self.attempt}", self.host

    @property
    def name(self) -> str:
        """gpt-0/a2/w3/results/log.txt"""
        return "/".join((*self.levels, self.path))


def find_here(folder: Path, job: str) -> Iterator[OutputFile]:
    """Yield what was brought back, by slot and attempt. `folder`: that of all outputs."""
    slots = re.compile(rf"{re.escape(job)}-\d+")
    for slot in list_folders(folder, slots):
        for attempt in list_folders(slot, ATTEMPT):
            number = int(match[1]) if (match := ATTEMPT.fullmatch(attempt.name)) else 0
            hosts = list_folders(attempt, HOST)
            nodes = {one.name.rpartition(".")[0] for one in hosts}
            for host in hosts:
                label = host.name if len(nodes) > 1 else host.name.rpartition(".")[2]
                place: dict[str, Any] = {"slot": slot.name, "attempt": number, "host": label}
                for file in files_below(host):
                    path, size = str(file.relative_to(host)), file.lstat().st_size
                    yield OutputFile(**place, path=path, bytes=size, file=file)


def list_folders(above: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the folders of such names, w10 after w9."""
    found = above.iterdir() if above.is_dir() else ()
    fitting = [one for one in found if pattern.fullmatch(one.name) and one.is_dir()]
    return sorted(fitting, key=lambda one: natural_key(one.name))


def files_below(folder: Path) -> Iterator[Path]:
    for above, folders, files in os.walk(folder):
        folders.sort()
        links = [name for name in folders if (Path(above) / name).is_symlink()]
        yield from (Path(above) / name for name in sorted(files + links))


async def find_on_host(job: StoredJob, link: Link, label: str) -> list[OutputFile]:
    """Return what the running attempt on this host has written so far."""
    spec = read_fields(job.document)
    running = [one for one in await list_running_attempts(link) if is_of(one, job.job)]
    if not running or not isinstance(spec, JobSpec):
        return []
    slot, number = running[0].status.slot, running[0].status.number
    found = []
    for pattern in spec.outputs:
        path = posixpath.join(f"{CODE_ROOT}/{spec.name}" if job.snapshot else ".", pattern)
        for row in await list_rows([path], link):
            name = row.path.decode(errors="surrogateescape")
            remote = posixpath.join(posixpath.dirname(path), name)
            place: dict[str, Any] = {"slot": slot, "attempt": number, "host": label}
            found.append(OutputFile(**place, path=name, bytes=row.size, link=link, remote=remote))
    return found


def is_of(attempt: RunningAttempt, job: str) -> bool:
    return attempt.status.slot.rpartition("-")[0] == job


async def list_rows(paths: Sequence[str], link: Link) -> list[ManifestRow]:
    """Return the files of these paths and patterns on a host, without their contents."""
    loop = asyncio.get_running_loop()
    verb = RpcRequest(name="give", arguments={"paths": list(paths)})
    async with link.open_stream(verb) as stream:

        def read_piece() -> bytes:
            return asyncio.run_coroutine_threadsafe(next_piece(stream), loop).result()

        try:
            _, rows = await asyncio.to_thread(
                lambda: read_rows(ContentReader(decode_blocks(read_blocks(read_piece))))
            )
        except BrokenStream:
            await raise_refusal(stream)
            return []
        return [one for one in check_rows(rows) if not one.is_folder]


async def raise_refusal(stream: Stream) -> None:
    """Raise what the host says; that it has no such file is no error."""
    try:
        await stream.reply()
    except NotFound:
        return


def select_outputs(files: Sequence[OutputFile], path: str) -> list[OutputFile]:
    """Return the files of a path or pattern, as they are listed or as the command wrote them."""
    wanted = posixpath.normpath(path) if path else ""
    return [
        one
        for one in files
        if wanted in ("", ".")
        or any(
            name == wanted or name.startswith(f"{wanted}/") or fnmatchcase(name, wanted)
            for name in (one.name, one.path)
        )
    ]


async def copy_outputs(files: Sequence[OutputFile], into: Path) -> dict[str, str]:
    """Copy them into a folder, without the levels that are the same for all; return a sentence for
    each that could not be copied, by its name."""
    same = [len({one.levels[level] for one in files}) == 1 for level in range(3)]
    failed: dict[str, str] = {}
    hosts: defaultdict[tuple[Path, int], list[OutputFile]] = defaultdict(list)
    for one in files:
        levels = [name for name, alike in zip(one.levels, same, strict=True) if not alike]
        target = into.joinpath(*levels, one.path)
        try:
            check_inside(target.parent, into)
            if one.file is not None:
                await asyncio.to_thread(copy_file, one.file, target)
            elif one.link is not None:
                hosts[target.parent, id(one.link)].append(one)
        except OSError as error:
            failed[one.name] = error.strerror or str(error)
    for (folder, _), those in hosts.items():
        link = those[0].link
        assert link is not None
        try:
            paths = [one.remote for one in those]
            found = await collect_paths(paths, link, folder.parent, folder.name)
            came = set(found.came)
            gone = [one for one in those if posixpath.basename(one.path) not in came]
            failed |= {one.name: "it is no longer on its host" for one in gone}
        except (HerdError, OSError) as error:
            failed |= dict.fromkeys((one.name for one in those), str(error))
    return failed


def check_inside(folder: Path, into: Path) -> None:
    """Refuse to write through a link that an earlier copy left there."""
    into.mkdir(parents=True, exist_ok=True)
    if not folder.resolve().is_relative_to(into.resolve()):
        raise InvalidInput(f"{folder} leads out of {into}: it is a link, or below one")


def copy_file(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():
        target.unlink()
    shutil.copy2(file, target, follow_symlinks=False)


async def print_place(job: str, by: str, console: Console) -> None:
    """Say where a job's outputs are on this machine, if it has any."""
    folder = outputs_folder(console)
    slots = {one.slot for one in find_here(folder, job)}
    if slots:
        place = folder / (slots.pop() if len(slots) == 1 else f"{job}-*")
        say = f"{by}: outputs are in {place}; `herd outputs {job}` lists them"
        await console.print_notice(say)


def outputs_folder(console: Console) -> Path:
    scope = project_access.resolve_scope(console.environ, world=console.said.world)
    return scope.store_folder / "outputs"


def file_row(one: OutputFile) -> Mapping[str, object]:
    return {
        "name": one.name,
        "slot": one.slot,
        "attempt": one.attempt,
        "host": one.host,
        "path": one.path,
        "bytes": one.bytes,
        "file": None if one.file is None else str(one.file),
    }
