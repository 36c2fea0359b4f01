"""The Python API: typed for type checkers, results in dataclasses, shown by help, quick to load."""

import inspect
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_type_hints

import tpuherd
from tpuherd.api import Herd
from tpuherd.async_api import AsyncHerd
from tpuherd.job_fields import JobChanges, JobFields
from tpuherd.jobfile.fields import FIELDS

ROOT = Path(__file__).parents[2]

RIGHT = """
import tpuherd

job = tpuherd.Job(name="gpt", accelerator=["v4-8", "v4-16"], tier="spot", copies=2, stall="10m",
                  env={"LR": 0.1}, sweep={"method": "random"}, run="python3 train.py")
herd = tpuherd.Herd()
made: tpuherd.Submission = herd.run(job)
herd.change("gpt", max_cost=5, accelerator="v4-8", setup=None)
status: int = herd.wait("gpt", timeout=10)
out: str = herd.exec("gpt", "hostname").hosts[0].stdout
got: tuple[str, ...] = herd.sync(".", "gpt", "code").got
texts: list[str] = [line.text for line in herd.logs("gpt")]
best: int | None = herd.sweep("gpt").best
phase: str = herd.status("gpt").slot_details[0].attempts[0].why

async def work() -> float:
    async with tpuherd.AsyncHerd() as inside:
        return (await inside.jobs())[0].cost
"""


def check_types(tmp_path: Path, script: str) -> str:
    """What mypy says of a user's script."""
    file = tmp_path / "script.py"
    file.write_text(script)
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary",
             "--config-file", "", "--cache-dir", str(ROOT / ".mypy_cache"), str(file)]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT).stdout


def test_a_type_checker_accepts_correct_use(tmp_path: Path) -> None:
    assert check_types(tmp_path, RIGHT) == ""


def test_a_type_checker_finds_misspellings(tmp_path: Path) -> None:
    wrong = [
        'tpuherd.Job(name="gpt", acelerator="v4-8")',
        'tpuherd.Job(name="gpt", accelerator="v4-8", copys=2)',
        'tpuherd.Job(name="gpt", accelerator="v4-8", copies="two")',
        'tpuherd.Job(accelerator="v4-8")',
        'tpuherd.Herd().change("gpt", max_costs=5)',
        'tpuherd.Herd().change("gpt", name="other")',
        'tpuherd.Herd().wiat("gpt")',
        'tpuherd.Herd().wait("gpt", timout=5)',
        'tpuherd.Herd().status("gpt").faze',
        'tpuherd.Herd().jobs()[0]["job"]',
        "tpuherd.Hurd()",
    ]
    said = check_types(tmp_path, "import tpuherd\n" + "\n".join(wrong) + "\n")
    found = {int(line.split(":")[1]) - 2 for line in said.splitlines() if ": error:" in line}
    assert [wrong[at] for at in range(len(wrong)) if at not in found] == [], said


def test_the_types_have_the_fields_of_a_job() -> None:
    assert set(get_type_hints(JobFields)) == set(FIELDS)
    assert JobFields.__required_keys__ == {"name", "accelerator"}
    assert set(get_type_hints(JobChanges)) == set(FIELDS) - {"name"}
    assert not JobChanges.__required_keys__


def test_none_means_an_unset_field() -> None:
    one = tpuherd.Job(name="gpt", accelerator="v4-8", setup=None, zones=None)
    assert one == tpuherd.Job(name="gpt", accelerator="v4-8")


def test_both_classes_have_the_same_methods() -> None:
    def calls(kind: type) -> dict[str, tuple[str, str | None]]:
        return {
            name: (str(inspect.signature(one)), one.__doc__)
            for name, one in vars(kind).items()
            if inspect.isfunction(one) and not name.startswith("_")
        }

    assert calls(Herd) == calls(AsyncHerd)
    assert {"logs", "exec", "sync", "sweep", "wait"} <= set(calls(Herd))


def test_every_public_name_exists_and_results_are_frozen_dataclasses() -> None:
    assert len(tpuherd.__all__) <= 20
    assert set(tpuherd.__all__) <= set(dir(tpuherd))
    kinds = {"AsyncHerd", "Herd", "HerdError", "Job", "__version__"}
    for name in set(tpuherd.__all__) - kinds:
        kind = getattr(tpuherd, name)
        assert is_dataclass(kind), name
        assert vars(kind)["__dataclass_params__"].frozen, name


def test_help_lists_the_public_names() -> None:
    words = [sys.executable, "-c", "import tpuherd; help(tpuherd)"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for name in set(tpuherd.__all__) - {"__version__"}:
        assert f"class {name}(" in shown, name
    assert "Run a command or a shell line on all hosts of a target" in shown


def test_an_import_loads_no_network_web_or_ssh_library() -> None:
    words = [sys.executable, "-c", "import sys, tpuherd; print(*sys.modules)"]
    loaded = set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    heavy = {"asyncio", "asyncssh", "cryptography", "google", "h2", "httpx2", "msgspec", "socket",
             "sqlite3", "ssl", "uvicorn", "yaml"}  # fmt: skip
    assert not loaded & heavy
