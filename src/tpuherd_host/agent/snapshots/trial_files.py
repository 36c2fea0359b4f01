"""The folder of a node's trials: each finds the code and what the setup made, and its own files.

All trials of a node run at the same path, one after another, so that whatever setup wrote that
path into (a venv, `pip install -e .`, a configuration) leads to the files of the trial that runs;
so do commands in the folder, and `outputs`. What the setup made is kept as the base
(trial_base.py), the code is in the store of snapshots. Before another trial begins, what the last
one wrote or changed in ~/herd/lr goes to ~/herd/lr.trials/TRIAL, or is removed if its outputs are
safe, and the version of before comes back, as a copy that shares nothing. What is as it was is not
touched: a folder that a trial left as it found it serves the next.
"""

import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from tpuherd_host.agent.snapshots.manifest import ManifestRow
from tpuherd_host.agent.snapshots.rpc_snapshots import agent_folders, errors_as_refusals
from tpuherd_host.agent.snapshots.safe_tree import join_path, open_tree
from tpuherd_host.agent.snapshots.tree import (
    CACHE,
    is_row_intact,
    needed_folders,
    walk_folders,
    write_row,
)
from tpuherd_host.agent.snapshots.tree_layout import (
    Destination,
    find_destination,
    known_rows,
    lock_destination,
    open_blobs,
)
from tpuherd_host.agent.snapshots.trial_base import (
    base_folder,
    copy_entry,
    file_clock_ns,
    is_changed,
    list_base,
    make_base,
    remove_base,
)
from tpuherd_host.agent.state_machine.state import ATTEMPT
from tpuherd_host.agent.state_machine.transition import CallRefused
from tpuherd_host.agent.threaded_rpc import ThreadedCall

NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*)?")
RECORD = "trial.json"


class TrialRecord(NamedTuple):
    """Whose files are in the folder."""

    trial: str = ""
    since_ns: int = 0  #: by the clock of the file system: later changes are the trial's
    before: Tuple[str, ...] = ()  #: what the setup made, as an agent of before recorded it


def begin_trial(call: ThreadedCall) -> Mapping[str, Any]:
    """Prepare the folder for this trial; it may be repeated. No trial: as the setup left it."""
    agent_folder, home = agent_folders(call)
    trial, slot = str(call.content.get("trial", "")), call.content.get("slot")
    if not NAME.fullmatch(trial):
        raise CallRefused("unfit", "the trial's name must consist of letters, digits and dashes")
    with errors_as_refusals("cannot prepare the folder for a trial"):
        spot = find_destination(agent_folder, home, str(call.content["dest"]), force=True)
        if not spot.dest.is_dir():
            remove_base(spot)
            return {"moved": 0}
        with lock_destination(spot):
            record = load_record(spot)
            last = record.trial
            if last == trial:
                bring_back(spot, trial)  # an earlier call may not have come to its end
                return {"moved": 0}
            works = call.paths.state().works.values()
            if any(w.kind == ATTEMPT and w.is_live and w.slot == slot for w in works):
                raise CallRefused("busy", f"an attempt of {slot} still runs in {spot.dest}")
            rows = known_rows(agent_folder, spot.current)
            safe = bool(last) and call.content.get("safe") == last
            moved = restore_folder(agent_folder, spot, record, rows, safe) if last else 0
            if trial and not (last and base_folder(spot).is_dir()):
                provide_base(call, spot, rows, record)
            save_record(spot, trial)
            if not trial:
                remove_base(spot)
            bring_back(spot, trial)
    return {"moved": 0 if safe else moved, "trial": last, "folder": str(trial_folder(spot, last))}


def keep_setup(call: ThreadedCall) -> Mapping[str, Any]:
    """Copy what the setup made, before the first trial begins; it may be repeated."""
    agent_folder, home = agent_folders(call)
    with errors_as_refusals("cannot copy what the setup made"):
        spot = find_destination(agent_folder, home, str(call.content["dest"]), force=True)
        with lock_destination(spot):
            if load_record(spot).trial or not spot.dest.is_dir():
                return {}
            rows = known_rows(agent_folder, spot.current)
            try:
                make_base(spot, list_other_files(spot, rows), call.raise_if_cut)
            except CallRefused as refused:
                return {"refused": refused.sentence}
            save_record(spot, "")
    return {}


def provide_base(
    call: ThreadedCall, spot: Destination, rows: List[ManifestRow], record: TrialRecord
) -> None:
    """Copy what is in the folder before the first trial, unless the copy has all that."""
    if list_base(spot) is None or find_changes(spot, rows, record) != ([], []):
        make_base(spot, list_other_files(spot, rows), call.raise_if_cut)


def load_record(spot: Destination) -> TrialRecord:
    with suppress(FileNotFoundError, ValueError):
        found = json.loads(spot.record.with_name(RECORD).read_text())
        before = tuple(map(str, found.get("before", ())))
        return TrialRecord(str(found["trial"]), int(found.get("since_ns", 0)), before)
    return TrialRecord()


def save_record(spot: Destination, trial: str) -> None:
    """Record that all that changes in the folder from now on is this trial's."""
    fresh = spot.record.with_name(f"{RECORD}.new")
    since_ns = file_clock_ns(spot) if trial or base_folder(spot).is_dir() else 0
    fresh.write_text(json.dumps({"trial": trial, "since_ns": since_ns}))
    fresh.replace(spot.record.with_name(RECORD))


