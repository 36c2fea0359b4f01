"""What a script shows of the Python that it needs, and what a dry run says about images."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_jobfile_slots import EVERYTHING, job, stored_job
from tpuherd.jobfile.expand_slots import expand_slots
from tpuherd.jobfile.script_python import needed_python, required_by_project
from tpuherd.jobs.image_python import python_notes

NEEDS = {
    "print(1)": None,
    "def f(x: int) -> str: ...": None,
    "from __future__ import annotations\ndef f(x: list[int] | None): ...": None,
    "def f(x: list[int]): ...": ("3.9", "the annotation list[int]"),
    "def f() -> int | None: ...": ("3.10", "the annotation int | None"),
    "match x:\n    case 1: pass": ("3.10", "its syntax"),
    "try: pass\nexcept* ValueError: pass": ("3.11", "its syntax"),
    "import tomllib": ("3.11", "tomllib"),
    "from enum import StrEnum, Enum": ("3.11", "enum.StrEnum"),
    "import asyncio\nasyncio.TaskGroup()": ("3.11", "asyncio.TaskGroup"),
    "import zoneinfo\nfrom datetime import UTC": ("3.11", "datetime.UTC"),
    "from tpuherd_host.train import run": ("3.10", "tpuherd_host.train"),
    "# /// script\n# requires-python = '>=3.12'\n# ///\n": ("3.12", "requires-python"),
    "from . import tomllib": None,
    "def broken(": None,
    "\0": None,
}


@pytest.mark.parametrize("source", NEEDS)
def test_the_newest_thing_it_uses_decides(source: str) -> None:
    found = needed_python(source)
    assert (found and (found.version, found.why)) == NEEDS[source]


def test_a_project_says_it_itself() -> None:
    found = required_by_project('[project]\nrequires-python = ">=3.11,<3.14"\n')
    assert found is not None and found.version == "3.11"
    assert required_by_project("[project]\nname = 'x'\n") is None


def notes(folder: Path, *, simulated: bool = False, **fields: Any) -> list[str]:
    one = job(workdir=".", run="python3 train.py", **fields)
    offers = expand_slots(one, stored_job(one), EVERYTHING)[0].offers
    return list(python_notes(one, offers, folder, simulated=simulated))


def test_a_dry_run_says_when_the_image_is_too_old(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tomllib\n")
    old = "tpu-vm-v4-base"
    assert notes(tmp_path, runtime=old) == [
        f"{old} has Python 3.8, too old for train.py, which needs 3.11 (tomllib):"
        ' set python: "3.11"'
    ]
    assert notes(tmp_path, runtime=old, python="3.11") == [
        f"{old} has Python 3.8, older than python: uv puts Python 3.11 into the environment"
    ]
    assert notes(tmp_path, runtime=old, python="3.9")[0] == (
        'python is 3.9, too old for train.py, which needs 3.11 (tomllib): set python: "3.11"'
    )
    assert "whatever their image is" in notes(tmp_path, simulated=True)[-1]


def test_a_dry_run_is_silent_when_all_is_well(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    assert notes(tmp_path, runtime="tpu-vm-v4-base", simulated=True) == []
    assert notes(tmp_path, runtime="a-new-image") == []
    assert notes(tmp_path, runtime="tpu-ubuntu2204-base", python="3.10.4") == []


def test_a_dry_run_proposes_the_launcher_of_torch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import net\n")
    (tmp_path / "net.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group()\n"
    )
    assert notes(tmp_path, runtime="tpu-vm-v4-base") == [
        "net.py:2 calls init_process_group, which needs RANK and WORLD_SIZE:"
        " run: python3 -m tpuherd_host.torch train.py …"
    ]
