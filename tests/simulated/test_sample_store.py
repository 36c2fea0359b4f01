"""What the sample store keeps, for how long, and what it does about a damaged or full disk."""

import math
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuherd.errors import OperationFailed
from tpuherd.model.samples import ChipSample, HostSample, Series, SeriesName
from tpuherd.store import sample_file, sample_store
from tpuherd.store.sample_store import SampleStore

START = 1_790_000_000.0
DAY = 86_400.0
GIB = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SampleStore]:
    opened = SampleStore(tmp_path)
    yield opened
    opened.close()


def sample(
    at: float, host: str = "gpt-0-g1-me/w0", cpu: float = 12.5, chips: int = 4
) -> HostSample:
    return HostSample(
        host=host, job="gpt", slot="gpt-0", at=at, cpu_percent=cpu, ram_used=8 * GIB,
        ram_total=400 * GIB, disk_free=90 * GIB, disk_total=100 * GIB, net_in=5000.0, net_out=None,
        chips=tuple(
            ChipSample(hbm_used=(chip + 1) * GIB, hbm_total=32 * GIB, duty_percent=90.0 + chip)
            for chip in range(chips)
        ),
    )  # fmt: skip


def value(
    name: str, at: float, number: float, slot: str = "gpt-0"
) -> tuple[SeriesName, float, float]:
    return SeriesName(job=slot.rpartition("-")[0], slot=slot, name=name), at, number


def put_day(store: SampleStore, begin: float, end: float, step_s: float = 10.0) -> None:
    at = begin
    while at < end:
        cpu = 100.0 if at == begin + 30 * step_s else 5.0
        store.put_samples([sample(at, cpu=cpu)], [value("loss", at, 1000.0 / (at - begin + 100))])
        at += step_s


def only(found: list[Series]) -> Series:
    assert len(found) == 1, [one.name for one in found]
    return found[0]


def test_what_was_put_is_read_by_another_process(store: SampleStore, tmp_path: Path) -> None:
    store.put_samples([sample(START)], [value("loss", START, 2.5), value("step", START, 10.0)])
    reader = SampleStore(tmp_path)
    assert reader.latest_hosts() == {"gpt-0-g1-me/w0": sample(START)}
    series = reader.read_series("gpt", since=START - 60, until=START + 60)
    found = {(one.name.host, one.name.chip, one.name.name): one.points[0].mean for one in series}
    assert found["", None, "loss"] == 2.5
    assert found["gpt-0-g1-me/w0", None, "cpu"] == 12.5
    assert found["gpt-0-g1-me/w0", 3, "hbm_used"] == 4 * GIB
    assert ("gpt-0-g1-me/w0", None, "net_out") not in found
    assert [one.name.name for one in series[:2]] == ["loss", "step"]
    chosen = reader.read_series("gpt", ("duty",), since=START, until=START, of="gpt-0-g1-me/w0")
    assert [(one.name.chip, one.points[0].mean) for one in chosen] == [
        (0, 90.0), (1, 91.0), (2, 92.0), (3, 93.0),
    ]  # fmt: skip
    assert len(reader.read_series("gpt", ("cpu",), since=START, until=START, of="gpt-0")) == 1
    assert reader.read_series("gpt", ("cpu",), since=START, until=START, of="gpt-1") == []
    assert reader.read_series("other", since=START, until=START) == []
    reader.close()


def test_a_change_is_counted_once(store: SampleStore, tmp_path: Path) -> None:
    reader = SampleStore(tmp_path)
    nothing = reader.change_counter()
    store.put_samples([sample(START)], [])
    first = reader.change_counter()
    assert nothing != first == reader.change_counter()
    store.put_samples([sample(START + 10)], [])
    assert reader.change_counter() != first
    reader.close()


def test_a_missing_file_is_no_error_for_readers(tmp_path: Path) -> None:
    reader = SampleStore(tmp_path)
    assert reader.latest_hosts() == {}
    assert reader.read_series("gpt", since=0.0, until=START) == []
    assert list(tmp_path.iterdir()) == []


