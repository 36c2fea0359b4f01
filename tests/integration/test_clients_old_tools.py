"""Unmaintained tools of the TPU community, as published, beside ours: what they lose, we keep."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.world import World, client, run, started, until
from tests.integration.engines import Owner

ZONE = "europe-west4-a"
V3 = {"acceleratorType": "v3-8", "schedulingConfig": {"preemptible": True}}

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with started("--hosts", "none", "--time-scale", "600") as world:
        world.node(ZONE, "tpu-1", acceleratorType="v3-8", schedulingConfig={"preemptible": True})
        yield world


def test_tpunicorn_lists_nodes_with_their_age(world: World) -> None:
    """It reads the list of API v1, every zone in turn."""
    program = client("tpunicorn").with_name("pu")
    done = run([program, "list"], world.proxy_env)
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.strip().splitlines()[-2:]
    assert head.split()[:4] == ["ZONE", "INDEX", "TYPE", "AGE"]
    assert row.split()[:3] == [ZONE, "1", "v3-8"]
    for word in ("tpu-1", "READY", "HEALTHY", "default", "yes"):
        assert word in row.split()


@pytest.mark.needs("gcloud")
def test_tpucare_finds_usable_nodes(world: World) -> None:
    """It asks gcloud for the project when imported, and for the list of a zone."""
    script = f"import tpucare; print(tpucare.PROJECT, tpucare.tpu_names({ZONE!r}))"
    done = run([client("tpucare"), "-c", script], world.env)
    assert (done.returncode, done.stdout) == (0, "demo ['tpu-1']\n"), done.stderr


# ---- the same program on both ----------------------------------------------------------------

#: It says what its callbacks get, and what the TPU has from before.
PROGRAM = """
import dataclasses, sys
from IMPORTED import exec_command, exec_on_tpu, start_single

@dataclasses.dataclass
class Context:
    retry: int

def start_fn(ctx, worker):
    said = exec_on_tpu("pod", "europe-west4-a", "cat ~/work; echo try RETRY >> ~/work; echo ok"
                       .replace("RETRY", str(ctx.retry)), worker)
    print("start", ctx.retry, repr(said), flush=True)
    exec_on_tpu("pod", "europe-west4-a", "nohup sleep 1000 >/dev/null 2>&1 &", worker)
    print("started", ctx.retry, flush=True)

def creation_callback(host, ctx):
    return Context(0) if ctx is None else Context(ctx.retry + 1)

if "compat" in start_single.__module__:
    sys.modules[start_single.__module__].LOG_LEVEL = 0  # it says what still runs
start_single("pod", 3, "europe-west4-a", True, "default@example.com", 1, start_fn,
             creation_callback)
