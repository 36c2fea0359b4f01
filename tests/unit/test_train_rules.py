"""How often to save, which host is slow, what is reported, and where checkpoints are."""

import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile_words import mutate
from tpuherd_host.train import checkpoint_commit, join_pod, process_env, show_checkpoints
from tpuherd_host.train.checkpoint_commit import PARTIAL, Commit, DamagedCheckpoint
from tpuherd_host.train.checkpoints import raise_trouble, trouble_message
from tpuherd_host.train.join_pod import Pod
from tpuherd_host.train.lazy_import import LazyModule, MissingPackage, is_installed
from tpuherd_host.train.part_files import LENGTH, ArraySlice, encode_part
from tpuherd_host.train.process_group import ProcessGroup, describe_odd_host
from tpuherd_host.train.read_checkpoint import NoCheckpoint, read_checkpoint
from tpuherd_host.train.retention import Retention
from tpuherd_host.train.run import Run
from tpuherd_host.train.sample_split import InvalidSetup
from tpuherd_host.train.save_interval import (
    COST_TIMES_MIN,
    LONGEST_S,
    SaveCosts,
    count_losses,
    mean_life_s,
    parse_node_life,
    save_interval_s,
)
from tpuherd_host.train.send_reports import ReportSender
from tpuherd_host.train.startup_times import Startup
from tpuherd_host.train.storage import (
    Bucket,
    Folder,
    TemporarilyUnreachable,
    Unreachable,
    is_temporary,
    of_run,
    place,
)
from tpuherd_host.train.tar_shards import Shard


def test_youngs_rule() -> None:
    assert save_interval_s(2.0, 3600.0) == pytest.approx(math.sqrt(2 * 2 * 3600))
    assert save_interval_s(0.5, 3600.0, took_s=90) == 90, "a save must be over before the next"
    assert mean_life_s(0, 0) > mean_life_s(600, 1) > mean_life_s(600, 3), (
        "whoever dies often saves often"
    )
    assert mean_life_s(600, 1, 7200) == 3900
    assert [parse_node_life(told) for told in ("900", "", "0", "x")] == [900, 3600, 3600, 3600]
    one, other = (SaveCosts(blocked=[1.0], took=[], usual_s=usual) for usual in (3600, 900))
    assert (one.steps_until_save(1.0, 0, 0), other.steps_until_save(1.0, 0, 0)) == (85, 42), (
        "where nodes die soon, too"
    )


@pytest.mark.parametrize(
    ("attempt", "saved_by", "losses", "at_end", "found"),
    [
        (2, 1, 0, False, 1),  # lost without a last save
        (2, 1, 0, True, 0),  # stopped in time
        (4, 1, 0, True, 2),  # two more died before their first save
        (9, 8, 3, False, 4),
        (9, 8, None, True, 7),  # a version that did not count
        (1, 5, 2, False, 2),  # the job was submitted anew
    ],
)
def test_an_end_with_a_save_is_no_loss(
    attempt: int, saved_by: int, losses: int | None, at_end: bool, found: int
) -> None:
    assert count_losses(attempt, saved_by, losses, at_end=at_end) == found


@given(st.floats(0, 1e4), st.floats(1, 1e7), st.floats(0, 1e3))
def test_saving_never_takes_more_than_its_share(cost: float, life: float, took: float) -> None:
    found = save_interval_s(cost, life, took)
    assert found >= COST_TIMES_MIN * cost
    assert found >= took
    assert found <= max(LONGEST_S, COST_TIMES_MIN * cost, took)


def test_costs_come_from_the_last_saves() -> None:
    costs = SaveCosts(blocked=[], took=[])
    for cost in (9, 9, 9, 9, 0.1, 0.1, 0.1, 0.1, 0.1):
        costs.add_blocked(cost)
    assert costs.steps_until_save(0.5, 0.0, 0) == round(math.sqrt(2 * 0.1 * 3600) / 0.5)
    assert SaveCosts(blocked=[], took=[]).steps_until_save(1e9, 0.0, 0) == 1


