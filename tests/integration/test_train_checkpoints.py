"""Milestones, the best, a part of a checkpoint, and reading it without JAX: both forms alike."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.world import World, client, started
from tests.integration.test_train_pods import FORMS, UNFIT, Ended, Pod, refused, well
from tpuherd_host.train import fetch_ahead, list_checkpoints, read_checkpoint
from tpuherd_host.train.checkpoint_commit import DamagedCheckpoint
from tpuherd_host.train.fetched_copy import COPIES
from tpuherd_host.train.read_checkpoint import NoCheckpoint
from tpuherd_host.train.storage import Bucket, Folder, Place

PROGRAMS = Path(__file__).parent / "clients"
SRC = Path(__file__).parents[2] / "src"
KEPT = [4, 6, 12, 15, 20]  #: milestones 4 and 15, the best 6 and 12, the newest 15 and 20

pytestmark = [pytest.mark.real]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with started() as found:
        found.ask("POST", "storage/v1/b?project=demo", {"name": "kept", "location": "US"})
        yield found


def variables(world: World) -> dict[str, str]:
    return {
        "STORAGE_EMULATOR_HOST": world.url,
        "TENSORSTORE_GCS_HTTP_URL": world.url,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }


class Trained:
    """A training that has ended, and where its checkpoints are."""

    def __init__(self, pod: Pod, place: Place, form: str, env: dict[str, str]) -> None:
        self.pod, self.place, self.form, self.env = pod, place, form, env

    def run(self, what: str) -> list[Ended]:
        more: dict[str, Any] = dict(self.env)
        return self.pod.run(self.place.location, self.form, what, count=1, **more)


@pytest.fixture(scope="module", params=["folder", "bucket"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=FORMS)
def trained(
    request: pytest.FixtureRequest,
    where: str,
    world: World,
    tmp_path_factory: pytest.TempPathFactory,
) -> Trained:
    form, home = str(request.param), tmp_path_factory.mktemp("home")
    env = variables(world) if where == "bucket" else {}
    place = Bucket(f"gs://kept/{form}", env) if env else Folder(str(home / "saved"))
    python = client("train" if form == "orbax" else "inside")
    done = Trained(Pod(python, home, PROGRAMS / "train_kept.py"), place, form, env)
    well(done.run("train"))
    return done


@pytest.fixture
def location(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in trained.env.items():
        monkeypatch.setenv(name, value)
    return trained.place.location


def test_milestones_the_best_and_the_newest_stay(location: str) -> None:
    found = {one.step: one for one in list_checkpoints(location)}
    assert sorted(found) == KEPT
    assert [step for step in found if found[step].milestone] == [4, 15]
    assert [found[step].metrics.get("score") for step in KEPT] == [None, 0.9, 0.7, 0.2, None]
    assert found[4].metrics == {"loss": 0.25}


def test_only_what_fits_is_loaded_and_every_other_array_is_named(trained: Trained) -> None:
    (told,) = trained.run("strict")
    assert told.status == UNFIT
    assert "belongs to another model: the program has ['added'], the checkpoint" in told.log
    assert "restore(state, partial=True)" in told.log
    (done,) = trained.run("partial")
    assert done.status == 0, done.log[-3000:]
    assert done.said == {
        "start": 20,
        "leaves": {
            "['added']": [7.0], "['key']": [0.0, 3.0], "['layers'][0]['w']": [1.0],
            "['layers'][1]['w']": [1.0], "['layers'][2]['w']": [7.0], "['number']": 1.0,
            "['rows']": [21.0],
        },
    }  # fmt: skip
    assert [line for line in done.log.splitlines() if "herd: " in line][:5] == [
        "herd: loaded 5 of 7 arrays from the checkpoint of step 20",
        "herd: ['added'] keeps its initial value: the checkpoint has no such array",
        "herd: ['layers'][2]['w'] keeps its initial value: the checkpoint has no such array",
        "herd: ['half'] is only in the checkpoint and is left out",
        "herd: resumed at step 20, saved by attempt 1",
    ]


def test_a_copy_on_the_host_is_loaded_and_a_damaged_one_is_passed_over(
    trained: Trained, location: str, tmp_path: Path
) -> None:
    if trained.form == "orbax":
        return
    above, _, run = location.rpartition("/")
    trained.pod.cache.mkdir(exist_ok=True)
    env: dict[str, Any] = {**trained.env, "HERD_AGENT": str(tmp_path)}
    wanted = {**env, "HERD_CHECKPOINT": above, "HERD_RUN_ID": run, "HERD_WORKER": "0",
              "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}  # fmt: skip
    told = {}
    for state in ("whole", "damaged"):
        assert fetch_ahead.main(tmp_path, wanted)["step"] == 20
        (part,) = (tmp_path / COPIES).rglob("part-0")
        content = bytearray(part.read_bytes())
        content[-3] ^= state == "damaged"
        part.write_bytes(content)
        (done,) = trained.pod.run(location, trained.form, "partial", count=1, **env)
        assert done.status == 0, done.log[-3000:]
        told[state] = done
        assert not list((tmp_path / COPIES).rglob("part-0")), "its room is free again"
    from_copy = "resumed at step 20, saved by attempt 1, from the copy fetched to this host"
    assert from_copy in told["whole"].log
    assert "the copy of step 20 on this host's disk is damaged" in told["damaged"].log
    assert from_copy not in told["damaged"].log
    assert told["whole"].said == told["damaged"].said


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("reshaped", "['layers'][1]['w'] is [8, 4] in the checkpoint, [8, 5] in the program"),
        ("stranger", "belongs to another model: it has none of the program's arrays"),
    ],
)
def test_an_impossible_partial_load_is_refused(trained: Trained, what: str, sentence: str) -> None:
    refused(trained.run(what), sentence)


def test_numpy_reads_what_the_training_saved(trained: Trained, location: str) -> None:
    """The tests run without JAX and ml_dtypes."""
    if trained.form == "orbax":
        with pytest.raises(NoCheckpoint, match=r"form 'orbax': read .*/step-00000020/state with"):
            read_checkpoint(location)
        return
    newest = read_checkpoint(location)
    assert {name: (str(array.dtype), array.shape) for name, array in newest.items()} == {
        "['half']": ("float32", (8, 3)), "['key']": ("uint32", (2,)),
        "['layers'][0]['w']": ("float32", (8, 2)), "['layers'][1]['w']": ("float32", (8, 4)),
        "['number']": ("float64", ()), "['rows']": ("float32", (8, 3)),
    }  # fmt: skip
    assert np.all(newest["['half']"] == 1)
    for step, number in ((None, 21), (4, 5), ("best", 7)):
        (rows,) = read_checkpoint(location, step, ["['rows']"]).values()
        assert np.all(rows == number)


def test_the_page_about_the_form_is_enough_to_read_it(trained: Trained) -> None:
    page = (SRC.parent / "docs/reference/checkpoints.md").read_text()
    (reader,) = re.findall(r"```python\n(import json.*?)```", page, re.S)
    words: dict[str, Any] = {}
    exec(reader, words)  # our own page
    if not isinstance(trained.place, Folder) or trained.form == "orbax":
        return
    theirs = words["read_step"](trained.place.path / "step-00000020")
    ours = read_checkpoint(trained.place.location)
    assert {name: array.tolist() for name, array in ours.items()} == {
        name: (widen(array) if array.dtype == np.uint16 else array).tolist()
        for name, array in theirs.items()
    }


def widen(bits: Any) -> Any:
    """Numbers from the bits of bfloat16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def test_a_missing_checkpoint_is_one_sentence(trained: Trained, location: str) -> None:
    with pytest.raises(
        NoCheckpoint, match=r"no complete checkpoint of step 5; it has 4, 6, 12, 15"
    ):
        read_checkpoint(location, 5)
    with pytest.raises(NoCheckpoint, match=r"there is no complete checkpoint in .*/nothing$"):
        read_checkpoint(f"{location}/nothing")
    above, _, name = location.rpartition("/")
    if trained.env:
        with pytest.raises(NoCheckpoint, match=f"there are runs below it: .*{name}"):
            read_checkpoint(above)
    if trained.form == "pieces":
        with pytest.raises(NoCheckpoint, match=r"no array w; it has \['half'\], \['key'\]"):
            read_checkpoint(location, leaves=["w"])


