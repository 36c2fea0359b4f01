"""The folders for configuration, state and logs on this machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalFolders:
    config: Path  #: the key pair, the owner id, the contexts
    state: Path  #: pinned host keys, logs
    runtime: Path  #: sockets


def home_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def resolve_folders(environ: Mapping[str, str]) -> LocalFolders:
    """Follow the XDG base directory specification."""
    home = home_folder(environ)
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "tpuherd"
    state = Path(environ.get("XDG_STATE_HOME") or home / ".local/state") / "tpuherd"
    run = environ.get("XDG_RUNTIME_DIR")
    return LocalFolders(
        config=config, state=state, runtime=Path(run) / "tpuherd" if run else state / "run"
    )


def logs_folder(state: Path, *, world: Path | None, project: str) -> Path:
    """Return the folder of a project's logs, also if the project can't be reached."""
    if world is None:
        return state / "logs" / f"project-{project}"
    name = sha256(os.fsencode(world.absolute())).hexdigest()[:12]
    return state / "logs" / f"world-{name}"
