"""Columns of numbers are packed without loss, and thinned without losing an extreme."""

import math
import zlib
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuherd.store.sample_codec import BadChunk, pack_chunk, unpack_chunk
from tpuherd.store.sample_rows import (
    coarse_to_columns,
    host_columns,
    rows_to_columns,
    summarize_columns,
)
from tpuherd.store.thin_series import TimeTable, thin_table

NUMBERS = (
    st.floats()
    | st.integers(-(1 << 60), 1 << 60).map(float)
    | st.integers(0, 1000).map(lambda tenths: tenths / 10)
    | st.sampled_from([0.0, 1.5, float(31 << 30), 33_550_229_504.0])
)
TIMES = st.integers(0, 20_000_000_000).map(lambda tenths: tenths / 10)


def same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[float], dict[str, list[list[float | None]]]]:
    """Rows at any times, also backwards, with one or three lists a column, and gaps."""
    rows = draw(st.integers(1, 40))
    times = draw(st.lists(TIMES, min_size=rows, max_size=rows))
    columns = {}
    for name in draw(st.lists(st.sampled_from(["loss", "0/duty", "cpu"]), unique=True)):
        present = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
        many = draw(st.sampled_from([1, 3]))
        columns[name] = [[draw(NUMBERS) if here else None for here in present] for _ in range(many)]
    return times, columns


@settings(max_examples=60, deadline=None)
@given(tables())
def test_what_is_packed_is_unpacked(
    table: tuple[list[float], dict[str, list[list[float]]]],
) -> None:
    times, columns = table
    back_times, back = unpack_chunk(pack_chunk(times, columns))
    assert back_times == times
    assert set(back) == {name for name, lists in columns.items() if set(lists[0]) != {None}}
    for name, lists in back.items():
        wanted = columns[name] if len(lists) > 1 else columns[name][:1]
        for values, expected in zip(lists, wanted, strict=True):
            assert all(map(same, values, expected))
        if len(lists) < len(columns[name]):
            assert all(map(same, columns[name][0], columns[name][-1]))


def test_a_quiet_hour_of_a_host_takes_little_room() -> None:
    times = [1_790_000_000 + 10.03 * row for row in range(360)]
    columns = {
        "cpu": [[(37 * row % 90) / 10 for row in range(360)]],
        "0/hbm_used": [[float((20_000 + row % 7) << 20) for row in range(360)]],
        "0/hbm_total": [[33_550_229_504.0] * 360],
    }
    packed = pack_chunk(times, columns)
    assert len(packed) < 1_300, len(packed)
    assert unpack_chunk(packed, lambda name: name == "cpu")[1] == {"cpu": columns["cpu"]}


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80))
def test_other_bytes_are_no_chunk(content: bytes) -> None:
    whole = pack_chunk([1.0, 2.0, 4.0], {"loss": [[1.0, 2.5, 7.0]]})
    for chunk in (content, zlib.compress(content), whole[: len(content)], whole + b""):
        try:
            times, _ = unpack_chunk(chunk)
        except BadChunk:
            continue
        assert len(times) == 3


@pytest.mark.parametrize("rows", [0, 2, 1 << 40])
def test_a_wrong_number_of_rows_is_noticed(rows: int) -> None:
    _, table = msgspec.msgpack.decode(
        zlib.decompress(pack_chunk([1.0, 2.0, 4.0], {"loss": [[1.0, 2.0, 7.0]]}))
    )
    with pytest.raises(BadChunk):
        unpack_chunk(zlib.compress(msgspec.msgpack.encode((rows, table))))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TIMES, NUMBERS), min_size=1, max_size=60), st.integers(1, 20))
def test_thinning_keeps_the_extremes(rows: list[tuple[float, float]], points: int) -> None:
    table = TimeTable()
    for at, value in rows:
        table.add_rows([at], {"loss": [[value]]})
    found = thin_table(table, since=0.0, until=3e9, points=points)["loss"]
    assert 0 < len(found) <= points
    assert [point.at for point in found] == sorted(point.at for point in found)
    numbers = [value for _, value in rows if not math.isnan(value)]
    lows = [point.low for point in found if not math.isnan(point.low)]
    highs = [point.high for point in found if not math.isnan(point.high)]
    assert (min(lows), max(highs)) == (min(numbers), max(numbers)) if numbers else not lows
    has_nan = len(numbers) < len(rows)
    assert has_nan <= any(math.isnan(point.mean) for point in found)


def test_few_rows_stay_as_they_are() -> None:
    table = TimeTable()
    table.add_rows([30.0, 10.0, 20.0], {"loss": [[3.0, 1.0, 2.0]]})
    table.add_rows([40.0], {"accuracy": [[0.5]]})
    found = thin_table(table, since=10.0, until=40.0, points=4)
    assert found == {
        "loss": ((10.0, 1.0, 1.0, 1.0), (20.0, 2.0, 2.0, 2.0), (30.0, 3.0, 3.0, 3.0)),
        "accuracy": ((40.0, 0.5, 0.5, 0.5),),
    }
    assert thin_table(table, since=15.0, until=25.0, points=4)["loss"] == ((20.0, 2.0, 2.0, 2.0),)


def test_coarse_rows_keep_their_extremes() -> None:
    table = TimeTable()
    columns: dict[str, Sequence[Sequence[float | None]]] = {
        "cpu": [[1.0, 2.0], [3.0, 4.0], [9.0, 5.0]]
    }
    table.add_rows([0.0, 600.0], columns)
    (point,) = thin_table(table, since=0.0, until=600.0, points=1)["cpu"]
    assert point == (300.0, 1.0, 3.5, 9.0)


def test_rows_of_different_width_become_columns() -> None:
    chipless: list[float | None] = [1.0, None, 3.0, 4.0, 5.0, 6.0, 7.0]
    columns = rows_to_columns([chipless, [*chipless, 10.0, 20.0, None]])
    assert columns["cpu"] == [[1.0, 1.0]]
    assert columns["ram_used"] == [[None, None]]
    assert columns["0/hbm_used"] == [[None, 10.0]]
    assert list(columns) == host_columns(10)
    mixed = rows_to_columns([{"loss": 2.0}, chipless, {"acc": 1.0}])
    assert (mixed["loss"], mixed["acc"]) == ([[2.0, None, None]], [[None, None, 1.0]])


def test_a_coarse_row_has_the_lowest_mean_and_highest() -> None:
    row = summarize_columns({"cpu": [[1.0, 2.0, None, 6.0]], "0/duty": [[None]]}, "gpt-0/w0")
    assert row == {"cpu": (1.0, 3.0, 6.0)}
    bad = summarize_columns({"loss": [[1.0, math.nan, 3.0]]}, "")
    assert bad["loss"][0] == 1.0 and math.isnan(bad["loss"][1]) and bad["loss"][2] == 3.0
    assert coarse_to_columns([row, {}])["cpu"] == [[1.0, None], [3.0, None], [6.0, None]]
