"""The agent's files: one folder for each task, stamps and epochs."""

import json
import os
import stat
import zlib
from contextlib import suppress
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Set

from tpuherd_host.agent.effects.process_supervisor import start_ticks, write_file
from tpuherd_host.agent.state_machine.state import Ending, Stage, Task

FOLDERS = {"command": "commands", "attempt": "attempts", "setup": "setups"}
DISK_MIN = 8 << 20  #: with less free, a new command is kept in memory
RAM = "/dev/shm"
PLAIN, PLAIN_STAGE = Task("", "", (), 0.0), Stage(())  #: with the default values


def ram_folder(root: str) -> str:
    """Return this agent's folder in memory, for commands while the disk is full."""
    return os.path.join(RAM, f"tpuherd-{os.getuid()}-{zlib.crc32(root.encode()):08x}")


def make_private_folder(folder: str) -> bool:
    """Make a folder that only we may read; False if that fails or someone else owns it."""
    try:
        os.mkdir(folder, 0o700)
        return True
    except FileExistsError:
        facts = os.lstat(folder)
        ours = facts.st_uid == os.getuid() and stat.S_ISDIR(facts.st_mode)
        return ours and not facts.st_mode & 0o077
    except OSError:
        return False


def write_json(path: str, content: Any, hard: bool = False) -> None:
    """Write JSON atomically; `hard` waits until it is on the disk."""
    write_file(f"{path}.new", content, hard)
    os.replace(f"{path}.new", path)


