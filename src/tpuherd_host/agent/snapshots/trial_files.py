"""Moves aside what a trial made in its folder before another one begins, and back if it continues.

The files of trial T of ~/herd/lr go to ~/herd/lr.trials/T. What was in the folder before the first
trial began, such as products of the setup, stays, and so does the shipped code: files of it that
the trial changed are moved, too, and written anew.
"""

import json
import os
import re
import shutil
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Mapping, Set

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
from tpuherd_host.agent.state_machine.state import ATTEMPT
from tpuherd_host.agent.state_machine.transition import CallRefused
from tpuherd_host.agent.threaded_rpc import ThreadedCall

NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*)?")
RECORD = "trial.json"


def begin_trial(call: ThreadedCall) -> Mapping[str, Any]:
    """Prepare the folder for this trial; it may be repeated. No trial: only move the last one's."""
    agent_folder, home = agent_folders(call)
    trial, slot = str(call.content.get("trial", "")), call.content.get("slot")
    if not NAME.fullmatch(trial):
        raise CallRefused("unfit", "the trial's name must consist of letters, digits and dashes")
    with errors_as_refusals("cannot move the files of the last trial"):
        spot = find_destination(agent_folder, home, str(call.content["dest"]), force=True)
        if not spot.dest.is_dir():
            return {"moved": 0}
        with lock_destination(spot):
            record = load_record(spot)
            last = record["trial"]
            if last == trial:
                bring_back(spot, trial)  # an earlier call may not have come to its end
                return {"moved": 0}
            works = call.paths.state().works.values()
            if any(w.kind == ATTEMPT and w.is_live and w.slot == slot for w in works):
                raise CallRefused("busy", f"an attempt of {slot} still runs in {spot.dest}")
            rows = known_rows(agent_folder, spot.current)
            moved = 0
            if last:
                before = set(map(os.fsencode, record["before"]))
                moved = move_aside(spot, last, rows, before)
                moved += restore_code(agent_folder, spot, last, rows)
            others = record["before"] if last else list_other_files(spot, rows)
            save_record(spot, {"trial": trial, "before": others if trial else []})
            bring_back(spot, trial)
    return {"moved": moved, "trial": last, "folder": str(trial_folder(spot, last))}


def load_record(spot: Destination) -> Dict[str, Any]:
    """Load whose files are in the folder, and what was there before the first trial."""
    with suppress(FileNotFoundError, ValueError):
        found = json.loads(spot.record.with_name(RECORD).read_text())
        return {"trial": str(found["trial"]), "before": list(found["before"])}
    return {"trial": "", "before": []}


def save_record(spot: Destination, record: Mapping[str, Any]) -> None:
    fresh = spot.record.with_name(f"{RECORD}.new")
    fresh.write_text(json.dumps(record))
    fresh.replace(spot.record.with_name(RECORD))


def trial_folder(spot: Destination, trial: str) -> "os.PathLike[str]":
    return spot.dest.with_name(f"{spot.dest.name}.trials") / trial


def list_other_files(spot: Destination, rows: List[ManifestRow]) -> List[str]:
    """List all files and folders that are not of the code, without Python's caches."""
    code = needed_folders(rows) | {one.path for one in rows}
    found = []
    for path, entries in walk_folders(os.fsencode(str(spot.dest))):
        for entry in entries:
            below = join_entry(path, entry.name)
            if below not in code and CACHE not in below.split(b"/"):
                found.append(os.fsdecode(below))
    return found


def join_entry(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name


def new_paths(tree: bytes, rows: List[ManifestRow], before: Set[bytes]) -> Iterator[bytes]:
    """Yield the topmost paths that are neither of the code nor were there before."""
    folders, others = needed_folders(rows), before | {one.path for one in rows}
    for path, entries in walk_folders(tree, folders | before):
        for entry in entries:
            below = join_entry(path, entry.name)
            known = below in others or (below in folders and entry.is_dir(follow_symlinks=False))
            if not known and entry.name != CACHE:
                yield below


def move_aside(spot: Destination, trial: str, rows: List[ManifestRow], before: Set[bytes]) -> int:
    """Move what the trial made into its folder; return how many files and folders these are."""
    tree, aside = os.fsencode(str(spot.dest)), os.fsencode(str(trial_folder(spot, trial)))
    found = list(new_paths(tree, rows, before))
    for path in found:
        move_file(join_path(tree, path), join_path(aside, path))
    return len(found)


def restore_code(agent_folder: Any, spot: Destination, trial: str, rows: List[ManifestRow]) -> int:
    """Write anew what the trial changed of the code; its versions go into its folder."""
    tree, aside = os.fsencode(str(spot.dest)), os.fsencode(str(trial_folder(spot, trial)))
    store, moved = open_blobs(agent_folder), 0
    changed = [one for one in rows if not is_row_intact(tree, one)]
    with store.shared_lock(), open_tree(tree) as place:
        missing = store.missing_ids(one.id for one in changed)
        for one in changed:
            if one.id in missing:
                continue
            here = join_path(tree, one.path)
            if os.path.lexists(here):
                move_file(here, join_path(aside, one.path))
                moved += 1
            place.open_parent(one.path, make=True)
            write_row(place, one, store.read_pieces(one.id))
    return moved


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
    """Move a folder's content over another's."""
    for name in os.listdir(here):
        source, target = join_path(here, name), join_path(there, name)
        if is_folder(source) and is_folder(target):
            merge_folder(source, target)
        elif not is_folder(target):
            with suppress(FileNotFoundError):
                if not is_folder(source):
                    os.unlink(target)
            shutil.move(os.fsdecode(source), os.fsdecode(target))
    with suppress(OSError):  # not empty
        os.rmdir(here)


def is_folder(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
