"""Stored logs: however it was written, it is read once, in order, from any offset."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from shutil import rmtree

import pytest

from tpuherd.errors import OperationFailed
from tpuherd.settings.folders import logs_folder
from tpuherd.store import log_store
from tpuherd.store.log_store import (
    ATTEMPTS_KEEP_S,
    KEEP_S,
    SEGMENT_MAX,
    LogHost,
    LogInfo,
    LogStore,
    LogWriter,
)
from tpuherd_host.agent.log_records import JUMP, NUMBER, Record, pack_record

PLACE = LogHost(zone="z", node="n", worker=0, incarnation="1")


def about(id: str, started: float = 1.0) -> LogInfo:
    return LogInfo(id=id, kind="command", title="t", target="n", started=started, places=(PLACE,))


def records(seed: int, many: int) -> list[Record]:
    chance = Random(seed)
    return [
        Record(float(n), chance.choice((1, 2)), chance.randbytes(chance.randrange(0, 300)))
        for n in range(many)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_log_is_read_as_written_from_any_offset(tmp_path: Path, seed: int) -> None:
    shelf, said = LogStore(tmp_path), records(seed, 200)
    writer, offset, ends = shelf.open_writer("w", PLACE), 0, []
    for record in said:
        writer.put(offset, record)
        offset += record.size
        ends.append(offset)
        if Random(seed + offset).random() < 0.05:  # another goes on
            writer.close()
            assert shelf.end_offset("w", PLACE) == offset
            writer = shelf.open_writer("w", PLACE)
    writer.close()
    for start in (0, ends[0], ends[77], ends[-1]):
        left = [(end, one) for end, one in zip(ends, said, strict=True) if end > start]
        assert list(shelf.read_records("w", PLACE, start)) == left


def test_stored_bytes_are_not_written_twice(tmp_path: Path) -> None:
    shelf, said = LogStore(tmp_path), records(1, 10)
    for _ in range(2):
        writer, offset = shelf.open_writer("w", PLACE), 0
        for record in said:
            writer.put(offset, record)
            offset += record.size
        writer.close()
    assert [record for _, record in shelf.read_records("w", PLACE)] == said


def test_only_one_writer_at_a_time(tmp_path: Path) -> None:
    shelf, (first, second) = LogStore(tmp_path), records(1, 2)
    one, other = shelf.open_writer("w", PLACE), shelf.open_writer("w", PLACE)
    one.put(0, first)
    other.put(0, second)
    assert (one.silent, other.silent) == (False, True)
    assert not other.lost
    one.close()
    other.close()
    assert [record for _, record in shelf.read_records("w", PLACE)] == [first]


def test_a_record_cut_by_a_crash_is_written_again(tmp_path: Path) -> None:
    shelf, (first, second) = LogStore(tmp_path), records(3, 2)
    writer = shelf.open_writer("w", PLACE)
    writer.put(0, first)
    writer.put(first.size, second)
    writer.close()
    (file,) = tmp_path.rglob("*.log")
    file.write_bytes(file.read_bytes()[:-1])
    assert shelf.end_offset("w", PLACE) == first.size
    writer = shelf.open_writer("w", PLACE)
    writer.put(first.size, second)
    writer.close()
    assert [record for _, record in shelf.read_records("w", PLACE)] == [first, second]


def test_a_log_leaves_the_last_of_a_disk_to_others_and_continues_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, (first, second) = LogStore(tmp_path), records(3, 2)
    writer = shelf.open_writer("w", PLACE)
    writer.put(0, first)
    writer.flush()
    with monkeypatch.context() as full:
        disk = os.statvfs_result((4096, 4096, 1000, 49, 49, 9, 9, 9, 0, 255))
        full.setattr(os, "statvfs", lambda _: disk)
        writer.put(first.size, second)
        writer.flush()
    assert writer.lost
    assert shelf.end_offset("w", PLACE) == first.size
    writer = shelf.open_writer("w", PLACE)
    writer.put(first.size, second)
    writer.close()
    assert [record for _, record in shelf.read_records("w", PLACE)] == [first, second]


def test_dropped_output_leaves_a_gap_in_order(tmp_path: Path) -> None:
    shelf, (first, second) = LogStore(tmp_path), records(4, 2)
    jump = Record(2.0, JUMP, NUMBER.pack(5000))
    writer = shelf.open_writer("w", PLACE)
    writer.put(0, first)
    writer.put(first.size, jump)
    writer.put(5000, second)
    writer.close()
    assert shelf.end_offset("w", PLACE) == 5000 + second.size
    assert [record for _, record in shelf.read_records("w", PLACE)] == [first, jump, second]
    assert [record for _, record in shelf.read_records("w", PLACE, 5000)] == [second]


def test_large_logs_are_split_into_segments(tmp_path: Path) -> None:
    shelf, piece = LogStore(tmp_path), Record(1.0, 1, b"x" * 65_536)
    writer, offset = shelf.open_writer("w", PLACE), 0
    while offset < 2 * SEGMENT_MAX:
        writer.put(offset, piece)
        offset += piece.size
    writer.close()
    assert len(list(tmp_path.rglob("*.log"))) >= 2
    assert shelf.end_offset("w", PLACE) == offset
    assert sum(1 for _ in shelf.read_records("w", PLACE)) == offset // len(
        pack_record(1.0, 1, piece.piece)
    )


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As on a disk that fills up: a file's beginning is written, its rest is not."""
    limits = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        setrlimit(RLIMIT_FSIZE, limits)


