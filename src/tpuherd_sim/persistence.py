"""Stores a world on disk: a snapshot, and a journal of the requests since."""

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tpuherd_sim import state_dir as folders
from tpuherd_sim.handle import handle_request
from tpuherd_sim.model import world_codec
from tpuherd_sim.model.http_types import Json, Request
from tpuherd_sim.model.world import World
from tpuherd_sim.state_dir import FORMAT, WorldError, check_format

#: A shorter journal never needs a new snapshot; it is read in about a second.
JOURNAL_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoveredWorld:
    """What was found in a folder at the start."""

    nodes: int
    requests: int  #: queued resources
    entries: int  #: of the journal: requests since the last snapshot
    torn: bool  #: the last line was incomplete, so its request was never answered

    @property
    def sentence(self) -> str:
        """Return a description for the user after a world was killed."""
        return (
            f"recovered {format_count(self.nodes, 'node')}, "
            f"{format_count(self.requests, 'queued resource')} and "
            f"{format_count(self.entries, 'journal entry', 'journal entries')}"
            + ("; dropped the last entry, which was incomplete" if self.torn else "")
        )


def format_count(number: int, noun: str, nouns: str | None = None) -> str:
    """Return text such as 1 node, 2 nodes."""
    return f"{number} {noun}" if number == 1 else f"{number} {nouns or noun + 's'}"


class WorldStore:
    """Holds the journal open. Call `load`, then `save`, then `write`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world: World | None = None
        self.generation = 0  #: of the snapshot and of the journal that follows it
        self._journal = -1
        self._size = 0
        self._snapshot_size = 0

    def load(self) -> RecoveredWorld | None:
        """Load the stored world into `world`; return None if the folder has none."""
        file = self.folder / "snapshot.json"
        try:
            text = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise WorldError(f"Can't read {file} ({error.strerror})") from error
        try:
            found = json.loads(text)
            check_format(file, found)
            self.generation = int(found["generation"])
            world = world_codec.load_world(found["world"])
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            raise WorldError(
                f"{file} is damaged ({error}); remove {self.folder} to start a new world"
            ) from error
        entries, torn = 0, False
        for entry in read_journal(self._journal_file()):
            if entry is None:
                torn = True
            else:
                handle_request(world, *entry)
                entries += 1
        self.world, self._snapshot_size = world, len(text)
        return RecoveredWorld(
            nodes=len(world.nodes), requests=len(world.requests), entries=entries, torn=torn
        )

    def save(self, world: World) -> None:
        """Write a snapshot and start a new journal. An interruption at any point loses nothing."""
        content = {
            "format": FORMAT,
            "generation": self.generation + 1,
            "world": world_codec.dump_world(world),
        }
        text = json.dumps(content, separators=(",", ":")).encode()
        folders.write_atomically(self.folder / "snapshot.json", text)
        self.close()
        self.generation += 1
        self.world = world
        self._size, self._snapshot_size = 0, len(text)
        for old in self.folder.glob("journal-*.jsonl"):
            if old != self._journal_file():
                old.unlink(missing_ok=True)

    def write(self, at: float, request: Request) -> None:
        """Record a request before it takes effect; raise OSError on a full disk and
        leave no trace.
        """
        if self._size > max(JOURNAL_BYTES, 2 * self._snapshot_size) and self.world is not None:
            try:
                self.save(self.world)
            except OSError:
                pass  # the old snapshot and the longer journal are equivalent
        if self._journal < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._journal = os.open(self._journal_file(), flags, 0o600)
        line = encode_entry(at, request)
        try:
            written = 0
            while written < len(line):
                written += os.write(self._journal, line[written:])
        except OSError:
            os.ftruncate(self._journal, self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1

    def _journal_file(self) -> Path:
        return self.folder / f"journal-{self.generation}.jsonl"


def read_journal(file: Path) -> Iterator[tuple[Request, float] | None]:
    """Yield the entries of a journal; None stands for an incomplete last one."""
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise WorldError(f"Can't read {file} ({error.strerror})") from error
    # Complete entries end with a newline, so the part after the last newline is incomplete.
    for number, line in enumerate(lines[:-1], 1):
        try:
            yield decode_entry(json.loads(line))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise WorldError(
                f"{file} is damaged in line {number} ({error}); "
                "delete that line and everything after it to continue without them"
            ) from error
    if lines[-1]:
        yield None


def encode_entry(at: float, request: Request) -> bytes:
    entry: Json = {
        "at": at,
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "headers": dict(request.headers),
    }
    try:
        entry["body"] = request.body.decode()
    except UnicodeDecodeError:
        entry["body64"] = base64.b64encode(request.body).decode()
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def decode_entry(entry: Json) -> tuple[Request, float]:
    body = base64.b64decode(entry["body64"]) if "body64" in entry else entry["body"].encode()
    return Request(
        method=entry["method"],
        path=entry["path"],
        query=entry["query"],
        headers=entry["headers"],
        body=body,
    ), float(entry["at"])
