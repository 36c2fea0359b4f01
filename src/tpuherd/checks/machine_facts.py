"""Reads what this machine shows: folders, files, sockets, programs."""

import asyncio
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import loads
from pathlib import Path
from typing import Any

from tpuherd._version import __version__
from tpuherd.clock import Clock
from tpuherd.settings.folders import LocalFolders, resolve_folders

LAUNCHER = "tpuherd.launcher"  #: started by name, never imported
ANY_HOST = "herd-check"  #: a name for which ssh reads its whole configuration
SAID_MAX = 65_536  #: bytes of what a program prints


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """This machine, as the user of a command has it."""

    environ: Mapping[str, str]
    world: Path | None  #: the world chosen by --world
    clock: Clock

    @property
    def folders(self) -> LocalFolders:
        return resolve_folders(self.environ)

    @property
    def ssh_config(self) -> Path:
        return Path(self.environ.get("HOME") or Path.home()) / ".ssh" / "config"


@dataclass(frozen=True, kw_only=True, slots=True)
class PathFacts:
    """A file or folder."""

    path: Path
    exists: bool
    mode: int = 0  #: its permission bits
    mine: bool = True  #: whether it belongs to this user
    writable: bool = True  #: it, or the nearest folder above it that exists


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskFacts:
    """A file system, as far as this user may fill it."""

    path: Path
    free: int  #: bytes
    inodes: int | None  #: None: it does not count them


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramRun:
    """What a program printed, and how it ended."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionFacts:
    herd: str
    python: str
    system: str


def read_versions() -> VersionFacts:
    return VersionFacts(
        herd=__version__, python=platform.python_version(), system=platform.system()
    )


def read_path(path: Path) -> PathFacts:
    """What can't even be looked at can't be written either."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return PathFacts(path=path, exists=False, writable=is_writable(nearest_existing(path)))
    except OSError:
        return PathFacts(path=path, exists=False, writable=False)
    return PathFacts(
        path=path,
        exists=True,
        mode=stat.S_IMODE(seen.st_mode),
        mine=seen.st_uid == os.getuid(),
        writable=is_writable(path),
    )


def nearest_existing(path: Path) -> Path:
    return next((one for one in (path, *path.parents) if is_there(one)), Path("/"))


def is_there(path: Path) -> bool:
    """Whether it exists and can be looked at."""
    try:
        return path.exists()
    except OSError:
        return False


def is_writable(path: Path) -> bool:
    wanted = os.W_OK | os.X_OK if path.is_dir() else os.W_OK
    return os.access(path, wanted)


def read_disk(path: Path) -> DiskFacts:
    """Read the file system on which this path is, or would be."""
    here = nearest_existing(path)
    seen = os.statvfs(here)
    return DiskFacts(
        path=here,
        free=seen.f_bavail * seen.f_frsize,
        inodes=seen.f_favail if seen.f_files else None,
    )


def list_dead_sockets(folder: Path) -> list[Path]:
    """Return the sockets in a folder on which nobody listens."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    return [one for one in found if one.is_socket() and is_refused(one)]


def is_refused(path: Path) -> bool:
    """Whether a connection to this socket is refused, because its process is dead."""
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.setblocking(False)
        try:
            knocking.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # it is busy, or its path is too long to be called so
    return False


async def run_program(words: Sequence[str], environ: Mapping[str, str]) -> ProgramRun:
    """Run a program to its end, without input; it is killed if we are cancelled.

    In a thread: what asyncio starts is left without an end if it is cancelled while it starts.
    """
    run = CancellableRun(words, environ)
    try:
        return await asyncio.to_thread(run.wait_for_end)
    except asyncio.CancelledError:
        run.cancel()
        raise


class CancellableRun:
    """A program that one thread runs and another may kill."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        self._words, self._environ = words, environ
        self._started: list[subprocess.Popen[bytes]] = []
        self._cancelled = False

    def wait_for_end(self) -> ProgramRun:
        pipe = subprocess.PIPE
        with subprocess.Popen(
            self._words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=self._environ
        ) as process:
            self._started.append(process)
            if self._cancelled:
                process.kill()
            said = process.communicate()
        out, err = (one[:SAID_MAX].decode("utf-8", "replace").strip() for one in said)
        return ProgramRun(status=process.returncode, out=out, err=err)

    def cancel(self) -> None:
        """Kill the program, or have it killed as soon as it has started."""
        self._cancelled = True
        for process in self._started:
            process.kill()


async def ask_daemon(environ: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return what `herd engine daemon status --json` prints; None if no daemon runs."""
    words = (sys.executable, "-P", "-m", LAUNCHER, "engine", "daemon", "status", "--json")
    done = await run_program(words, environ)
    if done.status != 0:
        return None
    content = loads(done.out)
    return content if isinstance(content, dict) else None


async def stop_daemon(environ: Mapping[str, str]) -> bool:
    """Stop the daemon unless a command runs in it; whether it stopped."""
    done = await run_program(
        (sys.executable, "-P", "-m", LAUNCHER, "engine", "daemon", "stop"), environ
    )
    return done.status == 0


def find_ssh(environ: Mapping[str, str]) -> str | None:
    return shutil.which("ssh", path=environ.get("PATH"))
