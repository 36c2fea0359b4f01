"""The Pythons that this machine has."""

import os
import re
import shutil
import subprocess
from pathlib import Path


def find_python(version: str) -> str | None:
    """An interpreter of that version which really runs: from PATH, or beside pyenv's shims."""
    candidates = [shutil.which(f"python{version}")]
    shims = [Path(p) for p in os.get_exec_path() if Path(p).name == "shims"]
    for shim in shims:
        versions = shim.parent / "versions"
        if not os.access(versions, os.R_OK):
            continue
        candidates += [str(p) for p in versions.glob(f"{version}.*/bin/python{version}")]
    for candidate in filter(None, candidates):
        said = subprocess.run([candidate, "-V"], capture_output=True, text=True)
        if said.returncode == 0 and re.match(rf"Python {re.escape(version)}\.", said.stdout):
            return candidate
    return None
