"""The wheel in an environment of its own, on each Python: a world, and a job to its end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interpreters import find_python

ROOT = Path(__file__).parents[2]
NEWEST = "3.13"  #: for CI; `make test-real` and `make release` try the others, too
VERSIONS = ("3.11", "3.12", NEWEST, "3.14")
SCRIPT = """
set -e
herd --version
herd --help | head -1
herd sim start --detach --time-scale 60 </dev/null >world.txt 2>&1
export HERD_WORLD=~/.local/state/tpuherd/world
herd run --name try --accelerator v4-16 --detach -- 'python3 -c "print(6 * 7)"'
herd wait try --timeout 180 || { herd events try; herd why try; exit 1; }
herd logs try
herd exec --help >/dev/null
herd down try --yes
"""

pytestmark = pytest.mark.real


def run(*words: str | Path, **more: object) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def make_environment(python: str, folder: Path, wheel: Path) -> None:
    """An environment with the wheel and the pinned versions of what it needs."""
    uv = Path(sys.executable).with_name("uv")
    pins = ["--constraint", str(ROOT / "constraints.txt"), str(wheel)]
    if uv.exists():
        run(uv, "venv", "--quiet", "--python", python, folder)
        run(uv, "pip", "install", "--quiet", "--python", folder / "bin/python", *pins)
    else:
        run(python, "-m", "venv", folder)
        run(folder / "bin/python", "-m", "pip", "install", "--quiet", *pins)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture
def user(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of someone who has nothing but this installation."""
    path = f"{tmp_path / 'venv/bin'}:{os.environ['PATH']}"
    found = {"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    yield found
    world = {**found, "HERD_WORLD": str(tmp_path / ".local/state/tpuherd/world")}
    herd = tmp_path / "venv/bin/herd"
    for words in ("engine stop", "engine daemon stop", "sim stop") if herd.exists() else ():
        subprocess.run([herd, *words.split()], env=world, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    "version",
    [pytest.param(v, marks=() if v == NEWEST else pytest.mark.heavy) for v in VERSIONS],
)
def test_a_job_runs_from_the_wheel_alone(
    version: str, wheel: Path, tmp_path: Path, user: dict[str, str]
) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"needs Python {version}")
    make_environment(python, tmp_path / "venv", wheel)
    said = run("bash", "-c", SCRIPT, cwd=tmp_path, env=user)
    assert said.startswith("herd ")
    assert "Usage: herd" in said
    assert "try-0/w[0-1]: 42" in said, said
    assert "Deleted try" in said
    assert "no layers: status" not in (tmp_path / "world.txt").read_text(), "a child crashed"
