"""The agent under the oldest Pythons that TPU VM images have, where they are installed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
IMPORT_ALL = """
import importlib, sys, pathlib
sys.path.insert(0, sys.argv[1])
root = pathlib.Path(sys.argv[1])
for file in sorted((root / sys.argv[2]).rglob("*.py")):
    parts = file.relative_to(root).with_suffix("").parts
    importlib.import_module(".".join(p for p in parts if p != "__init__"))
foreign = {n.split(".")[0] for n in sys.modules} & {"tpuherd", "click", "asyncssh", "yaml"}
assert not foreign, foreign
print("%d.%d" % sys.version_info[:2])
"""


def python(version: str) -> str | None:
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


@pytest.mark.parametrize(
    ("room", "version"),
    [("agent", "3.8"), ("agent", "3.10"), ("train", "3.10"), ("agent", "3.12"), ("train", "3.12")],
)
def test_code_for_tpu_vms_imports_on_their_python(room: str, version: str) -> None:
    interpreter = python(version)
    if interpreter is None:
        pytest.skip(f"needs Python {version}")
    words = [interpreter, "-I", "-W", "error", "-c", IMPORT_ALL, str(SRC), f"tpuherd_host/{room}"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, version), done.stderr
