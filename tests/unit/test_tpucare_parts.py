"""TPU Care's functions without a cloud: signatures, kept contexts, and the script for hosts."""

import dataclasses
import inspect
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tpuherd.compat import kept_contexts, setup_script, tpucare
from tpuherd.compat.callbacks import call_creation_callback, check_callback, choose_callback
from tpuherd.errors import HerdError, InvalidInput

#: As tpucare 0.5.0 has them, and the name that older programs import.
SIGNATURES = {
    "exec_command": "repository wandb_key branch setup_command run_command install_python pkilled",
    "send_to_tpu": "host zone filename_on_tpu command worker",
    "exec_on_tpu": "host zone command worker",
    "all_tpus": "zone",
    "valid_tpu": "tpu preempted deleting unhealthy",
    "tpu_names": "zone preempted deleting unhealthy no_filter prefix",
    "delete_no_check": "host zone asynchronous",
    "tpu_ips": "host zone",
    "delete_one_tpu": "prefix host zone asynchronous",
    "delete_all": "prefix zone",
    "create_tpu": "host zone tpu_version preemptible service_account semaphore slices",
    "recreate": "host zone tpu_version preemptible service_account slices creation_semaphore",
    "start_single": "host tpu_version zone preemptible service_account slices start_fn"
    " creation_callback creation_semaphore all_workers unhealthy_timeout_seconds",
    "start_multiple": "prefix tpu_version zone preemptible service_account slices start_fn"
    " created_callback tpus",
    "synchronous_deletion": "prefix host zone",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_positional_arguments_stand_where_they_stood(name: str) -> None:
    wanted = SIGNATURES[name].split()
    assert [*inspect.signature(getattr(tpucare, name)).parameters][: len(wanted)] == wanted


def test_both_names_and_both_spellings_are_there() -> None:
    assert tpucare.launch_single is tpucare.start_single
    assert tpucare.launch_multiple is tpucare.start_multiple
    for name in ("start_single", "start_multiple"):
        parameters = inspect.signature(getattr(tpucare, name)).parameters
        assert {"creation_callback", "created_callback"} <= {*parameters}
    assert issubclass(tpucare.CallReturnError, ValueError)
    with pytest.raises(AttributeError):
        tpucare.__getattr__("GLOBAL_DICT")


def test_a_callback_may_be_anything_that_can_be_called() -> None:
    class Counter:
        def __call__(self, host: str, ctx: object) -> object:
            return ctx

    for fine in (Counter(), lambda *all_: None, dict, lambda host, ctx, more=1: None):
        check_callback("creation_callback", fine, "host", "ctx")
    with pytest.raises(InvalidInput, match=r"as start_fn\(ctx, worker\), but <lambda>\(\) can't"):
        check_callback("start_fn", lambda: None, "ctx", "worker")
    assert choose_callback(None, len) is len and choose_callback(len, None) is len
    with pytest.raises(InvalidInput, match="not neither"):
        choose_callback(None, None)


def test_an_error_of_the_callback_names_its_host() -> None:
    def broken(host: str, ctx: object) -> object:
        raise ValueError("no config")

    with pytest.raises(HerdError, match=r"broken raised ValueError for pod: no config; pod stays"):
        call_creation_callback(broken, "pod", None)


TPU = {"state": "READY", "health": "HEALTHY"}


@pytest.mark.parametrize(
    ("tpu", "wishes", "counts"),
    [
        (TPU, {}, True),
        ({"state": "DELETING"}, {}, False),
        ({"state": "DELETING"}, {"deleting": True, "preempted": False}, True),
        ({"state": "PREEMPTED"}, {}, True),
        ({"state": "PREEMPTED"}, {"preempted": False}, False),
        ({**TPU, "health": "TIMEOUT"}, {}, True),
        ({**TPU, "health": "TIMEOUT"}, {"unhealthy": False}, False),
        ({"state": "READY"}, {"unhealthy": False}, True),
        ({}, {}, False),
    ],
)
def test_which_tpus_count(tpu: dict[str, Any], wishes: dict[str, bool], counts: bool) -> None:
    assert tpucare.valid_tpu(tpu, **wishes) is counts


# ---- contexts ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Inner:
    rate: float


@dataclasses.dataclass
class Outer:
    retry: int
    config: dict[Any, Any]
    inner: Inner
    shape: tuple[int, ...] = ()
    name: str | None = None
    total: int = dataclasses.field(init=False, default=0)


def keep(file: Path, context: Any) -> Any:
    kept = kept_contexts.KeptContext(job_made_at=1.5, incarnation="7@now", context=context)
    kept_contexts.save_context(file, kept, "pod")
    found = kept_contexts.load_context(file, "pod")
    assert found == kept
    return json.loads(file.read_text())


def test_contexts_come_back_as_they_were(tmp_path: Path) -> None:
    file = kept_contexts.context_file(tmp_path, "pod")
    assert kept_contexts.load_context(file, "pod") is None
    outer = Outer(3, {"lr": [1e-3, None], 4: {"dataclass": "x"}, "t": (1, "a")}, Inner(0.5), (2, 3))
    outer.total = 9
    for context in (outer, None, {}, [outer, outer], "text", {"tuple": [1]}, 2**70):
        keep(file, context)
    assert file.stat().st_mode & 0o77 == 0
    kept_contexts.forget_context(file)
    kept_contexts.forget_context(file)
    assert kept_contexts.load_context(file, "pod") is None


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({1, 2}, "the context of pod is a set"),
        (Outer(1, {"files": [open(os.devnull)]}, Inner(1)),  # noqa: SIM115
         r"the context of pod\.config\['files'\]\[0\] is a TextIOWrapper"),
        ({b"x": 1}, "a key of the context of pod is a bytes"),
        (Inner, "the context of pod is a type"),
    ],
)  # fmt: skip
def test_an_unusable_context_is_refused_and_the_last_one_stays(
    tmp_path: Path, context: Any, says: str
) -> None:
    file = kept_contexts.context_file(tmp_path, "pod")
    keep(file, Inner(1.0))
    before = file.read_text()
    with pytest.raises(InvalidInput, match=says):
        keep(file, context)
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda text: text.replace(":Inner", ":Gone"), "this program has no dataclass Gone"),
        (lambda text: text.replace(__name__, "os").replace(":Inner", ":system"), "no dataclass"),
        (lambda text: text.replace('"rate"', '"speed"'), "Inner has no field speed any more"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "another version of herd"),
        (lambda text: text[:-5], "can't be used"),
        (lambda text: "[]", "can't be used"),
        (lambda text: text.replace('"dataclass"', '"pickle"'), "can't be used"),
    ],
)
def test_a_file_that_does_not_fit_the_program_is_named(
    tmp_path: Path, edit: Any, says: str
) -> None:
    file = kept_contexts.context_file(tmp_path, "pod")
    keep(file, Inner(1.0))
    file.write_text(edit(file.read_text()))
    with pytest.raises(InvalidInput, match=says) as caught:
        kept_contexts.load_context(file, "pod")
    assert str(file) in caught.value.hint


