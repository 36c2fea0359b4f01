"""Installs an environment on this host and adds it to the host's snapshots: a setup step.

The agent runs `agent.pyz environment RECIPE` as a process of its own, so that it has a log and can
be stopped. Nothing of an installation that failed or was killed stays: it is made in a folder of
its own, and counts only once its record is written.
"""

import errno
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Dict

from tpuherd_host.agent.environments import bucket_copy
from tpuherd_host.agent.environments.environment_folders import (
    ABOUT,
    STAGED,
    EnvironmentFolders,
    lock_key,
    platform_name,
)
from tpuherd_host.agent.environments.installer_output import FAILED, FULL
from tpuherd_host.agent.environments.record_tree import (
    make_relocatable,
    record_tree,
    remove_folder_tree,
)
from tpuherd_host.agent.environments.run_installer import (
    InstallationFailed,
    Recipe,
    fetch_uv,
    find_uv,
    install_with_pip,
    install_with_uv,
    python_version,
    run_tool,
)
from tpuherd_host.agent.processes import AGENT
from tpuherd_host.agent.snapshots.tree_layout import load_rows, remove_unused_contents


def run_installation(text: str) -> int:
    """Install what the recipe says, unless it is here; return the exit status."""
    folders = EnvironmentFolders(Path(os.environ["HOME"]), Path(os.environ[AGENT]))
    recipe = Recipe(**json.loads(text))
    try:
        with lock_key(folders, recipe.key):
            record = folders.load_record(recipe.key)
            if record is None or load_rows(folders.agent, record["snapshot"]) is None:
                folders.save_record(recipe.key, get_environment(recipe, folders))
    except InstallationFailed as no:
        sys.stderr.write(f"{no.sentence}\n")
        return no.status
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remove_unused_contents(folders.agent)  # of this installation
            free = shutil.disk_usage(str(folders.home)).free / 1e9
            sentence = f"{recipe.what} does not fit into the {free:.1f} GB that are free"
            sys.stderr.write(f"the disk is full: {sentence}\n")
            return FULL
        sys.stderr.write(f"{recipe.what} can't be installed: {error}\n")
        return FAILED
    return 0


def get_environment(recipe: Recipe, folders: EnvironmentFolders) -> Dict[str, Any]:
    """Get the copy from the job's bucket, else install it and keep a copy; return its record."""
    if not recipe.bucket:
        return install_environment(recipe, folders)
    began, refused = time.time(), ""
    place = bucket_copy.BucketPlace(recipe.bucket, f"{recipe.job}-{recipe.key}-{platform_name()}")
    try:
        if recipe.digest and bucket_copy.fetch_copy(place, recipe.digest, folders.agent):
            seconds = round(time.time() - began, 1)
            return {"snapshot": recipe.digest, "source": place.url, "seconds": seconds}
    except bucket_copy.UnusableCopy as error:
        refused = str(error)
        bucket_copy.print_problem(refused)
    record = install_environment(recipe, folders)
    kept = place.url if bucket_copy.keep_copy(place, record["snapshot"], folders.agent) else ""
    return {**record, "kept": kept, "refused": refused}


def install_environment(recipe: Recipe, folders: EnvironmentFolders) -> Dict[str, Any]:
    """Install it and add it to the snapshots; return its record."""
    began = time.time()
    folders.root.mkdir(parents=True, exist_ok=True)
    tree = folders.root / f"{STAGED}{recipe.key}"
    pythons = folders.root / f"{STAGED}{recipe.key}.python"
    remove_folder_tree(tree)
    remove_folder_tree(pythons)
    try:
        tool = install_packages(recipe, folders, tree, pythons)
        version = python_version(str(tree / "bin" / "python"))
        interpreter = os.path.realpath(str(tree / "bin" / "python"))
        about = {
            "key": recipe.key,
            "platform": platform_name(),
            "python": version,
            "interpreter": "" if pythons in Path(interpreter).parents else interpreter,
            "tool": tool,
            "configuration": make_relocatable(tree, pythons, folders.root / recipe.key),
        }
        (tree / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
        packages = len(list(tree.glob("lib/python*/site-packages/*.dist-info")))
        snapshot, size = record_tree(tree, folders.agent)
    finally:
        remove_folder_tree(tree)
        remove_folder_tree(pythons)
    seconds = round(time.time() - began, 1)
    facts = {"snapshot": snapshot, "size": size, "packages": packages, "seconds": seconds}
    return {**facts, "python": version, "tool": tool}


def install_packages(recipe: Recipe, folders: EnvironmentFolders, tree: Path, pythons: Path) -> str:
    """Install with the best tool that this host has or can get; return its name."""
    uv = find_uv(str(folders.home), os.environ.get("PATH", os.defpath))
    origin = ""
    if uv is None:
        uv, origin = fetch_uv(folders.root), ", which pip installed on the host"
    if uv is None:
        install_with_pip(recipe, tree)
        return "pip"
    said = run_tool([uv, "--version"]).lines
    install_with_uv(uv, recipe, tree, pythons)
    return " ".join((said or ["uv"])[0].split()[:2]) + origin