def show(location: str, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tpuherd_host.train.show_checkpoints", location, *words]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)


def test_the_list_of_checkpoints_and_of_arrays(trained: Trained) -> None:
    location, env = trained.place.location, trained.env
    rows = [line.split() for line in show(location, **env).stdout.splitlines()]
    assert [row[0] for row in rows] == ["step", *map(str, KEPT)]
    assert [" ".join(row[7:]) for row in rows[1:]] == [
        "milestone loss=0.25", "best score=0.9", "one of the best 2 score=0.7",
        "milestone score=0.2", "newest loss=0.05",
    ]  # fmt: skip
    assert rows[1][4:7] == ["352", "B", trained.form]
    best = show(location, "best", **env).stdout.splitlines()
    assert best[0].startswith("step 6, run run, attempt 1, saved 2")
    assert best[-1] == "98 numbers in 6 arrays, 352 B"
    assert "['half']            bfloat16  (8, 3)   48 B" in best
    told = json.loads(show(location, "--json", **env).stdout)
    assert [one["step"] for one in told] == KEPT
    assert told[0]["milestone"]
    assert told[0]["bytes"] == 352


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("1", "2"), 2, "usage: python3 -m tpuherd_host.train.show_checkpoints LOCATION"),
        (("last",), 2, "usage: "),
        ((), 1, "there is no complete checkpoint in nowhere"),
    ],
)
def test_a_wrong_list_is_one_sentence(words: tuple[str, ...], status: int, sentence: str) -> None:
    done = show("nowhere", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (status, "", 1)
    assert done.stderr.startswith(sentence)


def test_kill_9_at_any_change_leaves_what_was_promised(tmp_path: Path) -> None:
    """Milestones 3 and 5, the best 4, the newest 7; whatever it dies at."""
    done = subprocess.run(
        [client("inside"), PROGRAMS / "train_deaths.py", tmp_path],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told) > 20, "each of its writes and removals"
    assert [one["lived"] for one in told] == [False] * (len(told) - 1) + [True]
    for one in told:
        after = set(one["after"])
        reached = max(after, default=0)
        assert after >= {step for step in (3, 5) if step <= reached}, one
        assert reached < 4 or 4 in after, one
        assert one["start"] == reached, "it goes on with the newest complete one"
        # If all was done but the last removal, the program had nothing left to save.
        assert one["end"] == [3, 4, 5, 7] or (reached == 7 and one["end"] == [3, 4, 5, 6, 7])
        assert one["files"] == [f"step-{step:08d}" for step in one["end"]], "and nothing else"


def test_a_predecessor_that_thaws_at_any_moment_changes_no_history(tmp_path: Path) -> None:
    done = subprocess.run(
        [client("inside"), PROGRAMS / "train_thaws.py", tmp_path],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told) > 60, "each of its reads and writes, twice"
    for one in told:
        assert (one["by"], one["step"]) == (3, one["saved"]), one
    assert {one["status"] for one in told} == {0, 1}, "it ends as soon as it finds the successor"
    assert "error: a later attempt of this run has begun, so this one ends" in done.stderr


def test_trials_of_a_job_compile_its_programs_once(world: World, tmp_path: Path) -> None:
    shared = Bucket("gs://kept/lr", variables(world))
    compiled, found = [], []
    for trial in ("lr-t1-7kq", "lr-t2-7kq"):
        pod = Pod(client("inside"), tmp_path / trial, PROGRAMS / "train_kept.py")  # another node
        more: dict[str, Any] = {
            **variables(world),
            "HERD_CHECKPOINT": f"{shared.location}/{trial}",
            "HERD_RUN_ID": trial,
            "JAX_LOG_COMPILES": "1",
        }
        (done,) = pod.run("", "", "train", count=1, **more)
        well([done])
        compiled.append(done.log.count("Finished XLA compilation of "))
        found.append(done.log.count("Persistent compilation cache hit"))
    names = shared.names("programs/")
    assert (len(names), found) == (compiled[0], [0, compiled[0]])
    assert names
    assert not shared.names("lr-t1-7kq/programs/")


def test_a_changed_file_is_named(trained: Trained, location: str) -> None:
    """The last test: it damages a checkpoint."""
    if trained.form == "orbax":
        pytest.skip("Orbax reads its own")
    content = bytearray(trained.place.read("step-00000004/part-0"))
    content[-9] ^= 1
    trained.place.write("step-00000004/part-0", [bytes(content)])
    with pytest.raises(DamagedCheckpoint, match="step-00000004/part-0 was changed after it was"):
        read_checkpoint(location, 4)
    trained.place.write("step-00000006/whole.json", [b"{"])
    assert [one.step for one in list_checkpoints(location)] == [4, 12, 15, 20]
