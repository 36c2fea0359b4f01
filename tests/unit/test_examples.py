"""The examples: valid jobs, shards that are a partition, checkpoints that are found."""

import io
import os
import subprocess
import sys
import tarfile
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from examples.prepare import prepare
from examples.recipes.saves import Saves
from examples.vision import pictures
from hypothesis import given, settings
from hypothesis import strategies as st

import tpuherd
from tpuherd_host.train import Shards, Split
from tpuherd_host.train.sample_split import InvalidSetup
from tpuherd_host.train.storage import FileFacts

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = sorted(EXAMPLES.rglob("*.yaml"))
RECIPES = sorted((EXAMPLES / "recipes").glob("*.yaml"))
TRAINERS = {"big-vision", "clipa", "easylm", "levanter", "maxtext", "pytorch", "pytorch-xla",
            "wandb-sweep"}  # fmt: skip


class Killed(Exception):
    """The node is gone."""


class Box:
    """A place in memory. Its writer dies at a write: before it, or when it is done."""

    def __init__(self, files: dict[str, bytes], writes: int = 1000, after: bool = False) -> None:
        self.location, self.files, self.writes, self.after = "box", files, writes, after

    def names(self, beginning: str = "") -> list[str]:
        return sorted(name for name in self.files if name.startswith(beginning))

    def file_checksums(self, beginning: str = "") -> dict[str, int]:
        raise AssertionError("nobody asks for them")

    def file_facts(self, beginning: str = "") -> dict[str, FileFacts]:
        raise AssertionError("nobody asks for them")

    def read(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def write(self, name: str, pieces: Sequence[bytes | memoryview]) -> None:
        self.writes -= 1
        if self.writes >= 0 or self.after:
            self.files[name] = b"".join(pieces)
        if self.writes < 0:
            raise Killed(name)

    def remove(self, beginning: str) -> None:
        raise AssertionError("nothing is ever removed")


def asked(samples: int = 3, form: str = "tar", classes: bool = False) -> Namespace:
    return Namespace(source="in", target="box", samples=samples, form=form, classes=classes)


def sources(many: int) -> dict[str, bytes]:
    """Samples in two folders, some with a second file."""
    names = [f"{'ab'[one % 2]}/{one}.jpg" for one in range(many)]
    names += [f"{'ab'[one % 2]}/{one}.txt" for one in range(0, many, 3)]
    return {name: f"content of {name}".encode() for name in names}


def node(source: Box, target: Box, words: Namespace, worker: int, workers: int) -> None:
    """What the program does."""
    plan = prepare.agreed(target, lambda: prepare.planned(source.names(), words))
    for shard in prepare.turns(len(plan.shards), worker, workers):
        prepare.pack(plan, shard, source, target)


def packed(target: dict[str, bytes]) -> dict[str, bytes]:
    """Every file in the shards; none may be there twice."""
    found: dict[str, bytes] = {}
    for name, content in target.items():
        if name.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for entry in archive:
                    assert entry.name not in found
                    reader = archive.extractfile(entry)
                    assert reader is not None
                    found[entry.name] = reader.read()
    return found


@pytest.mark.parametrize("file", JOBS, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_every_job_file_is_valid(file: Path) -> None:
    assert tpuherd.Job.load(file).document["run"]


def test_every_trainer_has_a_recipe() -> None:
    assert {tpuherd.Job.load(file).name for file in RECIPES} == TRAINERS


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_a_recipe_resumes_and_names_its_source(file: Path) -> None:
    text, fields = file.read_text(), tpuherd.Job.load(file).document
    for word in ("# Contract:", "# Source:", "# Run on the simulator: "):
        assert word in text
    assert fields["checkpoint"].startswith("gs://")
    # The others' own programs find it.
    ours = {
        "pytorch": "pytorch.py",
        "pytorch-xla": "pytorch_xla.py",
        "wandb-sweep": "tpuherd_host.train.wandb_agent",
    }
    assert ours.get(fields["name"], "HERD_CHECKPOINT") in fields["run"]
    assert "RUN_ID" in text


@pytest.mark.parametrize(
    ("resume", "there", "step"),
    [("0", [500], ""), ("1", [], ""), ("1", [500, 1000, 20500, 9500], "20500")],
)
def test_easylm_resumes_from_its_newest_checkpoint(
    tmp_path: Path, resume: str, there: list[int], step: str
) -> None:
    at = "gs://b/easylm/run-1"
    listed = "".join(f"{at}/streaming_train_state_{one}\\n" for one in there)
    programs = {"gcloud": f"printf '{listed}'", "python3": 'printf "%s\\n" "$@"'}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "HERD_CHECKPOINT": "gs://b/easylm",
        "RUN_ID": "run-1", "HERD_RESUME": resume,
    }  # fmt: skip
    run = tpuherd.Job.load(EXAMPLES / "recipes/easylm.yaml").document["run"]
    done = subprocess.run(["bash", "-c", run], env=env, capture_output=True, text=True)
    said = done.stdout.splitlines()
    state = f"trainstate::{at}/streaming_train_state_{step}" if step else ""
    assert f"--load_checkpoint={state}" in said
    assert f"--load_dataset_state={f'{at}/dataset_{step}.pkl' if step else ''}" in said


def test_a_plain_script_finds_its_newest_checkpoint(tmp_path: Path) -> None:
    env = {"HERD_CHECKPOINT": str(tmp_path), "RUN_ID": "torch-0-1"}
    assert Saves(env).newest() == (0, None)
    for step in (200, 400, 1000):
        Saves(env).keep(step, b"%d" % step)
    assert Saves(env).newest() == (1000, b"1000")
    assert len(list((tmp_path / "torch-0-1").iterdir())) == 2
    assert Saves({**env, "RUN_ID": "another"}).newest() == (0, None)


def test_a_trial_of_the_sweep_resumes_and_ends_as_if_uninterrupted(tmp_path: Path) -> None:
    def told(place: str, steps: int) -> list[str]:
        words = [sys.executable, str(EXAMPLES / "sweep/train.py"), "--width=3", f"--steps={steps}"]
        env = {**os.environ, "HERD_CHECKPOINT": str(tmp_path / place)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    _, whole = told("calm", 2000)
    assert told("cut", 1500)[0] == "begins at step 0"
    assert told("cut", 2000) == ["begins at step 1000", whole]


@given(st.integers(1, 60), st.integers(1, 20), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_plan_is_a_partition_whatever_the_order_of_the_list(
    many: int, samples: int, chance: object
) -> None:
    names = list(sources(many))
    plan = prepare.planned(names, asked(samples))
    files = Counter(name for shard in plan.shards for sample in shard for name in sample)
    assert files == Counter(names)
    assert {len(shard) for shard in plan.shards[:-1]} <= {samples}
    assert 1 <= len(plan.shards[-1]) <= samples
    chance.shuffle(names)  # type: ignore[attr-defined]
    assert prepare.planned(names, asked(samples)) == plan


@given(st.integers(0, 40), st.integers(1, 9))
def test_every_worker_reaches_every_shard_and_its_own_first(shards: int, workers: int) -> None:
    turns = [list(prepare.turns(shards, worker, workers)) for worker in range(workers)]
    assert all(sorted(one) == list(range(shards)) for one in turns)
    own = [one[: len(range(worker, shards, workers))] for worker, one in enumerate(turns)]
    assert sorted(chain(*own)) == list(range(shards))


DEATHS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 6), st.booleans()), max_size=6
)


