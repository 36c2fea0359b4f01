"""The agent under the oldest Pythons that TPU VM images have, where they are installed."""

import subprocess
from pathlib import Path

import pytest

from tests.interpreters import find_python

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


@pytest.mark.parametrize(
    ("room", "version"),
    [("agent", "3.8"), ("agent", "3.10"), ("train", "3.10"), ("agent", "3.12"), ("train", "3.12")],
)
def test_code_for_tpu_vms_imports_on_their_python(room: str, version: str) -> None:
    interpreter = find_python(version)
    if interpreter is None:
        pytest.skip(f"needs Python {version}")
    words = [interpreter, "-I", "-W", "error", "-c", IMPORT_ALL, str(SRC), f"tpuherd_host/{room}"]
    done = subprocess.run(words, capture_output=True, text=True)
    advice = f"write what Python {version} and its standard library know:\n{done.stderr}"
    assert (done.returncode, done.stdout.strip()) == (0, version), advice
