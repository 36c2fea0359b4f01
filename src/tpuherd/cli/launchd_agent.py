"""Writes a launchd agent for the engine: what a systemd user unit is on macOS."""

import plistlib
import shlex
from collections.abc import Mapping
from pathlib import Path

from tpuherd.cli.systemd_unit import service_command, service_variables
from tpuherd.settings import project_access

LABEL = "dev.tpuherd.{}"
RESTART_S = 60


def agent_content(place: project_access.ProjectAccess, environ: Mapping[str, str]) -> bytes:
    log = str(place.store_folder / "launchd.log")
    return plistlib.dumps({
        "Label": LABEL.format(place.store_folder.name),
        "ProgramArguments": service_command(place),
        "EnvironmentVariables": service_variables(place, environ),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": RESTART_S,
        "ProcessType": "Background",
        "StandardOutPath": log,
        "StandardErrorPath": log,
    })  # fmt: skip


def install_agent(
    place: project_access.ProjectAccess, environ: Mapping[str, str]
) -> tuple[Path, str]:
    """Write the agent; return its file and the commands that start it, and that end it."""
    home = Path(environ.get("HOME") or Path.home())
    label = LABEL.format(place.store_folder.name)
    file = home / "Library/LaunchAgents" / f"{label}.plist"
    file.parent.mkdir(parents=True, exist_ok=True)
    place.store_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.write_bytes(agent_content(place, environ))
    todo = f"""\
launchctl bootout gui/$(id -u)/{label} 2>/dev/null
launchctl bootstrap gui/$(id -u) {shlex.quote(str(file))}"""
    return file, todo