@given(st.integers(1, 25), st.integers(1, 6), DEATHS)
@settings(deadline=None, max_examples=60)
def test_every_file_is_packed_once_whatever_dies(
    many: int, samples: int, deaths: list[tuple[int, int, int, bool]]
) -> None:
    words, files = asked(samples, classes=True), sources(many)
    calm: dict[str, bytes] = {}
    node(Box(files), Box(calm), words, 0, 1)
    assert {name: packed(calm)[name] for name in files} == files
    stormy: dict[str, bytes] = {}
    for workers, worker, writes, after in deaths:  # scaled between any two of them, too
        try:
            node(Box(files), Box(stormy, writes, after), words, worker % workers, workers)
        except Killed:
            pass
    begun = prepare.PLAN in stormy
    later = {**files, "a/late.jpg": b"came when others were packed"}
    node(Box(later), Box(stormy), words, 1, 3)
    if begun:
        assert stormy == calm
    else:
        assert packed(stormy).keys() >= later.keys()


@given(st.integers(1, 20), st.lists(st.integers(0, 2), max_size=40))
@settings(deadline=None, max_examples=40)
def test_concurrent_workers_do_not_disturb_each_other(many: int, order: list[int]) -> None:
    source, target = Box(sources(many)), Box({})
    plan = prepare.agreed(target, lambda: prepare.planned(source.names(), asked(2)))
    workers = [prepare.turns(len(plan.shards), worker, 3) for worker in range(3)]
    for worker in [*order, *[0] * len(plan.shards)]:
        shard = next(workers[worker], None)
        if shard is not None:
            prepare.pack(plan, shard, source, target)
    assert packed(target.files) == source.files
    assert prepare.told(plan, target) == f"{many} samples in {len(plan.shards)} shards"


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([], "nothing to pack in in"),
        (["a/.hidden"], "nothing to pack"),
        (["a/README"], "a/README has no ending"),
        (["a/1.jpg", "a/1.JPG"], "two files of a/1 have the same ending"),
    ],
)
def test_an_unpackable_input_is_one_sentence(names: list[str], sentence: str) -> None:
    with pytest.raises(InvalidSetup, match=sentence):
        prepare.planned(names, asked())


