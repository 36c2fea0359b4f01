"""A host's copy of a checkpoint: what is fetched, when it counts, and how much room it takes."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tpuherd_host.agent.rpc_fetch import parse_result
from tpuherd_host.agent.state_machine.transition import CallRefused
from tpuherd_host.train import fetch_ahead
from tpuherd_host.train.checkpoint_commit import (
    NAME,
    Commit,
    DamagedCheckpoint,
    parse_commit,
    step_folder,
)
from tpuherd_host.train.fetch_ahead import choose_parts, copy_file, main
from tpuherd_host.train.fetched_copy import COPIES, CopiedFiles, find_copy, remove_copy
from tpuherd_host.train.part_files import ArraySlice, PartReader, encode_part
from tpuherd_host.train.storage import Folder

RUN = "gpt-0-1234"
PROCESSES = 3


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "agent"
    folder.mkdir()
    monkeypatch.setenv("HERD_AGENT", str(folder))
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "job" / RUN))


def save(saved: Folder, step: int, made: float = 1.0) -> None:
    """A checkpoint of three processes; each holds one row of an array."""
    parts = {}
    for number in range(PROCESSES):
        row = np.full((1, 4), step * 10 + number)
        name = f"{step_folder(step)}part-{number}"
        pieces = encode_part([ArraySlice("rows", (PROCESSES, 4), (number, 0), row)])
        saved.write(name, pieces)
        parts[name] = sum(len(one) for one in pieces)
    commit = Commit(step=step, made=made, form="pieces", parts=parts)
    saved.write(step_folder(step) + NAME, [commit.to_json_bytes()])


def fetch(tmp_path: Path, agent: Path, process: int = 1) -> dict[str, object]:
    return main(agent, {
        "HERD_CHECKPOINT": str(tmp_path / "job"), "HERD_RUN_ID": RUN, "HERD_WORKER": str(process),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"),
    })  # fmt: skip


def copied(agent: Path) -> list[str]:
    return sorted(path.name for path in (agent / COPIES).rglob("*") if path.is_file())


def find(saved: Folder, step: int) -> CopiedFiles | None:
    return find_copy(saved, step, saved.read(step_folder(step) + NAME))


def rows(source: Folder | CopiedFiles, saved: Folder, step: int) -> list[int]:
    commit = parse_commit(saved.read(step_folder(step) + NAME))
    found = PartReader(source, sorted(commit.parts)).read_whole("rows")
    return [int(row[0]) for row in found]


def test_a_host_fetches_its_part_and_the_first_and_reads_the_rest_where_it_is(
    tmp_path: Path, agent: Path, saved: Folder
) -> None:
    save(saved, 1)
    save(saved, 2)
    Folder(str(tmp_path / "job")).write("programs/step-cache", [b"code"])
    found = fetch(tmp_path, agent)
    assert (found["step"], found["programs"], found["trouble"]) == (2, 1, "")
    assert copied(agent) == ["part-0", "part-1", NAME]
    assert (tmp_path / "jax" / "step-cache").read_bytes() == b"code"
    copy = find(saved, 2)
    assert copy is not None
    for number in (0, 1):
        (saved.path / step_folder(2) / f"part-{number}").unlink()
    assert rows(copy, saved, 2) == [20, 21, 22]
    assert copy.was_read


def test_only_the_copy_of_this_very_save_counts(tmp_path: Path, agent: Path, saved: Folder) -> None:
    save(saved, 2, made=1.0)
    assert find(saved, 2) is None
    fetch(tmp_path, agent)
    assert find(saved, 2) is not None
    save(saved, 2, made=2.0)
    assert find(saved, 2) is None, "the step was saved again"
    save(saved, 3)
    assert find(saved, 3) is None, "a newer one is not here"
    fetch(tmp_path, agent)
    assert find(saved, 3) is not None
    assert copied(agent) == ["part-0", "part-1", NAME], "there is one copy at a time"
    remove_copy(saved)
    assert copied(agent) == []
    assert find(saved, 3) is None


def test_a_damaged_copy_is_noticed_and_a_missing_file_is_read_where_it_is(
    tmp_path: Path, agent: Path, saved: Folder
) -> None:
    save(saved, 2)
    fetch(tmp_path, agent)
    copy = find(saved, 2)
    assert copy is not None
    file = copy.copy.path / step_folder(2) / "part-1"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedCheckpoint, match="part-1 was changed"):
        rows(copy, saved, 2)
    file.write_bytes(content[:-5])
    with pytest.raises(DamagedCheckpoint):
        rows(copy, saved, 2)
    file.unlink()
    assert rows(copy, saved, 2) == [20, 21, 22]
    assert fetch(tmp_path, agent)["step"] == 2
    assert file.read_bytes() == content, "a repeated fetch brings what is missing"


def test_only_parts_that_fit_are_fetched_the_own_one_first(
    tmp_path: Path, agent: Path, saved: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{step_folder(7)}part-{number}" for number in range(3)]
    commit = Commit(step=7, form="pieces", parts=dict(zip(names, (30, 40, 50), strict=True)))
    assert choose_parts(commit, 2, 80) == {names[2]: 50, names[0]: 30}
    assert choose_parts(commit, 2, 79) == {names[2]: 50}
    assert choose_parts(commit, 2, 49) == {names[0]: 30}
    assert choose_parts(commit, 2, 29) == {}
    assert choose_parts(commit, 9, 99) == {names[0]: 30}, "a pod that has grown"
    assert choose_parts(Commit(step=7, form="orbax", parts={"a": 1}), 0, 99) == {}
    save(saved, 2)
    monkeypatch.setattr(fetch_ahead, "COPY_BYTES_MAX", 10)
    assert fetch(tmp_path, agent)["step"] is None
    assert copied(agent) == []


def test_without_a_checkpoint_nothing_is_fetched(tmp_path: Path, agent: Path) -> None:
    assert fetch(tmp_path, agent) == {"step": None, "bytes": 0, "programs": 0, "trouble": ""}
    assert copied(agent) == []


def test_a_damaged_checkpoint_is_named_and_left_to_the_attempt(
    tmp_path: Path, agent: Path, saved: Folder
) -> None:
    saved.write(step_folder(2) + NAME, [b"{"])
    assert "can't be read" in str(fetch(tmp_path, agent)["trouble"])
    save(saved, 2)
    part = saved.path / step_folder(2) / "part-1"
    part.write_bytes(part.read_bytes()[:-1])
    assert "has another size" in str(fetch(tmp_path, agent)["trouble"])
    assert "part-1" not in copied(agent)


class Vanishing(Folder):
    """Somebody frees the copy's room while it is fetched."""

    def __init__(self, location: str, copies: Path) -> None:
        super().__init__(location)
        self.copies = copies

    def read(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        content = super().read(name, first, length)
        shutil.rmtree(self.copies, ignore_errors=True)
        return content


def test_a_fetch_ends_when_its_copy_is_removed(agent: Path, saved: Folder) -> None:
    save(saved, 2)
    name = f"{step_folder(2)}part-1"
    target = agent / COPIES / "key" / name
    target.parent.mkdir(parents=True)
    size = (saved.path / name).stat().st_size
    with pytest.raises(FileNotFoundError):
        copy_file(Vanishing(saved.location, agent / COPIES), name, size, target)
    assert not (agent / COPIES).exists()


def test_a_large_part_is_fetched_in_pieces(
    agent: Path, saved: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_ahead, "PIECE", 1000)
    content = os.urandom(12_345)
    saved.write("big", [content])
    copy_file(saved, "big", len(content), agent / "big")
    assert (agent / "big").read_bytes() == content


def test_what_a_fetch_printed() -> None:
    assert parse_result(json.dumps({"step": 3}), "", 0) == {"step": 3}
    for said, errors, status, sentence in (
        ("", "Traceback\nImportError: no\n", 1, "ImportError: no"),
        ("", "", -9, "it ended with status -9"),
        ("[]", "", 0, "it ended with status 0"),
    ):
        with pytest.raises(CallRefused) as refused:
            parse_result(said, errors, status)
        assert refused.value.sentence == sentence
