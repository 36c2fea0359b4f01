"""The folder of a world: its location, description and lock."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

FORMAT = 1  #: of everything in the folder; incremented when older worlds can't be read


class WorldError(Exception):
    """A request that the world can't fulfil: one sentence with what to do next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldInfo:
    """The content of world.json: all that a client needs to find the world."""

    format: int
    version: str  #: of tpuherd
    url: str
    port: int
    ssh_port: int
    tunnel_port: int  #: the proxy that stands in for *.googleapis.com over TLS
    network: int  #: external addresses of hosts are 127.<network>.y.z
    project: str
    project_number: int
    hosts: str  #: none, processes, namespaces-user or namespaces-root
    missing: tuple[str, ...]  #: features that this machine lacks, a sentence each
    started: float
    pid: int | None  #: None if the world was stopped properly
    time_scale: float = 1.0  #: how much faster its cloud's lifecycle is


def default_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the default world."""
    state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or "~") / ".local/state")
    return Path(state).expanduser() / "tpuherd" / "world"


def prepare_folder(folder: Path) -> None:
    """Create the folder with private permissions; refuse one that has other files."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        strange = not (folder / "lock").exists() and any(folder.iterdir())
        if strange:
            raise WorldError(
                f"{folder} is not empty and is not the folder of a world; "
                "choose another --state-dir"
            )
        folder.chmod(0o700)
        (folder / "lock").touch(mode=0o600)
    except OSError as error:
        raise WorldError(
            f"Can't create a world in {folder} ({error.strerror}); choose another --state-dir"
        ) from error


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system releases it when this process dies."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise WorldError(f"Can't open {folder}/lock ({error.strerror})") from error
    try:
        _acquire_lock(lock, folder)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
        os.ftruncate(lock, 0)
    finally:
        os.close(lock)


def _acquire_lock(lock: int, folder: Path) -> None:
    """Lock, or report the process that holds the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        pid = _read_pid(lock)
    if pid is not None and _is_alive(pid):
        raise WorldError(
            f"{folder} is in use by the world with pid {pid}; "
            f"stop it with `herd sim stop --state-dir {folder}` or choose another --state-dir"
        )
    fcntl.flock(lock, fcntl.LOCK_EX)  # another process is checking the lock, for a moment


def running_world_pid(folder: Path) -> int | None:
    """Return the pid of the world that runs in this folder."""
    try:
        lock = os.open(folder / "lock", os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_pid(lock)
    finally:
        os.close(lock)
    return None


def wait_until_stopped(folder: Path) -> None:
    """Block until no world runs in this folder."""
    lock = os.open(folder / "lock", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)


def _read_pid(lock: int) -> int | None:
    text = os.pread(lock, 32, 0).decode()
    return int(text) if text.isdigit() else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def write_world_info(folder: Path, facts: WorldInfo) -> None:
    write_atomically(folder / "world.json", json.dumps(asdict(facts), indent=2) + "\n")


def read_world_info(folder: Path) -> WorldInfo | None:
    """Return the last description of the world, or None if there never was one."""
    try:
        found = json.loads((folder / "world.json").read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise WorldError(f"Can't read {folder}/world.json ({error})") from error
    check_format(folder / "world.json", found)
    try:
        known = {
            field.name: found[field.name]
            for field in fields(WorldInfo)
            if field.default is MISSING or field.name in found
        }
    except KeyError as error:
        raise WorldError(f"{folder}/world.json has no {error}") from error
    return WorldInfo(**{**known, "missing": tuple(known["missing"])})


def check_format(file: Path, found: Any) -> None:
    """Refuse a file of another version."""
    there = found.get("format") if isinstance(found, dict) else None
    if there != FORMAT:
        raise WorldError(
            f"{file} was written by another version (format {there}, this one reads {FORMAT}); "
            "start it with the tpuherd that created it, or choose another --state-dir"
        )


def write_atomically(file: Path, text: str | bytes, *, mode: int = 0o600) -> None:
    """Write a file so that readers never see a part of it."""
    content = text.encode() if isinstance(text, str) else text
    half = file.with_name(f".{file.name}.new")
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
        half.replace(file)
    except OSError:
        half.unlink(missing_ok=True)
        raise
