"""`python3 -m tpuherd_host.torch` runs a script as if it was not there, with torch's variables."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tpuherd_host.torch import torch_variables

SRC = Path(__file__).parents[2] / "src"
SHOWS = """import json, os, sys
names = "RANK WORLD_SIZE MASTER_PORT".split()
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, os.getcwd(), sys.flags.utf8_mode,
                  {name: os.environ[name] for name in names}]))
"""


def start(folder: Path, *words: str, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *words: str, **env: str) -> tuple[int, str, str]:
    with start(folder, *words, **env) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("words", [("train.py", "--lr", "0.1"), ("-m", "package.train", "-x")])
def test_a_script_finds_itself_and_its_place(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "package").mkdir()
    for file in ("train.py", "package/train.py", "package/__init__.py"):
        (tmp_path / file).write_text(SHOWS if file.endswith("train.py") else "")
    place = {"HERD_WORKER": "1", "HERD_WORKERS": "4", "MASTER_PORT": "1234"}
    plain = {**place, "RANK": "1", "WORLD_SIZE": "4"}
    flags = ("-X", "utf8")
    as_it_is = run(tmp_path, *flags, *words, **plain)
    assert as_it_is[0] == 0, as_it_is[2]
    assert run(tmp_path, *flags, "-m", "tpuherd_host.torch", *words, **place) == as_it_is
    assert json.loads(as_it_is[1])[-1] == {"RANK": "1", "WORLD_SIZE": "4", "MASTER_PORT": "1234"}


def test_status_traceback_and_signals_are_those_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("def f():\n    raise ValueError('no')\nf()\n")
    plain = run(tmp_path, "fails.py")
    assert run(tmp_path, "-m", "tpuherd_host.torch", "fails.py") == plain
    (tmp_path / "exits.py").write_text("import sys; sys.exit(78)\n")
    assert run(tmp_path, "-m", "tpuherd_host.torch", "exits.py")[0] == 78
    (tmp_path / "waits.py").write_text(
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "print('ready', flush=True)\nsignal.pause()\n"
    )
    with start(tmp_path, "-m", "tpuherd_host.torch", "waits.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75


@pytest.mark.parametrize("words", [(), ("-m",)])
def test_without_a_script_it_says_how_to_use_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    status, out, err = run(tmp_path, "-m", "tpuherd_host.torch", *words)
    assert (status, out) == (2, "")
    assert "add its file, or -m and a module" in err


def test_torch_tpu_finds_its_slice_where_the_engine_knows_it() -> None:
    gang = {"HERD_WORKER": "5", "HERD_WORKERS": "8", "HERD_ADDRESSES": "a,b,c,d"}
    found = torch_variables({**gang, "HERD_TOPOLOGY": "4x4"})
    assert (found["RANK"], found["WORLD_SIZE"]) == ("5", "8")
    assert found["TPU_WORKER_HOSTNAMES"] == "a,b,c,d"
    assert found["JOB_COMPLETION_INDEX"] == "1"
    assert found["TORCH_TPU_TOPOLOGY"] == "4x4"
    assert "TPU_WORKER_HOSTNAMES" not in torch_variables(gang)
    alone = torch_variables({})
    assert (alone["RANK"], alone["WORLD_SIZE"], alone["MASTER_ADDR"]) == ("0", "1", "127.0.0.1")
