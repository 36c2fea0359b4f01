"""Finds the Pythons that jobs use on this host, and the versions of JAX in each."""

import json
import os
import shutil
import subprocess
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from tpuherd_host.agent.environments.environment_folders import ROOT
from tpuherd_host.agent.state_machine.state import CURRENT

#: Where jobs' own environments usually are, below the login's home.
FOLDERS = "venv", ".venv", "env"
PACKAGES = "jax", "jaxlib", "libtpu", "libtpu-nightly", "requests", "torch_xla", "wandb"
PROBE_S = 8.0
TEXT_MAX = 200
GIVEN_MAX = 8
#: Asks a Python about itself, without importing what it asks about. `pin` is the libtpu that this
#: jax wants.
PROBE = """
import json, sys
from importlib import metadata
found, pin = {}, ""
for name in sys.argv[1:]:
    try:
        found[name] = str(metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
try:
    pins = [one for one in metadata.requires("jax") or () if one.startswith("libtpu")]
    pin = pins[0].partition(";")[0].strip() if pins else ""
except metadata.PackageNotFoundError:
    pass
version = ".".join(map(str, sys.version_info[:3]))
print(json.dumps({"version": version, "packages": found, "pin": pin}))
"""


def candidates(
    home: str, login: Mapping[str, str], given: Sequence[str]
) -> Iterator[Tuple[str, str]]:
    """Yield a Python and what users call it, the most specific first."""
    for path in given[:GIVEN_MAX]:
        yield os.path.join(home, os.path.expanduser(path)), path
    yield os.path.join(home, ROOT, CURRENT, "bin", "python"), "herd's environment"
    for folder in FOLDERS:
        yield os.path.join(home, folder, "bin", "python"), f"~/{folder}"
    for name in ("python3", "python"):
        yield shutil.which(name, path=login.get("PATH", os.defpath)) or "", name


def find_pythons(home: str, login: Mapping[str, str], given: Sequence[str]) -> List[Dict[str, Any]]:
    """Return each Python once, with its packages."""
    rows, seen = [], set()
    for path, name in candidates(home, login, given):
        if os.path.isfile(path) and os.access(path, os.X_OK) and path not in seen:
            seen.add(path)
            rows.append({"name": name, "path": path, **probe_python(path, home, login)})
    return rows


def probe_python(path: str, home: str, login: Mapping[str, str]) -> Dict[str, Any]:
    """Return version, packages and pin; or why it does not work."""
    try:
        done = subprocess.run(
            [path, "-c", PROBE, *PACKAGES],
            cwd=home,
            env={name: value for name, value in login.items() if name != "LD_PRELOAD"},
            capture_output=True,
            timeout=PROBE_S,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode == 0:
            found: Dict[str, Any] = json.loads(done.stdout)
            return {name: found[name] for name in ("version", "packages", "pin")}
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return {"why": (lines[-1] if lines else f"exit {done.returncode}")[:TEXT_MAX]}
    except subprocess.TimeoutExpired:
        return {"why": f"no answer in {PROBE_S:g} s"}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"why": f"{type(error).__name__}: {error}"[:TEXT_MAX]}