def test_a_destination_started_with_other_options_is_refused() -> None:
    source, target = Box(sources(9)), Box({})
    node(source, target, asked(4), 0, 1)
    plan = prepare.agreed(target, lambda: prepare.planned([], asked()))
    prepare.same(plan, asked(4))
    for other in (asked(5), asked(4, "tfrecord"), asked(4, classes=True)):
        with pytest.raises(
            InvalidSetup, match="was started with --form tar --samples 4: use the same"
        ):
            prepare.same(plan, other)
    del target.files[prepare.PLAN]
    with pytest.raises(InvalidSetup, match="shards of another plan"):
        node(source, target, asked(3), 0, 1)


def test_workers_are_named_by_slot_and_host() -> None:
    assert prepare.me({}) == (0, 1)
    slot = {"HERD_SLOT": "2", "HERD_SLOTS": "3", "HERD_WORKER": "1", "HERD_WORKERS": "4"}
    assert prepare.me(slot) == (9, 12)
    assert prepare.me({"HERD_SLOT": "3", "HERD_SLOTS": "2"}) == (3, 4)  # scaled down meanwhile


def test_a_record_is_an_example_of_bytes() -> None:
    assert prepare.example({"a": b"b"}) == bytes.fromhex("0a0c0a0a0a016112050a030a0162")
    assert prepare.field(2, b"x" * 300)[:3] == bytes.fromhex("12ac02")


def test_the_pictures_are_shards_shared_by_hosts(tmp_path: Path) -> None:
    pictures.made(tmp_path, shards=3, each=8, held_out=2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    pictures.made(tmp_path, shards=3, each=8, held_out=2)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    shards = Shards(sorted(tmp_path.glob("train-*.tar")))
    assert shards.sizes == (8, 8, 8)
    labels = []
    for host in range(2):
        split = Split(sizes=shards.sizes, batch=8, host=host, hosts=2, seed=7)
        for step in range(split.steps):
            for sample in split.at(step):
                found = shards[sample.shard][sample.place]
                head, _, pixels = bytes(found["ppm"]).partition(b"\n")  # type: ignore[arg-type]
                assert head == b"P6 24 24 255"
                assert len(pixels) == 24 * 24 * 3
                labels.append(int(found["cls"]))
    assert Counter(labels) == dict.fromkeys(range(len(pictures.FORMS)), 4)