"""
TOOLS = {"tpucare": "tpucare", "herd": "tpuherd.compat.tpucare"}


@pytest.fixture(scope="module")
def owner() -> Iterator[Owner]:
    # tpucare looks at a list that is up to 10 s old: a creation that is faster drives it in circles
    with started("--time-scale", "3") as world:
        found = Owner(world.home, world)
        yield found
        found.herd("down", "--all", "--yes", seconds=120)
        found.leave_all()


@contextmanager
def program(owner: Owner, tool: str, out: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """The program, in a terminal of its own."""
    file = owner.home / "program.py"
    file.write_text(PROGRAM.replace("IMPORTED", TOOLS[tool]))
    python = client("tpucare") if tool == "tpucare" else Path(sys.executable)
    env = owner.world.env if tool == "tpucare" else owner.env
    with out.open("ab") as stream:
        process = subprocess.Popen(
            [python, "-u", file], env=env, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def pod_created(owner: Owner) -> str:
    """When the pod was created; "" without one."""
    found = owner.world.ask("GET", f"v2/projects/demo/locations/{ZONE}/nodes").get("nodes", [])
    return next((str(one["createTime"]) for one in found if one["name"].endswith("/pod")), "")


def said(out: Path, word: str, many: int) -> list[str]:
    """The lines of this kind, once there are so many."""

    def lines() -> list[str]:
        found = [line for line in out.read_text().splitlines() if re.match(f"{word} ", line)]
        return found if len(found) >= many else []

    return until(lines, f"{many} {word!r} in {out}", seconds=240)


def tell_story(owner: Owner, tool: str, folder: Path) -> dict[str, object]:
    """A TPU works; a program begins, is killed, begins again, and is left with Ctrl+C."""
    out = folder / "out"
    out.touch()
    where = f"v2/projects/demo/locations/{ZONE}/nodes"
    body = {"runtimeVersion": "v2-alpha", "networkConfig": {"enableExternalIps": True}, **V3}
    owner.world.ask("POST", f"{where}?nodeId=pod", body)
    until(lambda: state_of(owner.world, "pod") == "READY", "pod to be READY", seconds=180)
    done = owner.herd("exec", "pod", "-c", "echo precious > ~/work")
    assert done.returncode == 0, done.stderr
    created = pod_created(owner)
    with program(owner, tool, out) as process:
        said(out, "started", 1)
        kept = pod_created(owner) == created
        created = pod_created(owner)
        process.kill()
    with program(owner, tool, out) as process:
        if tool == "tpucare":
            said(out, "started", 2)
        else:
            said(out, ".* what start_fn started still", 1)
        again = pod_created(owner) == created
        process.send_signal(signal.SIGINT)
        process.wait(timeout=300)
    return {
        "the live TPU is kept": kept,
        "the TPU outlives its program": again,
        "Ctrl+C keeps the TPU": bool(pod_created(owner)),
        "tries": [int(line.split()[1]) for line in said(out, "start", 1)],
        "output": said(out, "start", 1)[0].split(maxsplit=2)[2],
    }


@pytest.mark.needs("gcloud")
def test_what_tpucare_loses_is_kept(owner: Owner, tmp_path: Path) -> None:
    theirs = tell_story(owner, "tpucare", tmp_path)
    assert theirs == {
        "the live TPU is kept": False,
        "the TPU outlives its program": False,
        "Ctrl+C keeps the TPU": False,
        "tries": [0, 0],
        "output": "''",
    }
    owner.world.clear()
    (tmp_path / "out").unlink()
    ours = tell_story(owner, "herd", tmp_path)
    assert ours == {
        "the live TPU is kept": True,
        "the TPU outlives its program": True,
        "Ctrl+C keeps the TPU": True,
        "tries": [0],
        "output": "'precious\\nok'",
    }
    owner.herd("down", "--all", "--yes", seconds=120)


def test_where_a_secret_is_found() -> None:
    """In tpucare's script it is an argument of `wandb login`, and .bashrc starts the run again."""
    call = "exec_command('https://x/y', wandb_key='s3cret', run_command='echo \"a b\"')"
    texts = {}
    for tool, module in TOOLS.items():
        stub = "import subprocess; subprocess.check_output = lambda *a, **k: b'demo'\n"
        python = client("tpucare") if tool == "tpucare" else Path(sys.executable)
        script = f"{stub}from {module} import exec_command; print({call})"
        done = run([python, "-c", script], {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"})
        assert done.returncode == 0, done.stderr
        texts[tool] = done.stdout
    argument = re.compile(r"^[^#\n]*\bwandb login s3cret", re.M)
    assert argument.search(texts["tpucare"]) and not argument.search(texts["herd"])
    assert ".bashrc" in texts["tpucare"] and ".bashrc" not in texts["herd"]


# ---- tpunicorn -------------------------------------------------------------------------------


def state_of(world: World, name: str) -> str:
    found = world.ask("GET", f"v2/projects/demo/locations/{ZONE}/nodes").get("nodes", [])
    return next((str(one["state"]) for one in found if one["name"].endswith(f"/{name}")), "")


def start_drought(world: World) -> None:
    """The zone has no capacity any more, and takes its spot nodes."""
    world.herd("weather", "drought", ZONE)


def end_drought(world: World) -> None:
    world.herd("weather", "capacity", ZONE, "*", "unlimited")


@pytest.mark.needs("gcloud")
def test_what_tpunicorn_loses_is_kept(world: World, tmp_path: Path) -> None:
    """`pu babysit` deletes a preempted node, and knows what to create from that node alone."""
    program, out = client("tpunicorn").with_name("pu"), tmp_path / "out"
    with out.open("w") as stream:
        process = subprocess.Popen(
            [program, "babysit", "tpu-1", "-i", "1"], env=world.proxy_env, stdout=stream,
            stderr=stream, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: "READY" in out.read_text(), "pu to see it", seconds=60)
        start_drought(world)
        lost = "No TPUs matched"
        until(lambda: lost in out.read_text(), f"{lost} in {out}", seconds=120)
        end_drought(world)
        many = out.read_text().count(lost)
        until(lambda: out.read_text().count(lost) > many + 3, "pu to look again", seconds=60)
        assert state_of(world, "tpu-1") == "", "there is capacity, and it asks for nothing"
    finally:
        process.kill()
        process.wait()
    user = Owner(world.home, world)
    words = ("--name", "kept", "--accelerator", "v3-8", "--zones", ZONE, "--tier", "preemptible")
    try:
        done = user.herd("up", *words, "--set", "node_name=tpu-1")
        assert done.returncode == 0, done.stderr
        until(lambda: state_of(world, "tpu-1") == "READY", "tpu-1", seconds=60)
        start_drought(world)
        until(lambda: state_of(world, "tpu-1") == "", "its deletion", seconds=60)
        end_drought(world)
        until(lambda: state_of(world, "tpu-1") == "READY", "tpu-1 again", seconds=90)
    finally:
        user.herd("down", "--all", "--yes", seconds=60)
        user.leave_all()
