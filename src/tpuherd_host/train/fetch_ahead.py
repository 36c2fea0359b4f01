"""Fetches a run's newest checkpoint and its compiled programs to this host's disk.

The agent runs `python3 -m tpuherd_host.train.fetch_ahead FOLDER` with the variables of the attempt
while the host is set up, so it may stop at any moment: a file has its name only when all of it is
there, and whoever reads it compares it. It prints a JSON object about what it did.
"""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tpuherd_host.train import process_env
from tpuherd_host.train.checkpoint_commit import (
    NAME,
    Commit,
    DamagedCheckpoint,
    parse_commit,
    read_whole,
    split_steps,
    step_folder,
)
from tpuherd_host.train.checkpoints import OWN
from tpuherd_host.train.compile_cache import (
    BEGINNING,
    FOLDER,
    MENDED,
    ROOM,
    fetch_programs,
)
from tpuherd_host.train.fetched_copy import COPIES, copy_folder
from tpuherd_host.train.storage import Place, above_run, of_run, place

COPY_BYTES_MAX = 16 << 30
SHARE_OF_FREE = 4  #: at most a quarter of the disk's free room
PIECE = 32 << 20
AT_ONCE = 8
NICENESS = 10
LOCK = f"{COPIES}.lock"


def main(agent_folder: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """Fetch both; return the checkpoint's step and bytes, the number of programs, and a trouble."""
    found: dict[str, Any] = {"step": None, "bytes": 0, "programs": 0, "trouble": ""}
    run = environ.get("HERD_RUN_ID", "run")
    whole = environ.get("HERD_CHECKPOINT", "")
    with (agent_folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return found  # another fetch is under way
        try:
            location = of_run(whole, run)
            room = min(ROOM, free_room(agent_folder))
            shared = place(above_run(location, run))
            found["programs"] = fetch_missing_programs(shared, environ, room)
            process = int(environ.get("HERD_WORKER", "0"))
            found.update(fetch_checkpoint(place(location), agent_folder, process))
        except FileNotFoundError:
            pass  # a newer checkpoint replaced it, or the attempt has loaded it already
        except (OSError, DamagedCheckpoint) as error:
            found["trouble"] = str(error)
    return found


def fetch_missing_programs(shared: Place, environ: Mapping[str, str], room: int) -> int:
    """Fetch the newest programs that others compiled; return how many."""
    folder = Path(environ.get("JAX_COMPILATION_CACHE_DIR") or FOLDER).expanduser()
    is_new = not folder.exists()
    fetched = fetch_programs(shared, folder, shared.file_facts(BEGINNING), room)
    if is_new and fetched:
        (folder / MENDED).touch()  # none of them was written by a JAX that crashed
    return fetched


def fetch_checkpoint(run_place: Place, agent_folder: Path, process: int) -> dict[str, int]:
    """Fetch what this process will need of the newest complete checkpoint."""
    steps, _ = split_steps(run_place.names("step-"))
    copies = agent_folder / COPIES
    if not steps:
        shutil.rmtree(copies, ignore_errors=True)
        return {}
    text = read_whole(run_place, max(steps))
    commit = parse_commit(text)
    parts = choose_parts(commit, process, free_room(agent_folder))
    folder = copy_folder(agent_folder, run_place.location)
    whole = folder / step_folder(commit.step) / NAME
    if not whole.exists() or whole.read_bytes() != text:
        shutil.rmtree(copies, ignore_errors=True)  # one copy at a time
        if not parts:
            return {}
        whole.parent.mkdir(parents=True, mode=0o700)
        whole.write_bytes(text)
    for name, size in parts.items():
        if not (folder / name).exists():
            copy_file(run_place, name, size, folder / name)
    return {"step": commit.step, "bytes": sum(parts.values())} if parts else {}


def choose_parts(commit: Commit, process: int, room: int) -> dict[str, int]:
    """Return the parts that a process needs on a pod of the same shape, with their sizes: its own,
    and the first one's, which has what all processes hold. Only what fits."""
    folder, chosen = step_folder(commit.step), {}
    for number in dict.fromkeys((process, 0)):
        names = f"{folder}part-{number}", f"{folder}part-{number}-{commit.launched}"
        name = next((one for one in names if one in commit.parts), names[0])
        size = commit.parts.get(name) if commit.form == OWN else None
        if isinstance(size, int) and 0 < size <= room:
            chosen[name] = size
            room -= size
    return chosen


def free_room(folder: Path) -> int:
    return min(COPY_BYTES_MAX, shutil.disk_usage(folder).free // SHARE_OF_FREE)


def copy_file(source: Place, name: str, size: int, target: Path) -> None:
    """Copy a file in pieces, several at once. If its folder is removed meanwhile, end there."""
    half = target.with_name(f".{target.name}")
    file = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def copy_piece(first: int) -> None:
        length = min(PIECE, size - first)
        content = source.read(name, first, length)
        if len(content) != length:
            raise DamagedCheckpoint(f"{name} has another size than {NAME} says")
        if not target.parent.exists():
            raise FileNotFoundError(f"the copy of {name} is not wanted any more")
        os.pwrite(file, content, first)

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(copy_piece, range(0, size, PIECE)))
        half.replace(target)
    except (OSError, DamagedCheckpoint):
        half.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


if __name__ == "__main__":
    os.nice(NICENESS)
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), process_env.process_environment())))
