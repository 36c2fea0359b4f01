"""Programs that start before their attempt: the attempt can't tell, and nothing runs too soon."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agents import AgentClient, Agents, Failed, agents, until
from tpuherd_host.agent.processes import all_processes, command_line, marked_task
from tpuherd_host.train.checkpoint_commit import NAME, Commit, step_folder
from tpuherd_host.train.storage import Folder

pytestmark = pytest.mark.real
ATTEMPT = "gpt-0-a1-me"
JAX = """
import os
from pathlib import Path
class Config:
    jax_platforms = os.environ.get("JAX_PLATFORMS", "")
    jax_enable_x64 = os.environ.get("JAX_ENABLE_X64") == "true"
    def update(self, name, value):
        setattr(self, name, value)
config = Config()
with open(os.environ["TRACES"], "a") as file:
    file.write("import\\n")
"""
TELL = """
import json, os, sys, pathlib
hidden = "jax" in sys.modules
os.environ["JAX_ENABLE_X64"] = "true"
import jax
class Mine: pass
import pickle
assert type(pickle.loads(pickle.dumps(Mine()))) is Mine
mine = {k: v for k, v in os.environ.items() if k.startswith(("HERD_", "MINE", "JAX_"))}
told = json.dumps({
    "argv": sys.argv, "path": sys.path[0], "file": __file__, "name": __name__,
    "spec": getattr(__spec__, "name", None), "hidden": hidden, "spec of jax": jax.__spec__.name,
    "jax": [jax.config.jax_platforms, jax.config.jax_enable_x64],
    "cwd": os.getcwd(), "env": sorted(mine.items()), "input": sys.stdin.read(),
    "names": sorted(n for n in globals() if not n.startswith("_")),
})
pathlib.Path("../told").write_text(told)
print("to stdout", flush=True)
print("to stderr", file=sys.stderr)
if "fail" in sys.argv:
    raise ValueError("as wanted")
sys.exit(7)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Agents]:
    with agents(tmp_path) as made:
        package = tmp_path / "lib" / "jax"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(JAX)
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "tell.py").write_text(TELL)
        made.environment |= {
            "PYTHONPATH": str(tmp_path / "lib"),
            "TRACES": str(tmp_path / "traces"),
        }
        yield made


def arguments(**more: Any) -> dict[str, Any]:
    shell = f"JAX_PLATFORMS=cpu {sys.executable} tell.py 'a b'"
    return {"attempt": ATTEMPT, "slot": "gpt-0", "number": 1, "shell": shell, "directory": "code",
            "env": {"MINE": "1"}, **more}  # fmt: skip


def waiting(home: Agents) -> list[int]:
    """Programs that wait."""
    words = (str(home.file), "early")
    return [
        pid for pid, one in all_processes().items()
        if not one.gone and " ".join(words) in command_line(pid)
    ]  # fmt: skip


def has_imported(home: Agents) -> bool:
    traces = home.home / "traces"
    return traces.exists() and traces.read_text() == "import\n"


def early(home: Agents, client: AgentClient, **more: Any) -> int:
    """Start early; the process, once it has imported JAX."""
    client.call("start.early", **arguments(**more))
    until(lambda: has_imported(home))
    return until(lambda: waiting(home))[0]


def end_of(client: AgentClient, **more: Any) -> dict[str, Any]:
    """Start it, and wait for its end."""
    client.call("start", **arguments(**more))
    return client.event("ended", id=ATTEMPT)


@pytest.mark.parametrize("command", ["tell.py fail", "-m tell x"])
def test_an_early_attempt_is_like_any_other(tmp_path: Path, command: str) -> None:
    ends = []
    for turn in ("late", "early"):
        (tmp_path / turn).mkdir()
        with agents(tmp_path / turn) as home:
            code, lib = tmp_path / turn / "code", tmp_path / turn / "lib" / "jax"
            code.mkdir()
            lib.mkdir(parents=True)
            (code / "tell.py").write_text(TELL)
            (lib / "__init__.py").write_text(JAX)
            traces = str(tmp_path / turn / "traces")
            home.environment |= {"PYTHONPATH": str(lib.parent), "TRACES": traces}
            client = home.attach(epoch=1)
            shell = f"JAX_PLATFORMS=cpu {sys.executable} {command}"
            if turn == "early":
                pid = early(home, client, shell=shell, env={"MINE": "1", "HERD_LIFE_S": "5"})
                assert client.call("attempts")["attempts"] == []
            end = end_of(client, shell=shell)
            if turn == "early":
                assert end["pid"] == pid
            told = (tmp_path / turn / "told").read_text().replace(str(tmp_path / turn), "")
            lines = [one.replace(str(tmp_path / turn), "") for one in end["tail"]]
            ends.append((end["exit"], lines, json.loads(told)))
            assert has_imported(home), "JAX was imported more than once"
    assert ends[0] == ends[1]
    assert ends[0][0] == (1 if "fail" in command else 7)