def test_days_are_kept_in_full_then_by_ten_minutes_then_not_at_all(store: SampleStore) -> None:
    put_day(store, START, START + 2 * DAY, step_s=60.0)
    end = START + 2 * DAY
    loss = only(store.read_series("gpt", ("loss",), since=START, until=end, points=10_000))
    ages = [end - point.at for point in loss.points]
    young = [age for age in ages if age < DAY - 1200]
    old = [age for age in ages if age > DAY + 1200]
    assert len(young) == pytest.approx((DAY - 1200) / 60, abs=2)
    assert len(old) == pytest.approx((DAY - 1200) / 600, rel=0.35)
    cpu = only(store.read_series("gpt", ("cpu",), since=START, until=end))
    assert len(cpu.points) <= 600
    assert max(point.high for point in cpu.points) == 100.0, "a peak of a minute is kept"
    store.put_samples([sample(START + 40 * DAY)], [])
    kept = store.read_series("gpt", ("loss",), since=START, until=START + 40 * DAY)
    assert kept == [] or min(point.at for point in kept[0].points) > START + 9 * DAY


def test_thirty_days_are_bounded(store: SampleStore) -> None:
    put_day(store, START, START + 3 * DAY, step_s=300.0)
    with sqlite3.connect(store.file) as connection:
        rows = [connection.execute(f"SELECT count(*) FROM {one}").fetchone()[0]
                for one in ("fine_rows", "coarse_rows")]  # fmt: skip
    assert rows[0] < 12 and rows[1] < 400


def test_the_file_is_trimmed_at_its_bound(
    store: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_store, "TRIM_BYTES", 200_000)
    monkeypatch.setattr(sample_store, "TRIM_CHUNKS", 40)
    for row in range(2000):
        at = START + row * 60.0
        noise = [value(f"m{n}", at, math.sin(row * n)) for n in range(20)]
        store.put_samples([], noise)
    assert store.file.stat().st_size < 500_000
    newest = only(store.read_series("gpt", ("m3",), since=START, until=START + 2000 * 60.0))
    assert newest.points[-1].at == START + 1999 * 60.0


def test_a_clock_that_jumps_back_loses_nothing(store: SampleStore) -> None:
    for at in (*range(0, 1800, 10), *range(300, 2400, 10)):
        store.put_samples([], [value("loss", START + at, float(at))])
    loss = only(store.read_series("gpt", ("loss",), since=START, until=START + 2400, points=1000))
    assert len(loss.points) == 180 + 210
    assert [point.at for point in loss.points] == sorted(point.at for point in loss.points)


def test_a_gap_of_a_day_is_not_averaged_over(store: SampleStore) -> None:
    for at in (0.0, 10.0, DAY, DAY + 10.0, DAY + 1200.0):
        store.put_samples([], [value("loss", START + at, at)])
    loss = only(store.read_series("gpt", ("loss",), since=START, until=START + 2 * DAY, points=50))
    assert [round(point.at - START) for point in loss.points] == [5, 86400, 86410, 87600]


def test_an_engine_that_was_killed_continues(tmp_path: Path) -> None:
    first = SampleStore(tmp_path)
    for at in range(0, 400, 10):
        first.put_samples([], [value("loss", START + at, 1.0)])
    second = SampleStore(tmp_path)  # the first did not close
    for at in range(400, 2000, 10):
        second.put_samples([], [value("loss", START + at, 1.0)])
    loss = only(second.read_series("gpt", ("loss",), since=START, until=START + 2000, points=500))
    assert len(loss.points) == 200
    first.close()
    second.close()


def test_nan_and_infinite_losses_are_kept(store: SampleStore) -> None:
    numbers = [1.0, math.nan, math.inf, -math.inf, 1e300, 2.0]
    store.put_samples([], [value("loss", START + n, one) for n, one in enumerate(numbers)])
    put_day(store, START + 3000, START + 3020)
    loss = only(store.read_series("gpt", ("loss",), since=START, until=START + 20))
    assert [str(point.mean) for point in loss.points] == list(map(str, numbers))
    (thin,) = only(
        store.read_series("gpt", ("loss",), since=START, until=START + 20, points=1)
    ).points
    assert math.isnan(thin.mean) and (thin.low, thin.high) == (-math.inf, math.inf)


def test_a_slot_has_a_bounded_number_of_names(store: SampleStore) -> None:
    for batch in range(10):
        many = [value(f"m{batch}-{n}", START + batch, 1.0) for n in range(100)]
        store.put_samples([], many)
    assert len(store.read_series("gpt", since=START, until=START + 100)) == 200


