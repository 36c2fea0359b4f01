"""Where a host's environments are, and what is known about each.

~/herd/.environments/KEY is an environment, put there as a snapshot; `current` leads to the one that
was used last. Below ~/.tpuherd/environments: KEY.json (how it came here), KEY.used, KEY.lock.
"""

import fcntl
import json
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional

from tpuherd_host.agent.state_machine.state import ENVIRONMENT_KEY
from tpuherd_host.agent.state_machine.transition import CallRefused

ROOT = "herd/.environments"  #: below the login's home; no job's folder has a dot
TOOLS = ".tools"  #: uv, if the host had none
STAGED = ".new-"
ABOUT = "herd-environment.json"  #: in each environment
CONFIGURATION = "pyvenv.cfg"  #: has absolute paths, so each host writes its own
HERE = "{root}"  #: stands for the environment's folder in what is passed on


class EnvironmentFolders(NamedTuple):
    """The folders of one login."""

    home: Path
    agent: Path

    @property
    def root(self) -> Path:
        return self.home / ROOT

    def records(self) -> Path:
        folder = self.agent / "environments"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def load_record(self, key: str) -> Optional[Dict[str, Any]]:
        """Return how an environment came to this host; None if it did not."""
        return read_object(self.records() / f"{key}.json")

    def save_record(self, key: str, record: Mapping[str, Any]) -> None:
        write_atomically(self.records() / f"{key}.json", json.dumps(record))


def environment_dest(key: str) -> str:
    """Return an environment's folder, relative to the login's home."""
    return f"{ROOT}/{key}"


def require_key(content: Mapping[str, Any]) -> str:
    key = str(content.get("key"))
    if not ENVIRONMENT_KEY.fullmatch(key):
        raise CallRefused("unfit", "an environment has 16 hexadecimal digits as its key")
    return key


def platform_name() -> str:
    """Return what programs built on this host need: linux-x86_64-glibc2.35-python3.10."""
    libc = (os.confstr("CS_GNU_LIBC_VERSION") or "libc").replace(" ", "")
    version = ".".join(map(str, sys.version_info[:2]))
    return f"{sys.platform}-{os.uname().machine}-{libc}-python{version}"


def activation_variables(home: str, name: str, path: str) -> Dict[str, Optional[str]]:
    """Return the variables of a process that uses an environment; FileNotFoundError if there is
    none."""
    folder = os.path.realpath(os.path.join(home, ROOT, name))
    if not os.path.exists(os.path.join(folder, "bin", "python")):
        raise FileNotFoundError(folder)
    tools = os.path.join(home, ROOT, TOOLS)
    found = [os.path.join(folder, "bin"), path, tools]
    return {"VIRTUAL_ENV": folder, "PATH": ":".join(filter(None, found)), "PYTHONHOME": None}


@contextmanager
def lock_key(folders: EnvironmentFolders, key: str) -> Iterator[None]:
    """Prevent others from installing or removing this environment inside the block."""
    with open(str(folders.records() / f"{key}.lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_object(path: Path) -> Optional[Dict[str, Any]]:
    """Return a file's JSON object; None if it is missing or not one."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return None


def write_atomically(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise
