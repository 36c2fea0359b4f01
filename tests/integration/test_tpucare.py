"""Programs written for TPU Care, with one changed import, in a world with an engine."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import run, until
from tests.integration.engines import Owner, owner

pytestmark = pytest.mark.real
ZONE = "europe-west4-a"
V3 = {"acceleratorType": "v3-8", "schedulingConfig": {"preemptible": True}}

HEAD = """\
import dataclasses, json, os, sys, time
from tpuherd.compat import tpucare
from tpuherd.compat.tpucare import *
tpucare.LOG_LEVEL, tpucare.CACHE_TIME = 0, 0.5
ZONE = "europe-west4-a"
"""
#: Each worker's program appends the context's number to a file, and goes on.
POD = (
    HEAD
    + """
@dataclasses.dataclass
class Context:
    host: str
    retry: int = 0

def start_fn(ctx, worker):
    send_to_tpu(ctx.host, ZONE, "config", f"{ctx.retry}", worker)
    script = exec_command(repository=sys.argv[1], wandb_key="it's a $ecret",
                          run_command="cat ~/config >> ~/starts; sleep 1000")
    send_to_tpu(ctx.host, ZONE, "setup.sh", script, worker)
    print("worker", worker, "wrote", repr(exec_on_tpu(ctx.host, ZONE, "bash setup.sh", worker)))

def creation_callback(host, ctx):
    if ctx is None:
        return Context(host)
    ctx.retry += 1
    return ctx
"""
)
SINGLE = (
    POD
    + """
start_single(host="pod", tpu_version=3, zone=ZONE, preemptible=True, service_account="",
             slices=4, start_fn=start_fn, creation_callback=creation_callback)
"""
)
MULTIPLE = (
    POD
    + """
launch_multiple("swarm", 3, ZONE, True, "", 1, start_fn, creation_callback, tpus=2)
"""
)


@pytest.fixture(scope="module")
def offer() -> Iterator[Path]:
    """A folder that hosts can read, with a repository that has a `wandb` for Python."""
    folder = Path(tempfile.mkdtemp(prefix="offer-"))
    source = folder / "model"
    source.mkdir()
    (source / "setup.sh").write_text(
        "echo set up; mkdir -p ~/.local/bin; install -m 755 wandb.sh ~/.local/bin/wandb\n"
    )
    (source / "run.sh").write_text('echo "training with $CONFIG"; sleep 1000\n')
    (source / "wandb.sh").write_text('#!/bin/sh\necho "$@"; sleep 1000\n')
    (source / "wandb.py").write_text("")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"],
                  ["bundle", "create", "-q", "../model.bundle", "main"]):  # fmt: skip
        subprocess.run([*git, *words], cwd=source, check=True)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def user(offer: Path) -> Iterator[Owner]:
    with owner("--time-scale", "60", "--offer", str(offer)) as found:
        yield found


@pytest.fixture(autouse=True)
def clean(user: Owner) -> Iterator[None]:
    yield
    assert user.herd("down", "--all", "--yes", seconds=120).returncode == 0
    user.world.clear()


@contextmanager
def program(user: Owner, text: str, offer: Path) -> "Iterator[tuple[subprocess.Popen[str], Path]]":
    """A running program, and the file of what it prints."""
    file, out = user.home / "program.py", user.home / "out"
    file.write_text(text)
    with out.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, file, f"{offer}/model.bundle"], env=user.env, stdout=stream,
            stderr=stream, stdin=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        yield process, out
    finally:
        process.kill()
        process.wait()


def printed(out: Path, text: str, many: int = 1) -> None:
    until(lambda: out.read_text().count(text) >= many, f"{many} {text!r} in {out}", seconds=90)


def starts(user: Owner, target: str) -> list[str]:
    """What the programs on all hosts have written."""
    done = user.herd("exec", target, "--json", "-c", "cat ~/starts; echo")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(str(line["text"]) for line in lines if line.get("text"))


def nodes(user: Owner) -> dict[str, Any]:
    found = user.world.ask("GET", f"v2/projects/demo/locations/{ZONE}/nodes").get("nodes", [])
    return {one["name"].rpartition("/")[2]: one for one in found}


def test_a_program_that_dies_finds_its_pod_and_its_context_again(user: Owner, offer: Path) -> None:
    with program(user, SINGLE, offer) as (process, out):
        printed(out, "wrote 'set up'", many=4)
        assert starts(user, "pod") == ["0"] * 4
        process.send_signal(signal.SIGKILL)
    created = nodes(user)["pod"]["createTime"]
    with program(user, SINGLE, offer) as (process, out):
        printed(out, "what start_fn started still runs on pod/w[0-3]")
        assert starts(user, "pod") == ["0"] * 4, "start_fn did not run again"
        assert nodes(user)["pod"]["createTime"] == created
        user.herd("sim", "preempt", "pod")
        printed(out, "wrote 'set up'", many=4)
        assert starts(user, "pod") == ["1"] * 4, "the context went on where it was"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0, "Ctrl+C detaches"
        assert "detached from pod" in out.read_text()
    assert nodes(user)["pod"]["state"] == "READY"
    done = user.herd("exec", "pod/w0", "-c",
                     "stat -c %a ~/.netrc ~/setup.sh; cat ~/.netrc; grep -c model ~/.bashrc;"
                     " cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'a [$]ecret'")  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[:2] == ["600", "600"] and "  password it's a $ecret" in lines
    assert lines[-2] == "0", "nothing is written into .bashrc"
    kept = user.store_folder / "tpucare/pod.json"
    assert '"retry": 1' in kept.read_text() and kept.stat().st_mode & 0o77 == 0
    script = HEAD + "delete_one_tpu('', 'pod', ZONE, asynchronous=False); print(tpu_names(ZONE))"
    done = run([sys.executable, "-c", script], user.env)
    assert done.stdout.endswith("[]\n"), done.stderr
    assert user.all_there_is() == [] and not kept.exists()


def test_a_swarm_takes_over_the_tpus_that_live(user: Owner, offer: Path) -> None:
    before = user.world.node(ZONE, "swarm-0", **V3)
    user.world.node(ZONE, "swarm2-0", **V3)
    with program(user, MULTIPLE, offer) as (_, out):
        printed(out, "took over swarm-0, which lives")
        printed(out, "wrote 'set up'", many=2)
        assert nodes(user)["swarm-0"]["createTime"] == before["createTime"]
        assert starts(user, "swarm-[0-1]") == ["0", "0"]
        user.herd("sim", "preempt", "swarm-0")
        printed(out, "swarm-0 is lost; herd replaces it")
        printed(out, "wrote 'set up'", many=3)
        assert starts(user, "swarm-[0-1]") == ["0", "1"]
    script = HEAD + "delete_all('swarm', ZONE); print(tpu_names(ZONE), tpu_ips('swarm2-0', ZONE))"
    done = run([sys.executable, "-c", script], user.env)
    assert done.stdout.rpartition("['swarm2-0'] ['")[1], (done.stdout, done.stderr)
    assert [*nodes(user)] == ["swarm2-0"]


def ask_all(user: Owner, calls: Sequence[str]) -> list[str]:
    """What each call raises, or returns, one line each."""
    script = HEAD + (
        "def start(ctx, worker): pass\n"
        "def create(host, ctx): return ctx\n"
        "def single(host='a', version=3, zone=ZONE, slices=1, start_fn=start, **more):\n"
        "    more = more or {'creation_callback': create}\n"
        "    start_single(host, version, zone, True, '', slices, start_fn, **more)\n"
        "for call in json.loads(sys.argv[1]):\n"
        "    try:\n"
        "        print('returned', eval(call))\n"
        "    except Exception as error:\n"
        "        print(error)\n"
    )
    done = run([sys.executable, "-c", script, json.dumps(calls)], user.env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_mistakes_are_one_sentence_before_anything_is_created(user: Owner) -> None:
    user.world.node(ZONE, "big", **V3)
    cases = {
        "single(start_fn=lambda ctx: None)":
            "start_fn is called as start_fn(ctx, worker), but <lambda>(ctx) can't be: too many"
            " positional arguments",
        "single(creation_callback=lambda: None)":
            "creation_callback is called as creation_callback(host, ctx), but <lambda>() can't be:"
            " too many positional arguments",
        "single(creation_callback=3)":
            "creation_callback should be a function creation_callback(host, ctx), not 3",
        "single(created_callback=create, creation_callback=create)":
            "pass the callback as creation_callback or as created_callback, not both",
        "single(slices=3)": "accelerator: unknown type v3-24: did you mean v3-8 or v3-32?",
        "single(version='3')": "tpu_version should be a number from 1, not '3'",
        "single(zone='europe-west4-x')":
            "zones: unknown zone europe-west4-x: did you mean europe-west4-a or europe-west4-b?",
        "single(zone='us-central2-b')": "zones: us-central2-b has no v3-8: use ",
        "single(host='Big Pod')": "'Big Pod' can't be a TPU's name: use a-z",
        "single(host='big', slices=4)": "big is a v3-8 already, and the program asks for a v3-32",
        "start_multiple('a', 3, ZONE, True, '', 1, start, create, tpus=0)":
            "tpus should be a number from 1, not 0",
        "exec_on_tpu('big', ZONE, 'echo hi; echo so >&2; exit 3')":
            "'echo hi; echo so >&2; exit 3' ended with 3 on big/w0: so",
        "exec_on_tpu('big', ZONE, 'echo hi; echo so >&2')": "returned hi",
        "exec_on_tpu('big', ZONE, 'true', worker=7)": "big has no worker 7: it has w0",
        "exec_on_tpu('bog', ZONE, 'true')": "there is no bog: did you mean big?",
        "delete_all('', ZONE)": "delete_all needs a prefix",
        "delete_one_tpu('x', 'big', ZONE)": "returned None",
        "tpucare.PROJECT": "returned demo",
        "tpu_names(ZONE, prefix='b')": "returned ['big']",
    }  # fmt: skip
    said = [line for line in ask_all(user, [*cases]) if not line.startswith("20")]
    assert len(said) == len(cases)
    for line, (call, sentence) in zip(said, cases.items(), strict=True):
        assert line.startswith(sentence), call
    assert [*nodes(user)] == ["big"] and user.herd("ls").stdout.startswith("No jobs")


def test_a_callback_that_raises_ends_the_program_and_no_tpu(user: Owner, offer: Path) -> None:
    for text, says in {
        "def creation_callback(host, ctx): return 1 / 0":
            "creation_callback raised ZeroDivisionError for pod: division by zero; pod stays",
        "def creation_callback(host, ctx): return {1, 2}":
            "the context of pod is a set, which can't be kept",
        "def start_fn(ctx, worker): raise KeyError('lr')":
            "start_fn failed on pod, worker 0: KeyError: 'lr'; pod stays",
    }.items():  # fmt: skip
        end = SINGLE.rpartition("\nstart_single")
        whole = f"{end[0]}\n{text}\n{end[1]}{end[2]}".replace("slices=4", "slices=1")
        with program(user, whole, offer) as (process, out):
            assert process.wait(timeout=60) == 1
            assert says in out.read_text().splitlines()[-1]
        assert nodes(user)["pod"]["state"] == "READY"


# ---- the examples --------------------------------------------------------------------------------

EXAMPLES = Path(__file__).parents[2] / "examples" / "tpucare"
#: In place of wandb on this machine: its runs are in a file, and a sweep is noted in another.
TRACKER = """\
import json, os, pathlib, types
FOLDER = pathlib.Path(__file__).parent

class Api:
    def runs(self, path):
        found = json.loads((FOLDER / "runs.json").read_text())
        return [types.SimpleNamespace(name=name, summary={"_step": step})
                for name, step in found.get(path, {}).items()]

def sweep(config, entity, project):
    (FOLDER / "sweep.json").write_text(json.dumps([config, entity, project]))
    return "abc123"
"""


@pytest.fixture
def tracked(user: Owner) -> Path:
    """The folder of the programs, with a tracker, a login and their configurations."""
    folder = user.home / "examples"
    folder.mkdir(exist_ok=True)
    (folder / "wandb.py").write_text(TRACKER)
    (folder / "runs.json").write_text("{}")
    (folder / "config.yaml").write_text(
        "training: {checkpoint_path: gs://b/c, checkpoint_interval: 100}\n"
        "wandb: {entity: lab, project: gpt, name: x}\n"
    )
    (folder / "sweep.yaml").write_text("method: random\n")
    (user.home / ".netrc").write_text("machine api.wandb.ai login user password k3y\n")
    (user.home / ".netrc").chmod(0o600)
    return folder


@contextmanager
def example(user: Owner, folder: Path, name: str, *words: str) -> Iterator[Path]:
    """An example, until the block ends; the file of what it prints."""
    out = folder / "out"
    env = {**user.env, "PYTHONPATH": str(folder)}
    with out.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, EXAMPLES / name, *words], env=env, cwd=folder, stdout=stream,
            stderr=stream, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        yield out
        assert process.poll() is None, out.read_text()
    finally:
        process.kill()
        process.wait()


def host_says(user: Owner, target: str, command: str, text: str) -> str:
    """What a command on a host prints, once it has this text."""

    def answer() -> str:
        done = user.herd("exec", target, "-c", command)
        return done.stdout if text in done.stdout else ""

    return until(answer, f"{text} on {target}", seconds=120)


def test_the_pod_example_continues_at_the_checkpoint_that_wandb_knows(
    user: Owner, offer: Path, tracked: Path
) -> None:
    words = ("--host", "big-pod", "--run", "gpt", "--repository", f"{offer}/model.bundle")
    with example(user, tracked, "pod.py", *words):
        first = host_says(user, "big-pod", "cat ~/config.yaml ~/model.log", "training with")
        assert "checkpoint_path: gs://b/c-0" in first and "load_path" not in first
        (tracked / "runs.json").write_text('{"lab/gpt": {"other": 7, "gpt-0": 1234}}')
        user.herd("sim", "preempt", "big-pod")
        second = host_says(user, "big-pod", "cat ~/config.yaml ~/model.log", "name: gpt-1")
        assert "checkpoint_load_path: gs://b/c-0" in second
        assert "checkpoint_path: gs://b/c-1" in second and "start_step: 1200" in second
    with example(user, tracked, "pod.py", *words):  # it died: nothing is started again
        until(lambda: (tracked / "out").exists(), "it")
        again = host_says(user, "big-pod", "cat ~/config.yaml", "name: gpt-1")
        assert "start_step: 1200" in again
    run_words: list[str | Path] = [sys.executable, EXAMPLES / "pod.py", *words, "--cleanup"]
    done = run(run_words, {**user.env, "PYTHONPATH": str(tracked)})
    assert done.returncode == 0, done.stderr
    assert user.all_there_is() == []


def test_the_sweep_example_keeps_a_swarm_on_one_sweep(
    user: Owner, offer: Path, tracked: Path
) -> None:
    words = ("--prefix", "tune", "--tpus", "2", "--entity", "lab", "--project", "gpt",
             "--repository", f"{offer}/model.bundle")  # fmt: skip
    with example(user, tracked, "sweep.py", *words):
        host_says(user, "tune-[0-1]", "cat ~/model.log", "tune-[0-1]/w0: agent lab/gpt/abc123")
        user.herd("sim", "preempt", "tune-1")
        until(lambda: "tune-1" not in nodes(user) or nodes(user)["tune-1"]["state"] != "READY",
              "tune-1 to go", seconds=60)  # fmt: skip
        host_says(user, "tune-1", "cat ~/model.log", "agent lab/gpt/abc123")
    assert json.loads((tracked / "sweep.json").read_text()) == [{"method": "random"}, "lab", "gpt"]
    run_words: list[str | Path] = [sys.executable, EXAMPLES / "sweep.py", *words, "--cleanup"]
    done = run(run_words, {**user.env, "PYTHONPATH": str(tracked)})
    assert done.returncode == 0, done.stderr
    assert user.all_there_is() == []
