"""The files of a bug report about this machine: versions, settings, and what takes space."""

import json
import os
import platform
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from re import match
from typing import Any

from tpuherd._version import __version__
from tpuherd.bug_report.report_file import ReportFile, json_file
from tpuherd.checks.machine_facts import Machine, nearest_existing, read_path
from tpuherd.settings.contexts_file import FILE as CONTEXTS
from tpuherd.store import sample_file, schema
from tpuherd_host.agent.frames import PROTOCOL as AGENT_PROTOCOL

#: Variables that herd or its libraries heed.
HEEDED = r"(HERD|XDG|GOOGLE|CLOUDSDK|GCE|GIT|UV|PIP|SSL)_|NO_GCE|NO_COLOR|LANG$|LC_|TERM$|\w+_proxy"
#: Those whose values tell no secret.
HARMLESS = r"(HERD_(WORLD|CONTEXT|DEBUG)|XDG_\w+|LANG|LC_\w+|TERM|NO_COLOR)$"
FOLDERS_MAX = 400  #: of the state folder that are listed
DEPTH = 3


def versions_file() -> ReportFile:
    """Return what is installed, and which formats this herd reads and writes."""
    about = {
        "herd": __version__,
        "python": sys.version,
        "installed_for": "a virtual environment" if sys.prefix != sys.base_prefix else "the system",
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "sqlite": sqlite3.sqlite_version,
        "processors": os.cpu_count(),
        "packages": dict(package_versions()),
        "formats": {
            "store": schema.FORMAT,
            "oldest_store": schema.OLDEST,
            "series": sample_file.FORMAT,
            "agent": AGENT_PROTOCOL,
        },
    }
    return json_file("versions.json", about, "herd, Python, system, packages, formats")


def package_versions() -> Iterator[tuple[str, str | None]]:
    """Yield the packages that herd depends on; None: it is not installed."""
    for wanted in requires("tpuherd") or ():
        found = match(r"[\w.-]+", wanted)
        if found is None or "extra == 'dev'" in wanted.replace('"', "'"):
            continue
        try:
            yield found[0], version(found[0])
        except PackageNotFoundError:
            yield found[0], None


def settings_file(machine: Machine) -> ReportFile:
    """Return the folders, the contexts, and which variables are set."""
    folders = {name: getattr(machine.folders, name) for name in ("config", "state", "runtime")}
    about: dict[str, Any] = {
        "world_option": machine.world,
        "folders": {name: folder_facts(path) for name, path in folders.items()},
        "variables": dict(sorted(heeded_variables(machine.environ))),
        "contexts": read_contexts(machine.folders.config / CONTEXTS),
    }
    return json_file("settings.json", about, "folders, contexts, grants, names of variables")


def read_contexts(file: Path) -> Any:
    """Return the content of the file; its text if it is damaged, None if there is none."""
    if not file.exists():
        return None
    text = file.read_text(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def heeded_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if match(HEEDED, name):
            yield name, value if match(HARMLESS, name) else "(set)"


def folder_facts(path: Path) -> dict[str, Any]:
    facts = read_path(path)
    seen = os.statvfs(nearest_existing(path))
    return {
        "path": path,
        "exists": facts.exists,
        "mode": f"{facts.mode:o}",
        "mine": facts.mine,
        "writable": facts.writable,
        "disk_bytes_free": seen.f_bavail * seen.f_frsize,
        "disk_bytes": seen.f_blocks * seen.f_frsize,
    }


def sizes_file(machine: Machine) -> ReportFile:
    """Return how much each folder of the state has, without what is in it."""
    rows = sorted(folder_sizes(machine.folders.state), key=lambda row: -int(row["bytes"]))
    about = {"folders": rows[:FOLDERS_MAX], "left_out": max(0, len(rows) - FOLDERS_MAX)}
    return json_file("sizes.json", about, "how much space the state takes, by folder")


def folder_sizes(state: Path) -> Iterator[dict[str, Any]]:
    """Yield each folder down to a depth, with the files in it and in all below that depth."""
    totals: dict[Path, list[int]] = {}
    for at, _, files in os.walk(state):
        place = Path(at).relative_to(state)
        shown = Path(*place.parts[:DEPTH])
        entry = totals.setdefault(shown, [0, 0])
        for name in files:
            try:
                entry[1] += os.lstat(f"{at}/{name}").st_size
            except OSError:
                continue  # it was just removed
            entry[0] += 1
    for place, (many, size) in totals.items():
        yield {"folder": str(place), "files": many, "bytes": size}