def test_bytes_that_did_not_fit_are_requested_again(tmp_path: Path) -> None:
    shelf = LogStore(tmp_path)
    first, second, third = (Record(float(n), 1, b"x" * 600) for n in range(3))
    writer, gap = shelf.open_writer("w", PLACE), 5000
    with no_file_longer_than(1000):
        writer.put(0, first)
        writer.put(first.size, second)
        writer.put(gap, third)
        writer.close()
    assert (writer.silent, writer.lost) == (True, True)
    assert shelf.end_offset("w", PLACE) == first.size
    writer = shelf.open_writer("w", PLACE)
    writer.put(first.size, second)
    writer.put(gap, third)
    writer.close()
    assert [record for _, record in shelf.read_records("w", PLACE)] == [first, second, third]


def test_a_folder_removed_meanwhile_ends_only_the_log(tmp_path: Path) -> None:
    shelf = LogStore(tmp_path)
    writer = shelf.open_writer("w", PLACE)
    writer.put(0, Record(0.0, 1, b"x"))
    rmtree(tmp_path / "w")
    writer.put(5000, Record(1.0, 1, b"x"))
    assert (writer.silent, writer.lost) == (True, True)
    writer.close()


def test_tasks_are_listed_by_start_and_expire(tmp_path: Path) -> None:
    shelf = LogStore(tmp_path)
    for id, started in (("b", 20.0), ("a", 10.0), ("c", KEEP_S + 15.0)):
        shelf.write_info(about(id, started))
    (tmp_path / "d").mkdir()
    (tmp_path / "d/about.json").write_text("{")
    assert [one.id for one in shelf.list_logs()] == ["a", "b", "c"]
    assert shelf.find_log("c") == about("c", KEEP_S + 15.0)
    assert shelf.find_log("d") is None
    shelf.prune_commands(KEEP_S + 15.0)
    assert [one.id for one in shelf.list_logs()] == ["b", "c"]


def test_attempts_expire_with_their_job_only(tmp_path: Path) -> None:
    shelf = LogStore(tmp_path)
    gone = ["gpt-0-a1-7kq", "gpt-12-a3-7kq", "gpt-12-g2-7kq-setup-4f2a9c-0"]
    ids = [*gone, "gpt-x-0-a1-7kq", "gpt2-0-g1-7kq-setup-4f2a9c-0", "20270115-a7f3"]
    for id in ids:
        shelf.write_info(about(id, 10.0))
    shelf.remove_jobs([])
    assert {one.id for one in shelf.list_logs()} == set(ids)
    shelf.remove_jobs(["gpt", "nobody"])
    assert {one.id for one in shelf.list_logs()} == set(ids) - set(gone)


def test_a_scope_has_a_folder_of_its_own() -> None:
    state = Path("/s")
    places = {
        logs_folder(state, world=None, project="a"),
        logs_folder(state, world=None, project="b"),
        logs_folder(state, world=Path("/w"), project="a"),
        logs_folder(state, world=Path("/v"), project="a"),
    }
    assert len(places) == 4


def test_a_recreated_node_has_a_log_of_its_own(tmp_path: Path) -> None:
    """Also where a store was lost, and the same attempt's name is given out on the same node's."""
    shelf = LogStore(tmp_path)
    anew = replace(PLACE, incarnation="2")
    said = {PLACE: b"all of a long line\n", anew: b"short\n"}
    for place, text in said.items():
        assert shelf.end_offset("gpt-0-a1-7kq", place) == 0
        writer = shelf.open_writer("gpt-0-a1-7kq", place)
        writer.put(0, Record(1.0, 1, text))
        writer.close()
    for place, text in said.items():
        assert [one.piece for _, one in shelf.read_records("gpt-0-a1-7kq", place)] == [text]


@pytest.mark.parametrize("id", ["../../x", "..", ".", "", "a/b", "/etc", "a\n", "a\0"])
def test_no_log_is_outside_our_folder_whatever_its_name(tmp_path: Path, id: str) -> None:
    home = tmp_path / "one" / "two" / "logs"
    shelf = LogStore(home)
    for use in (
        lambda: shelf.open_writer(id, PLACE),
        lambda: shelf.end_offset(id, PLACE),
        lambda: list(shelf.read_records(id, PLACE)),
        lambda: shelf.write_info(about(id)),
        lambda: shelf.open_writer("w", replace(PLACE, node=id)),
        lambda: shelf.open_writer("w", replace(PLACE, zone=id)),
    ):
        with pytest.raises(OperationFailed, match="is not a valid name"):
            use()
    assert shelf.find_log(id) is None
    assert list(tmp_path.iterdir()) == []