def test_a_damaged_file_is_set_aside_once(store: SampleStore, tmp_path: Path) -> None:
    store.put_samples([sample(START)], [])
    store.close()
    store.file.write_bytes(b"no database " * 1000)
    reader = SampleStore(tmp_path)
    assert reader.latest_hosts() == {}
    with pytest.raises(OperationFailed, match="can't be read"):
        reader.read_series("gpt", since=START, until=START)
    with pytest.raises(OperationFailed, match=r"were damaged; they are in .*samples\.damaged now"):
        store.put_samples([sample(START + 10)], [])
    store.put_samples([sample(START + 20)], [])
    assert list(reader.latest_hosts().values()) == [sample(START + 20)]
    reader.close()


def test_damage_within_the_file_is_found_while_writing(store: SampleStore) -> None:
    for at in range(0, 4000, 10):
        store.put_samples([sample(START + at)], [])
    store.close()
    with store.file.open("r+b") as file:
        for page in range(1, store.file.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(os.urandom(512))
    with pytest.raises(OperationFailed, match="damaged"):
        for at in range(4000, 6000, 10):
            store.put_samples([sample(START + at)], [])
    store.put_samples([sample(START + 6000)], [])
    assert list(store.latest_hosts()) == ["gpt-0-g1-me/w0"]


def test_a_damaged_chunk_loses_only_itself(store: SampleStore) -> None:
    put_day(store, START, START + 3600)
    with sqlite3.connect(store.file) as connection:
        (many,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
        connection.execute(
            "UPDATE chunks SET body = x'00'"
            " WHERE id = (SELECT min(id) FROM chunks WHERE source = 2)"
        )
        connection.execute("UPDATE fine_rows SET body = x'c1'")
    connection.close()
    assert many > 6
    loss = only(store.read_series("gpt", ("loss",), since=START, until=START + 3600, points=1000))
    assert 150 < len(loss.points) < 360


def test_a_deleted_file_is_made_anew(store: SampleStore, tmp_path: Path) -> None:
    store.put_samples([sample(START)], [])
    reader = SampleStore(tmp_path)
    assert reader.latest_hosts()
    store.file.unlink()
    assert reader.latest_hosts() == {}
    store.put_samples([sample(START + 10)], [])
    assert [one.at for one in reader.latest_hosts().values()] == [START + 10]
    reader.close()


def test_a_file_of_another_version_is_replaced(store: SampleStore) -> None:
    store.put_samples([sample(START)], [])
    store.close()
    with sqlite3.connect(store.file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(OperationFailed):
        store.put_samples([sample(START)], [])
    store.put_samples([sample(START)], [])
    assert store.latest_hosts()


def test_a_full_disk_loses_samples_and_says_so(
    store: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_file, "BYTES_MAX", 40 * sample_file.PAGE)
    with pytest.raises(OperationFailed, match="can't be used"):
        for row in range(4000):
            store.put_samples([sample(START + row, host=f"gpt-0-g{row}-me/w0")], [])
    monkeypatch.setattr(sample_file, "BYTES_MAX", 1 << 30)
    store.put_samples([sample(START + 5000)], [])
    assert store.latest_hosts()["gpt-0-g1-me/w0"].at == START + 5000


def test_jobs_that_are_long_gone_are_forgotten(store: SampleStore) -> None:
    store.put_samples(
        [sample(START)], [value("loss", START, 1.0), value("loss", START, 3.0, "b-0")]
    )
    store.forget_jobs({"gpt"})
    assert store.latest_hosts() == {}
    assert store.read_series("gpt", since=START, until=START) == []
    assert len(store.read_series("b", since=START, until=START)) == 1
    put_day(store, START + 10, START + 2000)
    assert store.latest_hosts()


def test_readers_and_the_writer_do_not_wait_for_each_other(
    store: SampleStore, tmp_path: Path
) -> None:
    put_day(store, START, START + 600)
    troubles: list[Exception] = []
    counts: list[int] = []

    def read() -> None:
        reader = SampleStore(tmp_path)
        try:
            for _ in range(20):
                found = reader.read_series("gpt", ("loss",), since=START, until=START + 9000)
                counts.append(len(found[0].points))
        except Exception as error:  # noqa: BLE001 - any is a failure of the test
            troubles.append(error)
        reader.close()

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    put_day(store, START + 600, START + 3000)
    for thread in threads:
        thread.join()
    assert troubles == []
    assert min(counts) >= 60
