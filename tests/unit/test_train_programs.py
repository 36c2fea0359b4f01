"""Compiled programs go from trial to trial, and never take more room than they may."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tpuherd_host.train import compile_cache, process_env
from tpuherd_host.train.compile_cache import PAUSE_S, ProgramCache, outdated_files
from tpuherd_host.train.storage import Bytes, FileFacts, Folder, Unreachable, above_run, of_run

WHOLE = b"whole "


@pytest.fixture(autouse=True)
def jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's reader of its programs."""

    def decompress(content: bytes) -> None:
        if not content.startswith(WHOLE):
            raise ValueError("half of it")

    monkeypatch.setattr(compile_cache, "cache", SimpleNamespace(decompress_executable=decompress))


def node(tmp_path: Path, name: str, shared: Folder, room: int = 1000) -> ProgramCache:
    found = ProgramCache(shared, tmp_path / name, room)
    found.fetch()
    return found


def compile_program(cache: ProgramCache, name: str, content: bytes = WHOLE) -> Path:
    assert cache.folder is not None
    cache.folder.mkdir(exist_ok=True)
    file = cache.folder / f"{name}-cache"
    file.write_bytes(content)
    (cache.folder / f"{name}-atime").write_bytes(b"")
    return file


def share(cache: ProgramCache) -> None:
    cache.share_new()
    if cache.busy is not None:
        cache.busy.join()


def programs(cache: ProgramCache) -> list[str]:
    assert cache.folder is not None
    return sorted(file.name for file in cache.folder.glob("*-cache"))


def test_what_one_compiles_the_others_have_as_soon_as_it_is_new(tmp_path: Path) -> None:
    shared = Folder(str(tmp_path / "job"))
    first, second = (node(tmp_path, name, shared) for name in ("a", "b"))
    share(first)
    assert first.busy is None, "there is nothing to hand on"
    compile_program(first, "step")
    share(first)
    assert shared.names() == ["programs/step-cache"]
    compile_program(second, "evaluate")
    share(second)
    assert programs(second) == ["evaluate-cache", "step-cache"], "and it takes what is new there"
    assert programs(node(tmp_path, "c", shared)) == ["evaluate-cache", "step-cache"]
    compile_program(first, "late")
    first.close()
    assert len(shared.names()) == 3


def test_a_half_written_program_waits_until_it_is_whole(tmp_path: Path) -> None:
    shared = Folder(str(tmp_path / "job"))
    one = node(tmp_path, "a", shared)
    file = compile_program(one, "step", b"who")
    share(one)
    assert not shared.names()
    one.busy = None
    share(one)
    assert one.busy is None, "it is not read again until it has grown"
    file.write_bytes(WHOLE)
    share(one)
    assert shared.names() == ["programs/step-cache"]
    file.write_bytes(b"who")
    assert programs(node(tmp_path, "a", shared)) == ["step-cache"]
    assert file.read_bytes() == WHOLE, "a damaged one is fetched anew"


def test_the_oldest_programs_are_evicted_and_not_passed_on_again(tmp_path: Path) -> None:
    shared = Folder(str(tmp_path / "job"))
    one = node(tmp_path, "a", shared, room=3 * len(WHOLE))
    for number in range(5):
        compile_program(one, str(number))
        share(one)
        path = shared.path / f"programs/{number}-cache"
        os.utime(path, (number, number))
    assert shared.names() == [f"programs/{number}-cache" for number in (2, 3, 4)]
    one.busy = None
    share(one)
    assert one.busy is None
    assert len(programs(one)) == 5, "they stay where they were compiled"


def test_no_more_is_fetched_than_fits_whoever_wrote_it(tmp_path: Path) -> None:
    shared = Folder(str(tmp_path / "job"))
    shared.write("programs/step-cache", [WHOLE])
    shared.write("programs/large-cache", [WHOLE * 100])
    os.utime(shared.path / "programs/large-cache", (1, 1))
    assert programs(node(tmp_path, "a", shared, room=50)) == ["step-cache"]
    assert programs(node(tmp_path, "b", shared, room=1000)) == ["large-cache", "step-cache"]


def test_what_is_deleted() -> None:
    facts = {name: FileFacts(10, at) for name, at in (("b", 2.0), ("a", 1.0), ("c", 3.0))}
    assert outdated_files(facts, 30) == []
    assert outdated_files(facts, 29) == ["a"]
    assert outdated_files(facts, 0) == ["a", "b", "c"]


class Away(Folder):
    """A location that can't be reached."""

    asked = 0

    def file_facts(self, beginning: str = "") -> dict[str, FileFacts]:
        self.asked += 1
        raise Unreachable("no")

    def write(self, name: str, pieces: Sequence[Bytes]) -> None:
        raise AssertionError


def test_a_location_that_is_away_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(process_env, "monotonic_time", lambda: now[0])
    away = Away(str(tmp_path / "job"))
    one = node(tmp_path, "a", away)
    compile_program(one, "step")
    for now[0] in (1.0, 2.0, PAUSE_S, PAUSE_S + 2):
        share(one)
    assert away.asked == 3, "once at the start, and once a minute"


def test_nothing_without_a_cache_of_jax(tmp_path: Path) -> None:
    one = ProgramCache(Folder(str(tmp_path)), None)
    one.fetch()
    one.close()
    assert one.busy is None


@pytest.mark.parametrize("told", ["gs://b/lr", "gs://b/lr/lr-t3-1a"])
def test_trials_and_runs_share_the_folder_above_their_own(told: str) -> None:
    assert above_run(of_run(told, "lr-t3-1a"), "lr-t3-1a") == "gs://b/lr"