def test_the_odd_host_is_named() -> None:
    usual = {"host": "w0", "jax": "0.10.2", "chips": 4}
    assert describe_odd_host([usual, {**usual, "host": "w1"}]) is None
    hosts = [{**usual, "host": f"w{number}"} for number in range(4)]
    assert describe_odd_host([*hosts[:2], {**hosts[2], "jax": "0.9"}, hosts[3]]) == (
        "jax is 0.9 for process 2 on w2, but 0.10.2 for the other 3"
    )
    assert describe_odd_host(
        [hosts[0], {**hosts[1], "chips": 3}, {**hosts[2], "chips": 2}, hosts[3]]
    ) == ("chips is something else for process 1 on w1, process 2 on w2, but 4 for the other 2")


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"HERD_WORKERS": "1", "HERD_COORDINATOR": "10.0.0.2:8476"}, {}),
        ({"HERD_WORKERS": "4"}, None),
        (
            {"HERD_WORKERS": "4", "HERD_WORKER": "3", "HERD_COORDINATOR": "10.0.0.2:8476"},
            {"coordinator_address": "10.0.0.2:8476", "num_processes": 4, "process_id": 3},
        ),
    ],
)
def test_the_address_of_the_pod_coordinator(variables: dict[str, str], found: object) -> None:
    assert join_pod.initialize_arguments(variables) == found


