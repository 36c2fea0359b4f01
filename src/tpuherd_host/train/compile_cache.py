"""Shares what JAX compiled: a new node, run or trial of the same program need not compile again.

Programs lie in `programs/` in the job's checkpoint location, above the folders of its runs.
"""

import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tpuherd_host.train import process_env
from tpuherd_host.train.lazy_import import LazyModule, jax
from tpuherd_host.train.storage import FileFacts, Folder, Place

BEGINNING = "programs/"
FOLDER = "~/.cache/tpuherd/jax"  #: where JAX keeps them on a host
END = "-cache"  #: of JAX's files; the others show when one was used
MENDED = ".herd-mended"  #: its mtime is the time of the last check
ROOM = 1 << 30  #: bytes of programs that are kept; the oldest are removed
PAUSE_S = 60.0  #: after a failure
CLOSE_S = 10.0
AT_ONCE = 8
cache = LazyModule("jax._src.compilation_cache", "jax")


class ProgramCache:
    """Holds the thread that exchanges programs with the shared location."""

    def __init__(self, place: Place, folder: Path | None, room: int = ROOM) -> None:
        self.place = place
        self.folder = folder  #: JAX's own, on this host
        self.room = room
        self.known: set[str] = set()  #: programs that are or were in the shared location
        self.halves: dict[str, int] = {}  #: sizes of programs that JAX has not written completely
        self.paused_until = 0.0
        self.busy: threading.Thread | None = None

    def fetch(self) -> None:
        """Fetch what others compiled. What cannot be fetched is compiled here."""
        if self.folder is None:
            return
        try:
            if self.folder.is_dir():
                remove_damaged(self.folder)
            self._fetch_missing(self.place.file_facts(BEGINNING))
        except OSError:
            return

    def share_new(self) -> None:
        """Hand on, in a thread, what was compiled here since. Cheap if there is nothing."""
        working = self.busy is not None and self.busy.is_alive()
        if working or process_env.monotonic_time() < self.paused_until or not self._new_files():
            return
        self.busy = threading.Thread(target=self._exchange, name="programs", daemon=True)
        self.busy.start()

    def close(self) -> None:
        """Hand on the last ones, within a few seconds."""
        self.share_new()
        if self.busy is not None:
            self.busy.join(CLOSE_S)

    def _new_files(self) -> list[Path]:
        if self.folder is None or not self.folder.is_dir():
            return []
        return [
            file
            for file in sorted(self.folder.glob(f"*{END}"))
            if file.name not in self.known and file.stat().st_size != self.halves.get(file.name)
        ]

    def _exchange(self) -> None:
        try:
            facts = self.place.file_facts(BEGINNING)
            self._fetch_missing(facts)
            for file in self._new_files():
                content = file.read_bytes()
                if not is_whole(content):
                    self.halves[file.name] = len(content)
                    continue
                self.place.write(BEGINNING + file.name, [content])
                self.known.add(file.name)
            for name in outdated_files(self.place.file_facts(BEGINNING), self.room):
                self.place.remove(name)
        except OSError:
            self.paused_until = process_env.monotonic_time() + PAUSE_S

    def _fetch_missing(self, facts: Mapping[str, FileFacts]) -> None:
        assert self.folder is not None
        fetch_programs(self.place, self.folder, facts, self.room)
        self.known |= program_names(facts)


def program_names(facts: Mapping[str, FileFacts]) -> set[str]:
    """Return the programs among these files: names without a folder."""
    found = {name.removeprefix(BEGINNING) for name in facts}
    return {
        name
        for name in found
        if name.endswith(END) and name[0] not in "./" and "/" not in name and len(name) < 200
    }


def fetch_programs(place: Place, folder: Path, facts: Mapping[str, FileFacts], room: int) -> int:
    """Fetch the newest programs that fit and that a folder lacks; return how many."""
    facts = {name: facts[name] for name in facts.keys() - outdated_files(facts, room)}
    here = Folder(str(folder))

    def fetch_one(name: str) -> int:
        try:
            here.write(name, [place.read(BEGINNING + name)])
        except FileNotFoundError:
            return 0  # another run removed it to make room
        return 1

    missing = sorted(name for name in program_names(facts) if not (folder / name).exists())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(fetch_one, missing))


def outdated_files(facts: Mapping[str, FileFacts], room: int) -> list[str]:
    """Return the oldest files whose removal makes the others fit into this many bytes."""
    found, left = [], sum(one.size for one in facts.values())
    for name, one in sorted(facts.items(), key=lambda item: (item[1].changed, item[0])):
        if left <= room:
            break
        found.append(name)
        left -= one.size
    return found


def cache_folder() -> Path | None:
    """Return JAX's cache folder; None if it has none, keeps it elsewhere, or is not in use."""
    if "jax" not in sys.modules:
        return None
    configured = str(jax.config.jax_compilation_cache_dir or "")
    return Path(configured) if configured and "://" not in configured else None


def is_whole(content: bytes) -> bool:
    """Whether a cached program is complete: JAX writes in place, so a crash leaves a part."""
    try:
        cache.decompress_executable(content)
    except AttributeError:
        return True  # a version of JAX with another format
    except Exception:  # noqa: BLE001  # each compression has its own exception
        return False
    return True


def remove_damaged(folder: Path) -> None:
    """Remove incomplete programs: JAX would neither use nor replace them."""
    stamp = folder / MENDED
    since = stamp.stat().st_mtime if stamp.exists() else 0.0
    for file in folder.glob(f"*{END}"):
        if file.stat().st_mtime >= since and not is_whole(file.read_bytes()):
            file.unlink(missing_ok=True)
    stamp.touch()