def trial_folder(spot: Destination, trial: str) -> Path:
    return spot.dest.with_name(f"{spot.dest.name}.trials") / trial


def restore_folder(
    agent_folder: Path,
    spot: Destination,
    record: TrialRecord,
    rows: List[ManifestRow],
    safe: bool,
) -> int:
    """Put the folder back as the setup left it; return how many files and folders differed. What
    the trial wrote goes to its own folder, or (`safe`) is removed with what that folder has."""
    aside = trial_folder(spot, record.trial)
    put = PutAside(os.fsencode(str(spot.dest)), None if safe else os.fsencode(str(aside)))
    kept = os.fsencode(str(base_folder(spot)))
    new, changed = find_changes(spot, rows, record)
    for path in new:
        put.move_away(path)
    for path in changed:
        put.move_away(path)
        copy_entry(join_path(kept, path), join_path(put.tree, path))
    restore_code(agent_folder, put, rows)
    if safe:
        shutil.rmtree(str(aside), ignore_errors=True)
        with suppress(OSError):  # others' files are there
            aside.parent.rmdir()
    return put.many


class PutAside:
    """Takes what a trial wrote out of the folder."""

    def __init__(self, tree: bytes, aside: Optional[bytes]) -> None:
        self.tree = tree
        self.aside = aside  #: where it goes; None: it is removed
        self.many = 0

    def move_away(self, path: bytes) -> None:
        """Take a path away, if something is there; of a Python file the compiled one, too: its
        time and size may be those of the version that comes back."""
        here = join_path(self.tree, path)
        if path.endswith(b".py"):
            shutil.rmtree(join_path(os.path.dirname(here), CACHE), ignore_errors=True)
        if not os.path.lexists(here):
            return
        self.many += 1
        if self.aside is not None:
            move_file(here, join_path(self.aside, path))
        else:
            remove_path(here)


def list_other_files(spot: Destination, rows: List[ManifestRow]) -> List[bytes]:
    """List all files and folders that are not of the code, without Python's caches."""
    code = needed_folders(rows) | {one.path for one in rows}
    found = []
    for path, entries in walk_folders(os.fsencode(str(spot.dest))):
        for entry in entries:
            below = join_entry(path, entry.name)
            if below not in code and CACHE not in below.split(b"/"):
                found.append(below)
    return found


def join_entry(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name


def find_changes(
    spot: Destination, rows: List[ManifestRow], record: TrialRecord
) -> Tuple[List[bytes], List[bytes]]:
    """Return the topmost paths that are neither of the code nor of the base, and those of the base
    that are changed or gone, parents first."""
    kept, tree = os.fsencode(str(base_folder(spot))), os.fsencode(str(spot.dest))
    # With an agent of before there was no base; what such a path was is not known.
    former: Dict[bytes, Optional[bool]] = dict.fromkeys(map(os.fsencode, record.before))
    made: Mapping[bytes, Optional[bool]] = list_base(spot) or former
    code, folders = {one.path for one in rows}, needed_folders(rows)
    walked = folders | {path for path, is_folder in made.items() if is_folder is not False}
    new, intact = [], set(code)
    for path, entries in walk_folders(tree, walked):
        for entry in entries:
            below, is_there = join_entry(path, entry.name), entry.is_dir(follow_symlinks=False)
            if below in code:
                continue
            if below not in made:
                if entry.name != CACHE and not (below in folders and is_there):
                    new.append(below)
                continue
            was_folder = made[below]
            same = was_folder is None or was_folder == is_there
            if same and was_folder is False:
                same = not is_changed(entry, join_path(kept, below), record.since_ns)
            if same:
                intact.add(below)
    return new, [path for path, kind in made.items() if kind is not None and path not in intact]


def restore_code(agent_folder: Path, put: PutAside, rows: List[ManifestRow]) -> None:
    """Write anew what the trial changed of the code."""
    store = open_blobs(agent_folder)
    changed = [one for one in rows if not is_row_intact(put.tree, one)]
    with store.shared_lock(), open_tree(put.tree) as place:
        missing = store.missing_ids(one.id for one in changed)
        for one in changed:
            if one.id in missing:
                continue
            put.move_away(one.path)
            place.open_parent(one.path, make=True)
            write_row(place, one, store.read_pieces(one.id))


def move_file(here: bytes, there: bytes) -> None:
    """Move a file or folder to where nothing may be lost: an older one gets another name."""
    os.makedirs(os.path.dirname(there), exist_ok=True)
    spare = there
    while os.path.lexists(spare):
        spare += b"~"
    if spare != there:
        os.rename(there, spare)
    shutil.move(os.fsdecode(here), os.fsdecode(there))


def bring_back(spot: Destination, trial: str) -> None:
    """Move a trial's files back, if it has some."""
    aside = os.fsencode(str(trial_folder(spot, trial)))
    if trial and os.path.isdir(aside):
        merge_folder(aside, os.fsencode(str(spot.dest)))


def merge_folder(here: bytes, there: bytes) -> None:
    """Move a folder's content over another's, and in the place of what is there."""
    for name in os.listdir(here):
        source, target = join_path(here, name), join_path(there, name)
        if is_folder(source) and is_folder(target):
            merge_folder(source, target)
            continue
        remove_path(target)
        shutil.move(os.fsdecode(source), os.fsdecode(target))
    os.rmdir(here)


def remove_path(path: bytes) -> None:
    if is_folder(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def is_folder(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