# ---- the script ----------------------------------------------------------------------------------

KEY = 'it\'s $HOME "quoted"'


def run_script(home: Path, text: str) -> "subprocess.CompletedProcess[str]":
    """Run it as on a host: with a home, and programs that note how they are called."""
    tools = home / "tools"
    if not tools.exists():
        tools.mkdir()
        note = 'echo "$0 $*" >> ~/called'
        for name, does in {
            "git": f'{note}; [ "$1" != clone ] || mkdir -p model',
            "sudo": note,
            "python3": f'{note}; [ "$2" != "import wandb" ]',
            "pkill": note,
        }.items():
            (tools / name).write_text(f"#!/bin/sh\n{does}\n")
            (tools / name).chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(home)}
    return subprocess.run(["bash", "-c", text], env=env, cwd=home, capture_output=True, text=True)


def wait_for(file: Path) -> str:
    script = 'for i in $(seq 1200); do [ -s "$1" ] && exec cat "$1"; sleep 0.05; done; exit 1'
    return subprocess.run(["bash", "-c", script, "-", file], capture_output=True, text=True).stdout


def test_the_script_prepares_and_starts_what_outlives_it(tmp_path: Path) -> None:
    text = tpucare.exec_command(
        "https://example.com/lab/model.git", wandb_key=KEY, branch="b",
        setup_command="touch prepared", run_command='echo "$PWD" "x  y" > ~/ran; exec sleep 60',
        pkilled=["old run"],
    )  # fmt: skip
    first = run_script(tmp_path, setup_script.hold_busy(text))
    assert first.returncode == 0, first.stderr
    assert wait_for(tmp_path / "ran") == f"{tmp_path}/model x  y\n"
    assert (tmp_path / "model/prepared").exists()
    assert (tmp_path / ".netrc").read_text().splitlines()[2] == f"  password {KEY}"
    assert (tmp_path / ".netrc").stat().st_mode & 0o77 == 0
    called = (tmp_path / "called").read_text()
    assert "clone --quiet --depth 1 --branch b https://example.com/lab/model.git" in called
    assert "pip install --quiet --upgrade wandb" in called and "pkill -f old run" in called
    assert KEY not in called and "sudo" not in called and "pkill -f python3" not in called
    assert not (tmp_path / ".bashrc").exists()
    busy = run_script(tmp_path, setup_script.CHECK_BUSY)
    assert busy.returncode == setup_script.BUSY_STATUS
    group = int((tmp_path / setup_script.GROUP).read_text())
    assert os.getpgid(group) == group
    second = run_script(tmp_path, setup_script.hold_busy(text))
    assert second.returncode == 0
    old = Path(f"/proc/{group}/cmdline")  # empty while nobody has reaped it
    assert not old.exists() or not old.read_text()
    (tmp_path / "ran").unlink(missing_ok=True)
    os.killpg(int(wait_for(tmp_path / setup_script.GROUP)), 9)
    free = "for i in $(seq 1200); do " + setup_script.CHECK_BUSY + " && exit 0; sleep 0.05; done"
    assert run_script(tmp_path, free).returncode == 0
    assert (tmp_path / ".netrc").read_text().count("machine") == 1


@pytest.mark.parametrize(
    ("repository", "folder"),
    [("https://x/y/z.git", "z"), ("git@x:y/z", "z"), ("/a/z.bundle", "z"), ("https://x/z/", "z")],
)
def test_the_folder_is_the_one_that_git_makes(repository: str, folder: str) -> None:
    assert setup_script.repository_folder(repository) == folder


def test_a_step_that_fails_ends_the_script(tmp_path: Path) -> None:
    text = tpucare.exec_command("https://x/model", setup_command="exit 3", run_command="touch ran")
    assert run_script(tmp_path, text).returncode == 3
    assert not (tmp_path / "ran").exists()


def test_the_login_of_other_scripts_becomes_the_own_one(tmp_path: Path) -> None:
    text = tpucare.exec_command(
        "https://x/model", setup_command="true", install_python=False,
        run_command="echo /home/ubuntu/.local/bin/wandb > ~/ran",
    )  # fmt: skip
    assert run_script(tmp_path, text).returncode == 0
    assert wait_for(tmp_path / "ran") == f"{tmp_path}/.local/bin/wandb\n"