def test_what_differs_starts_afresh_in_the_same_process(home: Agents) -> None:
    client = home.attach(epoch=1)
    pid = early(home, client)
    end = end_of(client, env={"MINE": "2"})
    assert (end["pid"], end["exit"]) == (pid, 7)
    assert ["MINE", "2"] in json.loads((home.home / "told").read_text())["env"]
    assert (home.home / "traces").read_text() == "import\n" * 2


def test_new_code_in_the_folder_starts_afresh(home: Agents) -> None:
    client = home.attach(epoch=1)
    early(home, client)
    (home.home / "code").rename(home.home / "old")
    (home.home / "code").mkdir()
    (home.home / "code" / "tell.py").write_text("print('new')")
    assert end_of(client)["tail"] == ["new"]


def test_code_that_sets_variables_of_libraries_imports_by_itself(home: Agents) -> None:
    (home.home / "code" / "more.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '1'\n")
    client = home.attach(epoch=1)
    client.call("start.early", **arguments())
    until(lambda: waiting(home))
    assert end_of(client)["exit"] == 7
    assert has_imported(home)


def test_nothing_runs_before_its_attempt_and_nothing_is_left(home: Agents) -> None:
    client = home.attach(epoch=1)
    first = early(home, client)
    client.call("start.early", **arguments(attempt="gpt-0-a2-me"))  # in place of the first
    until(lambda: waiting(home) and first not in waiting(home))
    client.call("start", **arguments(attempt="gpt-0-a3-me", shell="echo other"))
    client.event("ended", id="gpt-0-a3-me", exit=0)
    until(lambda: not waiting(home))
    assert client.call("attempts")["attempts"][0]["tail"] == ["other"]
    with pytest.raises(Failed, match="an engine with epoch 1 leads here"):
        home.attach(epoch=0).call("start.early", **arguments())


@pytest.mark.parametrize("victim", ["agent", "supervisor", "program"])
def test_a_kill_leaves_no_program_and_the_attempt_starts_as_usual(
    home: Agents, victim: str
) -> None:
    client = home.attach(epoch=1)
    pid = early(home, client)
    if victim == "agent":
        home.kill(client)
        until(lambda: not waiting(home))
        client = home.attach(epoch=1)
        assert client.call("attempts")["attempts"] == []
    else:
        os.kill(pid if victim == "program" else home.supervisor_pid(client), signal.SIGKILL)
        until(lambda: not waiting(home))
    assert end_of(client)["exit"] == 7


def test_the_process_is_marked_as_its_attempts(home: Agents) -> None:
    (home.home / "code" / "tell.py").write_text("import jax, time\ntime.sleep(1000)\n")
    client = home.attach(epoch=1)
    pid = early(home, client)
    assert marked_task(pid, str(home.folder)) == ""
    client.call("start", **arguments())
    until(lambda: marked_task(pid, str(home.folder)) == ATTEMPT)
    assert client.call("halt", attempt=ATTEMPT, grace_s=5.0)["signal"] == signal.SIGTERM


def test_a_program_that_cannot_start_early_starts_in_its_turn(home: Agents) -> None:
    (home.home / "lib" / "jax" / "__init__.py").write_text("raise RuntimeError('broken')")
    (home.home / "code" / "tell.py").write_text("print('without jax')")
    client = home.attach(epoch=1)
    client.call("start.early", **arguments())
    assert end_of(client)["tail"] == ["without jax"]


def test_a_host_fetches_a_checkpoint_by_itself(home: Agents) -> None:
    saved = Folder(str(home.home / "saved"))
    part = f"{step_folder(7)}part-0"
    saved.write(f"run/{part}", [b"numbers"])
    whole = Commit(step=7, form="pieces", parts={part: 7}).to_json_bytes()
    saved.write(f"run/{step_folder(7)}{NAME}", [whole])
    client = home.attach(epoch=1)
    env = {"HERD_CHECKPOINT": saved.location, "HERD_RUN_ID": "run", "HERD_WORKER": "0"}
    told = client.call("checkpoint.fetch", env=env)
    assert told == {"step": 7, "bytes": 7, "programs": 0, "trouble": ""}
    (copy,) = home.folder.rglob("part-0")
    assert copy.read_bytes() == b"numbers"