@pytest.mark.parametrize(
    ("error", "only"),
    [
        (ValueError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer"), True),
        (RuntimeError("DEADLINE_EXCEEDED: Barrier timed out"), True),
        (RuntimeError("shapes do not fit"), False),
        (KeyError("gloo"), False),
    ],
)
def test_errors_that_follow_from_the_death_of_another_host(error: Exception, only: bool) -> None:
    assert join_pod.is_consequence(error) is only


def test_a_single_process_gathers_its_own_value() -> None:
    assert ProcessGroup().gather_words("word") == ["word"]
    assert ProcessGroup().broadcast_word("word") == "word"


def test_reports_go_to_the_agent_without_waiting(tmp_path: Path) -> None:
    path = str(tmp_path / "steps.sock")
    reports = ReportSender({"HERD_STEPS": path, "HERD_WORK": "gpt-0-a1-7kq", "HERD_ATTEMPT": "1"})
    assert not reports.send_report({"step": 1}), "nobody listens yet"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as report_socket:
        report_socket.bind(path)
        assert reports.send_report({"step": 2, "loss": 0.5})
        told = json.loads(report_socket.recv(8192))
        assert told == {"attempt": "gpt-0-a1-7kq", "step": 2, "loss": 0.5}
        while reports.send_report({"step": 3}):
            pass  # until its buffer is full: then it is dropped
        assert not reports.send_with_retries({"step": 4}, within_s=0.1)
    reports.close()
    assert not ReportSender({}).send_with_retries({"complete": True})


@pytest.fixture
def report_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What the script on the only host of a pod reports to."""
    pod = Pod(index=0, count=1, circle=ProcessGroup(), notices=False)
    monkeypatch.setattr(join_pod, "PODS", [pod])
    monkeypatch.setenv("HERD_STEPS", str(tmp_path / "steps.sock"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "steps.sock"))
        yield found


def test_the_first_step_does_not_count_for_the_pace(
    report_socket: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compiled: were it a usual step, a hang after it would pass for one for an hour."""
    now = [0.0]
    monkeypatch.setattr(process_env, "monotonic_time", lambda: now[0])
    for step in Run().steps(4):
        now[0] += 2.0 if step else 300.0
    told = [json.loads(report_socket.recv(8192)) for _ in range(5)]
    assert [one.get("step_s") for one in told] == [None, 2.0, 2.0, 2.0, None]


def test_a_script_that_loads_by_itself_reports_where_it_resumes(
    report_socket: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was booked as a start from nothing, and all steps before as lost."""
    now = [100.0]
    monkeypatch.setattr(process_env, "monotonic_time", lambda: now[0])
    run = Run()
    run.start = 126
    for _ in run.steps(129):
        now[0] += 2.0
    told = [json.loads(report_socket.recv(8192)) for _ in range(3)]
    assert (told[0]["step"], told[0]["resumed"], told[0]["saved"]) == (127, 126, 126)
    assert "resumed" not in told[1]


def test_startup_times_are_reported_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([106.0, 108.5])
    monkeypatch.setattr(process_env, "wall_time", lambda: next(times))
    monkeypatch.setattr(process_env, "BEGAN", 100.0)
    monkeypatch.setattr(process_env, "process_start_time", lambda: 99.6)
    startup = Startup()
    startup.begin_meeting()
    startup.end_meeting()
    listeners: list[Any] = []
    monkeypatch.setattr(
        "tpuherd_host.train.startup_times.jax",
        SimpleNamespace(monitoring=SimpleNamespace(
            register_event_duration_secs_listener=listeners.append)),
    )  # fmt: skip
    startup.count_compiling()
    (heard,) = listeners
    heard("/jax/core/compile/backend_compile_duration", 1.0, fun_name="init")
    before = startup.compiled_s
    heard("/jax/core/compile/backend_compile_duration", 3.0)
    heard("/jax/checkpoint/write", 9.0)
    assert startup.finish_first_step(3.5, before) == {
        "python_s": 0.4, "import_s": 6.0, "meet_s": 2.5, "first_step_s": 0.5, "compile_s": 4.0,
    }  # fmt: skip


def test_a_process_knows_its_start_time() -> None:
    code = "from tpuherd_host.train import process_env as e; print(e.process_start_time())"
    before = time.time()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert before - 0.1 <= float(ran.stdout) <= time.time()


def test_a_folder_is_a_storage(tmp_path: Path) -> None:
    folder = place(str(tmp_path / "c"))
    assert isinstance(folder, Folder)
    assert folder.names() == []
    folder.write("step-1/part-0", [b"ab", memoryview(b"cd")])
    folder.write("step-1/part-0", [b"new"])
    folder.write("step-2/x", [b""])
    assert folder.names("step-1") == ["step-1/part-0"]
    assert folder.read("step-1/part-0", 1, 2) == b"ew"
    folder.remove("step-1/")
    folder.remove("step-9/")
    assert folder.names() == ["step-2/x"]
    with pytest.raises(FileNotFoundError):
        folder.read("step-1/part-0")


@pytest.mark.parametrize(
    "told", ["gs://b/lr", "gs://b/lr/", "gs://b/lr/lr-t3-1a", "gs://b/lr/lr-t3-1a/"]
)
def test_a_run_has_its_own_folder_in_a_sweep_too(told: str) -> None:
    assert of_run(told, "lr-t3-1a") == "gs://b/lr/lr-t3-1a"


def test_buckets_are_googles_by_default() -> None:
    bucket = place("gs://b/run/1", {})
    assert isinstance(bucket, Bucket)
    assert (bucket.storage.bucket, bucket.path, bucket.storage.base) == (
        "b", "run/1/", "https://storage.googleapis.com",
    )  # fmt: skip
    mine = place("gs://b", {"CLOUDSDK_AUTH_ACCESS_TOKEN": "ya29"})
    assert isinstance(mine, Bucket)
    assert mine.storage.token.auth_headers("gs://b") == {"Authorization": "Bearer ya29"}
    there_it_is = place("gs://b", {"STORAGE_EMULATOR_HOST": "127.0.0.1:9"})
    assert isinstance(there_it_is, Bucket)
    assert (there_it_is.storage.base, there_it_is.path) == ("http://127.0.0.1:9", "")


@pytest.mark.parametrize(
    ("trouble", "again"),
    [
        (TemporarilyUnreachable("HTTP 503"), True),
        (Unreachable("HTTP 403"), False),
        (OSError(116, "stale file handle"), True),
        (PermissionError(13, "not yours"), False),
    ],
    ids=["down", "no", "stale", "not-yours"],
)
def test_transient_errors_are_retried(trouble: OSError, again: bool) -> None:
    assert is_temporary(trouble) == again
    with pytest.raises(TemporarilyUnreachable if again else Unreachable) as raised:
        raise_trouble(trouble_message(trouble))
    assert isinstance(raised.value, TemporarilyUnreachable) == again


def test_a_commit_is_read_back_and_garbage_is_damage() -> None:
    one = Commit(step=7, run="gpt-0", record={"a": [1]}, parts={"step-00000007/p": 3},
                 leaves={"w": [2, 3]})  # fmt: skip
    assert checkpoint_commit.parse_commit(one.to_json_bytes()) == one
    assert checkpoint_commit.parse_commit(one.to_json_bytes()[:-1] + b', "later": 1}') == one, (
        "of a newer version"
    )
    for nonsense in (b"", b"{", b"[]", b'{"run": 1}', b"[" * 100_000, b'{"step": 1' + b"0" * 400):
        with pytest.raises(DamagedCheckpoint):
            checkpoint_commit.parse_commit(nonsense)


@pytest.mark.parametrize(
    ("saved", "wanted", "says"),
    [
        ({"w": [2]}, {"w": [2]}, None),
        ({"w": [2]}, {"w": [3]}, "w is [2] in the checkpoint, [3] in the program"),
        ({"w": [2], "b": []}, {"w": [2]}, f"the checkpoint has b, the program does not; {PARTIAL}"),
        ({}, {"w": [2]}, f"the program has w, the checkpoint does not; {PARTIAL}"),
    ],
)
def test_another_model_is_described_by_one_difference(
    saved: dict[str, list[int]], wanted: dict[str, list[int]], says: str | None
) -> None:
    assert checkpoint_commit.find_difference(saved, wanted) == says


@pytest.mark.parametrize(
    ("saved", "wanted", "says"),
    [
        ({"w": [2], "b": []}, {"w": [2], "c": [1]}, None),
        ({"w": [2], "b": [1]}, {"w": [3], "b": [1]}, "w is [2] in the checkpoint, [3] in the "
         "program"),
        ({"b": [2]}, {"w": [2]}, "it has none of the program's arrays"),
    ],
)  # fmt: skip
def test_a_part_is_loaded_unless_shapes_differ(
    saved: dict[str, list[int]], wanted: dict[str, list[int]], says: str | None
) -> None:
    assert checkpoint_commit.find_difference(saved, wanted, partial=True) == says


LYING = Commit(step=1, run="gpt-0", form="pieces", parts={"step-00000001/part-0": 9}, record={},
               leaves={"w": [2, 3]}, types={"w": "float64"}, metrics={"loss": 1.0}, best_by="loss",
               better="lower")  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_checkpoint_that_lies_is_damage(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever may write to its place may put any value anywhere, and have the checksums fit."""
    dice, where = Random(seed), Folder(str(tmp_path))
    content = np.arange(6.0).reshape(2, 3)
    _, head, body = encode_part([ArraySlice("w", (2, 3), (0, 0), content)])
    said, table = json.loads(LYING.to_json_bytes()), json.loads(bytes(head))
    right = 0
    for _ in range(250):
        lies = dice.randrange(1, 4)
        new = json.dumps(mutate(said, dice) if lies & 1 else said).encode()
        rows = json.dumps(mutate(table, dice) if lies & 2 else table).encode()
        where.write("step-00000001/whole.json", [new])
        where.write("step-00000001/part-0", [LENGTH.pack(len(rows)), rows, body])
        with suppress(DamagedCheckpoint, NoCheckpoint, OSError):
            right += read_checkpoint(str(tmp_path)).get("w", content).tolist() == content.tolist()
        for words in ([str(tmp_path)], [str(tmp_path), "1"]):
            assert show_checkpoints.main(words) in (0, 1)
        assert "\x1b" not in capsys.readouterr().out
    assert right > 5, "some lies are about what is not used"


def test_a_tar_that_leads_back_is_refused(tmp_path: Path) -> None:
    name = tmp_path / "a.tar"
    name.write_bytes(b"a.txt".ljust(124, b"\0") + b"-0000001000\0".ljust(32, b" ") + b"0" * 356)
    with pytest.raises(InvalidSetup, match="no valid length"):
        Shard(name)


def test_milestones_the_best_and_the_newest_are_retained() -> None:
    scores = {1: 0.5, 2: math.nan, 3: 0.9, 4: 0.9, 6: 0.1}
    commits = [
        Commit(
            step=step, milestone=step == 5, metrics={"s": scores[step]} if step in scores else {}
        )
        for step in range(1, 9)
    ]

    def kept(**rule: Any) -> set[int]:
        return Retention(newest=2, **rule).retained_steps(commits)

    assert kept() == {5, 7, 8}, "a milestone of an earlier rule stays, too"
    assert kept(best="s") == {5, 6, 7, 8}
    assert kept(best="s", better="higher") == {3, 5, 7, 8}, "of equal ones the earlier"
    assert kept(best="s", best_count=9) == {1, 3, 4, 5, 6, 7, 8}, "what is no number is no value"
    assert kept(best="another") == {5, 7, 8}


def test_a_milestone_is_the_first_kept_step_from_there_on() -> None:
    each, some = Retention(milestones=100), Retention(milestones=[5, 7])
    steps = [0, 60, 120, 180, 190, 300, 500]
    assert [until for after, until in pairwise(steps) if each.has_milestone(after, until)] == [
        120, 300, 500,
    ]  # fmt: skip
    assert [until for after, until in pairwise(range(10)) if some.has_milestone(after, until)] == [
        5, 7,
    ]  # fmt: skip
    assert not Retention().has_milestone(0, 1000)


@pytest.mark.parametrize("words", [
    {"milestones": 0}, {"milestones": [3, "x"]}, {"better": "smaller"}, {"newest": 0},
    {"best_count": -1},
])  # fmt: skip
def test_a_wrong_rule_is_one_sentence(words: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetup, match=next(iter(words))):
        Retention(**words)


def test_packages_are_imported_late_and_their_lack_is_a_sentence() -> None:
    assert LazyModule("math").pi == math.pi
    with pytest.raises(MissingPackage, match=r"this needs nobody_has_this\.x: pip install that"):
        _ = LazyModule("nobody_has_this.x", "that").y
    assert is_installed("json")
    assert not is_installed("nobody_has_this.x")