def test_of_an_endless_log_the_end_is_kept_and_the_gap_is_reported(
    tmp_path: Path,
) -> None:
    place, most = tmp_path / "w" / PLACE.folder_name, 1 << 16
    writer, offset = LogWriter(place, most), 0
    said = [Record(float(n), 1, b"x" * 500) for n in range(1000)]
    for record in said:
        writer.put(offset, record)
        offset += record.size
    assert writer.dropped
    writer.close()
    assert sum(path.stat().st_size for path in place.iterdir()) <= most
    shelf = LogStore(tmp_path)
    kept = [record for _, record in shelf.read_records("w", PLACE)]
    assert kept[0].port == JUMP
    assert most // 2 < sum(record.size for record in kept[1:]) <= most
    assert kept[1:] == said[-len(kept) + 1 :]
    assert shelf.end_offset("w", PLACE) == offset
    assert [one for _, one in shelf.read_records("w", PLACE, offset - said[-1].size)] == said[-1:]


def test_hosts_of_a_large_attempt_share_the_limit(tmp_path: Path) -> None:
    shelf = LogStore(tmp_path)
    assert shelf.open_writer("few", PLACE).most == log_store.HOST_BYTES_MAX
    shelf.write_info(replace(about("many"), places=(PLACE,) * 64))
    assert shelf.open_writer("many", PLACE).most == log_store.LOG_BYTES_MAX // 64
    shelf.write_info(replace(about("crowd"), places=(PLACE,) * 4096))
    assert shelf.open_writer("crowd", PLACE).most == log_store.HOST_BYTES_MIN


def test_of_a_job_with_too_many_logs_the_oldest_attempts_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_store, "JOB_BYTES_MAX", 2500)
    shelf = LogStore(tmp_path)
    names = ["gpt-0-a1-7kq", "gpt-1-a1-7kq", "gpt-0-a2-7kq", "gpt-0-g1-7kq-setup-12-0"]
    for at, name in enumerate([*names, "gpt2-0-a1-7kq", "other"]):
        writer = shelf.open_writer(name, PLACE)
        writer.put(0, Record(1.0, 1, b"x" * 1000))
        writer.close()
        for path in (tmp_path / name).rglob("*.log"):
            os.utime(path, (at, at))
    assert shelf.trim_job("gpt", newest="gpt-0-g1-7kq-setup-12-0") == ["gpt-0-a1-7kq"]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*names[1:], "gpt2-0-a1-7kq", "other"}
    monkeypatch.setattr(log_store, "JOB_LOGS_MAX", 1)  # as after very many items of a map
    assert shelf.trim_job("gpt", newest="gpt-0-g1-7kq-setup-12-0") == ["gpt-1-a1-7kq"]


def test_a_damaged_log_file_ends_at_the_damage(tmp_path: Path) -> None:
    shelf, said = LogStore(tmp_path), records(4, 3)
    writer, offset = shelf.open_writer("w", PLACE), 0
    for record in said:
        writer.put(offset, record)
        offset += record.size
    writer.close()
    (file,) = tmp_path.rglob("*.log")
    file.write_bytes(file.read_bytes() + b"\xff" * 100)
    assert [record for _, record in shelf.read_records("w", PLACE)] == said


def test_logs_of_attempts_go_with_age_and_those_of_others_stay(tmp_path: Path) -> None:
    shelf, day = LogStore(tmp_path), 86_400.0
    now = 1_800_000_000.0
    ages = {
        "gpt-0-a1-7kq": 100, "gpt-0-a2-7kq": 95, "gpt-0-a3-7kq": 10, "gpt-1-a1-7kq": 100,
        "gpt-0-g1-7kq-setup-1f2e3d-0": 100, "c3-somebodys-command": 100,
    }  # fmt: skip
    for id, age in ages.items():
        shelf.write_info(about(id))
        writer = shelf.open_writer(id, PLACE)
        writer.put(0, records(1, 1)[0])
        writer.close()
        for path in (tmp_path / id, *(tmp_path / id).rglob("*")):
            os.utime(path, (now - age * day, now - age * day))
    (writing,) = (tmp_path / "gpt-0-a2-7kq").glob("*/*.log")
    os.utime(writing, (now, now))  # it runs still
    assert shelf.prune_attempts(now - ATTEMPTS_KEEP_S, {"gpt-1-a1-7kq"}) == 2
    left = {path.name for path in tmp_path.iterdir()}
    assert left == set(ages) - {"gpt-0-a1-7kq", "gpt-0-g1-7kq-setup-1f2e3d-0"}
    assert shelf.prune_attempts(now - ATTEMPTS_KEEP_S, {"gpt-1-a1-7kq"}) == 0
