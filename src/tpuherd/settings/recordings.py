"""Which project's traffic is recorded, and the file to which every process appends.

A flag in the settings folder tells the engine, the daemon and commands. A record starts with a
newline, so that one torn by a crash or a full disk spoils only itself.
"""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuherd._version import __version__
from tpuherd.errors import InvalidInput, NotFound, OperationFailed
from tpuherd.files import atomic_write, file_lock
from tpuherd.settings.project_access import ProjectScope, read_world_facts
from tpuherd.transcripts.placeholders import Placeholders

FOLDER = "recordings"
FORMAT = 1  #: of transcripts; docs/reference/transcripts.md
#: A transcript has two parts of at most this size; the older one is dropped.
PART_BYTES_MAX = 32 << 20
OLD, NEW = ".old", ".new"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """One recording, as its flag describes it."""

    file: Path
    key: str  #: of the placeholders, in hexadecimal; never in the transcript
    start: float
    until: float  #: it ends by itself then
    header: Mapping[str, Any]  #: the first line of the transcript

    @property
    def placeholders(self) -> Placeholders:
        return Placeholders(key=bytes.fromhex(self.key), start=self.start)

    @property
    def old_part(self) -> Path:
        """The file of its older half, once there is one."""
        return self.file.with_name(self.file.name + OLD)


def recording_flag(place: ProjectScope) -> Path:
    """Return the flag that a project's traffic is recorded."""
    return place.folders.config / FOLDER / f"{place.logs_folder.name}.json"


def load_recording(flag: Path) -> Recording | None:
    """Return the recording of a flag; None if there is none, or the flag is damaged."""
    try:
        found = json.loads(flag.read_bytes())
        return Recording(
            file=Path(found["file"]),
            key=bytes.fromhex(found["key"]).hex(),
            start=float(found["start"]),
            until=float(found["until"]),
            header=dict(found["header"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def start_recording(
    flag: Path, file: Path, *, cloud: Mapping[str, Any], now: float, seconds: float
) -> Recording:
    """Create the transcript and set the flag; `cloud` says in the header what is recorded."""
    current = load_recording(flag)
    if current is not None and current.until > now:
        raise InvalidInput(
            f"this project is being recorded to {current.file}", hint="herd record stop ends it"
        )
    if current is not None:
        stop_recording(flag)
    header = {
        "kind": "transcript",
        "format": FORMAT,
        "herd": __version__,
        **cloud,
    }
    recording = Recording(
        file=file, key=secrets.token_hex(16), start=now, until=now + seconds, header=header
    )
    try:
        for folder in (flag.parent.parent, flag.parent):  # the first is that of our keys
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_transcript(file, header)
        write_flag(flag, recording)
    except FileExistsError as error:
        raise InvalidInput(f"{file} exists", hint="name another file, or move it away") from error
    except OSError as error:
        raise OperationFailed(
            f"{error.filename or file} can't be written ({error.strerror})"
        ) from error
    return recording


def write_flag(flag: Path, recording: Recording) -> None:
    """Set the flag; without it the new transcript is removed, so that it can be started again."""
    content = {
        "file": str(recording.file),
        "key": recording.key,
        "start": recording.start,
        "until": recording.until,
        "header": recording.header,
    }
    try:
        atomic_write(flag, json.dumps(content))
    except OSError:
        recording.file.unlink(missing_ok=True)
        raise


def describe_cloud(world: Path | None) -> Mapping[str, Any]:
    """Return what the header of a transcript says about a running cloud."""
    if world is None:
        return {"cloud": "google"}
    return {"cloud": "world", "time_scale": read_world_facts(world).get("time_scale", 1.0)}


def create_transcript(file: Path, header: Mapping[str, Any]) -> None:
    """Create the file with its first line; only its owner can read it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(file, flags, 0o600), "wb") as stream:
        stream.write(record_bytes(header))


def record_bytes(line: Mapping[str, Any]) -> bytes:
    return b"\n" + json.dumps(line, separators=(",", ":")).encode()


def append_record(recording: Recording, flag: Path, line: Mapping[str, Any]) -> int | None:
    """Append one line; return which file it went to, by its inode, or None if it could not be
    written. A missing file is not created again: its owner took it away.
    """
    try:
        descriptor = os.open(recording.file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            content = record_bytes(line)
            facts = os.fstat(descriptor)
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
        if facts.st_size + len(content) > PART_BYTES_MAX:
            rotate_transcript(recording, flag)
    except OSError:
        return None
    return facts.st_ino


def rotate_transcript(recording: Recording, flag: Path) -> None:
    """Make the file the older half and begin a new one, unless another process just did.

    The new one has its header before anyone can append to it.
    """
    with file_lock(flag.with_suffix(".lock")):
        if recording.file.stat().st_size <= PART_BYTES_MAX:
            return
        draft = recording.file.with_name(recording.file.name + NEW)
        draft.unlink(missing_ok=True)
        create_transcript(draft, recording.header)
        recording.file.replace(recording.old_part)
        draft.replace(recording.file)


def stop_recording(flag: Path) -> Recording:
    """Remove the flag and make one file of both halves; return the recording that ended."""
    recording = load_recording(flag)
    if recording is None:
        raise NotFound("nothing is being recorded", hint="herd record start begins")
    flag.unlink(missing_ok=True)
    try:
        join_parts(recording, flag)
    except OSError as error:
        raise OperationFailed(
            f"the recording has ended, but {recording.old_part} could not be joined with"
            f" {recording.file} ({error.strerror})",
            hint="send both files",
        ) from error
    return recording


def join_parts(recording: Recording, flag: Path) -> None:
    with file_lock(flag.with_suffix(".lock")):
        if recording.old_part.exists():
            old = recording.old_part.read_bytes()
            atomic_write(recording.file, old + recording.file.read_bytes())
            recording.old_part.unlink()
