"""The verbs of environments: what is here, and use one that has arrived."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Mapping

from tpuherd_host.agent.environments.environment_folders import (
    ABOUT,
    CONFIGURATION,
    HERE,
    STAGED,
    EnvironmentFolders,
    environment_dest,
    lock_key,
    platform_name,
    read_object,
    require_key,
    write_atomically,
)
from tpuherd_host.agent.environments.run_installer import find_uv, python_version
from tpuherd_host.agent.snapshots.rpc_snapshots import errors_as_refusals
from tpuherd_host.agent.snapshots.tree_layout import (
    complete_snapshots,
    find_destination,
    load_rows,
    lock_destination,
    remove_unused_contents,
    rows_file,
)
from tpuherd_host.agent.state_machine.state import CURRENT, ENVIRONMENT_KEY
from tpuherd_host.agent.state_machine.transition import CallRefused
from tpuherd_host.agent.threaded_rpc import ThreadedCall

KEPT = 3  #: environments on a host: the one in use, and those used last before it
STALE_S = 86_400.0


def environment_folders(call: ThreadedCall) -> EnvironmentFolders:
    return EnvironmentFolders(Path(call.paths.home), Path(call.paths.folder))


def look_for_environment(call: ThreadedCall) -> Mapping[str, Any]:
    """Return the host's platform and its uv, and the environment's snapshot if it is here."""
    folders, key = environment_folders(call), require_key(call.content)
    with errors_as_refusals("cannot look for the environment"):
        record = dict(folders.load_record(key) or {})
        spot = find_destination(folders.agent, folders.home, environment_dest(key), force=True)
        snapshot = spot.current or record.get("snapshot")
        if load_rows(folders.agent, snapshot) is None:
            record, snapshot = {}, None
        path = call.paths.environment.get("PATH", os.defpath)
        uv = find_uv(str(folders.home), path)
        placed = spot.current is not None and (folders.root / key / ABOUT).exists()
        about = {"snapshot": snapshot, "placed": placed, "platform": platform_name(), "uv": uv}
        return {**record, **about}


def use_environment(call: ThreadedCall) -> Mapping[str, Any]:
    """Make an environment that has arrived work on this host; remove those not used any more."""
    folders, key = environment_folders(call), require_key(call.content)
    tree = folders.root / key
    with errors_as_refusals("cannot use the environment"):
        about = read_object(tree / ABOUT)
        if about is None:
            raise CallRefused("not-found", "the environment is not on this host")
        text = str(about.get("configuration")).replace(HERE, str(tree))
        file = tree / CONFIGURATION
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_atomically(file, text)
        check_python(about, tree)
        mark_used(folders, key)
        gone = remove_old_environments(folders)
    return {"python": about.get("python"), "removed": gone}


def check_python(about: Mapping[str, Any], tree: Path) -> None:
    """Refuse an environment whose Python this host lacks, or has in another version."""
    found, wanted = python_version(str(tree / "bin" / "python")), str(about.get("python"))
    if found == wanted:
        return
    place = about.get("interpreter") or "in the environment"
    has = f"Python {found}" if found else "none that works"
    raise CallRefused(
        "unfit",
        f"the environment was made with Python {wanted} ({place}), and this host has {has} there:"
        " set python to a version that the image lacks, and uv puts one into the environment",
    )


def mark_used(folders: EnvironmentFolders, key: str) -> None:
    """Let `current` lead to this environment."""
    (folders.records() / f"{key}.used").touch()
    fresh = folders.root / f"{CURRENT}.{os.getpid()}"
    with suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(key)
    fresh.replace(folders.root / CURRENT)


def remove_old_environments(folders: EnvironmentFolders) -> List[str]:
    """Remove all but the KEPT environments used last, and remains of killed installations."""
    used: Dict[str, float] = {}
    for key in (
        entry.name for entry in folders.root.iterdir() if ENVIRONMENT_KEY.fullmatch(entry.name)
    ):
        with suppress(OSError):
            used[key] = (folders.records() / f"{key}.used").stat().st_mtime
    old = sorted(used, key=lambda key: -used[key])[KEPT:]
    for key in old:
        with lock_key(folders, key):
            remove_environment(folders, key)
    for entry in folders.root.glob(f"{STAGED}*"):
        if entry.stat().st_mtime < time.time() - STALE_S:
            shutil.rmtree(str(entry), ignore_errors=True)
    if old:
        remove_unused_contents(folders.agent)
    return old


def remove_environment(folders: EnvironmentFolders, key: str) -> None:
    """Remove an environment, its record and its snapshots; its contents may be others', too."""
    spot = find_destination(folders.agent, folders.home, environment_dest(key), force=True)
    record = folders.load_record(key) or {}
    ids = {str(tree["id"]) for tree in spot.trees} | {str(record.get("snapshot"))}
    with lock_destination(spot):
        gone = spot.dest.with_name(f"{STAGED}{key}.old")
        spot.dest.rename(gone)
        for id in ids & set(complete_snapshots(folders.agent)):
            rows_file(folders.agent, id).unlink()
        for folder in (gone, spot.record.parent):
            shutil.rmtree(str(folder), ignore_errors=True)
    for file in folders.records().glob(f"{key}.*"):
        with suppress(OSError):
            file.unlink()