def read_json(path: str) -> Any:
    """Return a file's JSON; None if it is missing or broken."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def pack_task(work: Task) -> Dict[str, Any]:
    """Return the task as JSON without default values and without secrets."""
    content = differing_fields(work._replace(feeder=None), PLAIN)
    content["stages"] = [
        differing_fields(stage._replace(env={}), PLAIN_STAGE) for stage in work.stages
    ]
    content["ending"] = differing_fields(work.ending, Ending())
    return content


def differing_fields(noun: Any, plain: Any) -> Dict[str, Any]:
    rows = zip(noun._fields, noun, plain)
    return {name: value for name, value, usual in rows if value != usual}


def unpack_task(content: Mapping[str, Any], env: Any) -> Task:
    """Return a task from JSON of this or an older agent."""
    known = {key: value for key, value in content.items() if key in Task._fields}
    stages = []
    for index, fields in enumerate(known["stages"]):
        stage = Stage(**{key: fields[key] for key in fields if key in Stage._fields})
        secret = env[index] if isinstance(env, list) and index < len(env) else {}
        stages.append(stage._replace(argv=tuple(stage.argv), env=secret))
    known["stages"] = tuple(stages)
    known["ending"] = Ending(**known["ending"])
    known["tail"] = tuple(known.get("tail", ()))
    known["holders"] = tuple(known.get("holders", ()))
    return Task(**known)


class TaskStore:
    def __init__(self, root: str) -> None:
        self.root = root
        self.places: Dict[str, str] = {}  #: folders by task id
        self.unsaved: Dict[str, Task] = {}  #: not recorded because the disk was full
        self.owned: Set[str] = set()  #: parent folders that were checked

    def task_folder(self, work: Task) -> str:
        """Return the task's folder; OSError if both disk and memory are full."""
        if work.id not in self.places:
            for root in (self.root, ram_folder(self.root)):
                folder = os.path.join(root, FOLDERS[work.kind], work.id)
                if has_room(root) and self.make_folder(folder, root):
                    self.places[work.id] = folder
                    break
            else:
                raise OSError("the disk and /dev/shm are full")
        return self.places[work.id]

    def make_folder(self, folder: str, root: str) -> bool:
        """Make an empty folder; False if a folder above it does not belong to us."""
        above = os.path.dirname(folder)
        for _ in range(2):
            if above not in self.owned and make_private_folder(root) and make_private_folder(above):
                self.owned.add(above)
            try:
                if above in self.owned:
                    os.mkdir(folder, 0o700)
                    return True
            except FileExistsError:
                remove_folder(folder)  # of a forgotten task; it could not be removed then
            except OSError:
                self.owned.discard(above)  # it was removed meanwhile
        return False

    def save(self, work: Task, hard: bool) -> bool:
        """Write the task's record; it stays in `unsaved` if the disk is full."""
        folder = self.places.get(work.id)
        if folder is None:
            return True
        try:
            write_json(os.path.join(folder, "status.json"), pack_task(work), hard)
        except OSError:
            self.unsaved[work.id] = work
            return False
        self.unsaved.pop(work.id, None)
        if not work.is_live:  # the next attempt on this host is not to read the secrets of this one
            with suppress(OSError):
                os.unlink(os.path.join(folder, "env.json"))
        return True

    def save_env(self, work: Task) -> None:
        """Write the stages' variables to a file that only its owner may read."""
        if work.kind != "command":
            path = os.path.join(self.task_folder(work), "env.json")
            write_json(path, [dict(stage.env) for stage in work.stages])

    def remove(self, work: Task) -> None:
        self.unsaved.pop(work.id, None)
        folder = self.places.pop(work.id, None)
        if folder is not None:
            remove_folder(folder)

    def load(self) -> List[Task]:
        """Load the tasks that earlier agents left."""
        found = []
        for root in (self.root, ram_folder(self.root)):
            for kind in FOLDERS.values():
                above = os.path.join(root, kind)
                for name in (
                    sorted(os.listdir(above))
                    if os.path.isdir(above) and make_private_folder(above)
                    else ()
                ):
                    work = self.load_task(os.path.join(above, name))
                    if work is not None:
                        found.append(work)
        return found

    def load_task(self, folder: str) -> Optional[Task]:
        """Load one task; None if it is unreadable."""
        content = read_json(os.path.join(folder, "status.json"))
        try:
            work = unpack_task(content, read_json(os.path.join(folder, "env.json")))
        except (TypeError, KeyError, AttributeError):
            remove_folder(folder)
            return None
        self.places[work.id] = folder
        born = read_json(os.path.join(folder, "pid"))
        if work.is_live and isinstance(born, list) and work.phase == "starting":
            work = work._replace(pid=born[0], ticks=born[1], phase="running")
        if work.is_live and work.started is None and work.pid:
            work = work._replace(started=work.asked)
        return work

    def recorded_ending(self, work: Task) -> Optional[Dict[str, Any]]:
        """Return how the supervisor recorded the end; None if it did not."""
        record = read_json(os.path.join(self.places[work.id], "exit"))
        if isinstance(record, dict) and record.get("pid") == work.pid:
            return record
        return None

    def list_stamps(self) -> FrozenSet[str]:
        """Return the setup steps that succeeded on this host."""
        folder = os.path.join(self.root, "stamps")
        return frozenset(os.listdir(folder)) if make_private_folder(folder) else frozenset()

    def save_stamp(self, stamp: str, name: str) -> None:
        folder = os.path.join(self.root, "stamps")
        if make_private_folder(folder):
            write_json(os.path.join(folder, stamp), {"name": name}, hard=True)

    def load_epochs(self) -> Dict[str, int]:
        """Return the highest epoch of each owner."""
        epochs = read_json(os.path.join(self.root, "epochs.json"))
        return epochs if isinstance(epochs, dict) else {}

    def save_epochs(self, epochs: Mapping[str, int]) -> None:
        write_json(os.path.join(self.root, "epochs.json"), dict(epochs), hard=True)


def parse_ending(record: Mapping[str, Any]) -> Ending:
    return Ending(exit=record["exit"], signal=record["signal"], rusage=record["rusage"])


def remove_folder(folder: str) -> None:
    """Remove a folder and its files; it has no subfolders."""
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except OSError:
        pass  # another program changed the folder


def has_room(root: str) -> bool:
    try:
        facts = os.statvfs(root if os.path.isdir(root) else os.path.dirname(root))
    except OSError:
        return False
    return facts.f_bavail * facts.f_frsize > DISK_MIN and (not facts.f_files or facts.f_favail > 16)


def is_same_process(work: Task) -> bool:
    """Whether the task's process still runs."""
    return bool(work.pid) and start_ticks(work.pid) == work.ticks
