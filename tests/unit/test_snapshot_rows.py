"""Rows, changes, the stream and the plan: what must hold for any snapshot whatever."""

import hashlib
import stat
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tpuherd.sync.delta import offer
from tpuherd.sync.relay_tree import Child, grown
from tpuherd_host.agent.snapshots_rows import (
    BadRows,
    Row,
    applied,
    changed,
    checked,
    contents,
    named,
    packed,
    parsed,
    row,
    unpacked,
)
from tpuherd_host.agent.snapshots_stream import (
    Content,
    Source,
    Torn,
    blocks,
    plain,
    stream,
)

FILE, PROGRAM, LINK = stat.S_IFREG | 0o644, stat.S_IFREG | 0o755, stat.S_IFLNK | 0o777

parts = some.binary(min_size=1, max_size=4).filter(
    lambda part: b"/" not in part and b"\0" not in part and part not in (b".", b"..")
)
paths = some.lists(parts, min_size=1, max_size=3).map(b"/".join)


def fitting(names: Sequence[bytes]) -> list[bytes]:
    """Those of them that can stand beside each other: none leads through another."""
    folders = {name.rsplit(b"/", n)[0] for name in names for n in range(1, name.count(b"/") + 1)}
    return sorted({name for name in names if name not in folders})


@some.composite
def snapshots(draw: some.DrawFn) -> list[bytes]:
    """The rows of one."""
    found = []
    for path in fitting(draw(some.lists(paths, max_size=12))):
        content = draw(some.binary(max_size=3))
        mode = draw(some.sampled_from([FILE, PROGRAM, LINK]))
        found.append(row(path, mode, len(content), hashlib.sha256(content).digest()))
    return sorted(found)


@given(snapshots())
def test_rows_come_back_as_they_were(rows: list[bytes]) -> None:
    assert unpacked(packed(rows)) == rows
    assert [row(one.path, one.mode, one.size, one.id) for one in map(parsed, rows)] == rows
    assert checked(rows) == [parsed(each) for each in rows]


@given(snapshots(), snapshots())
def test_the_changes_lead_from_one_snapshot_to_any(one: list[bytes], two: list[bytes]) -> None:
    gone, put = changed(one, two)
    assert applied(one, gone, put) == two
    assert applied(one, *changed(one, one)) == one
    assert len(put) <= len(two)


@given(snapshots(), snapshots())
def test_two_snapshots_have_one_id_only_if_they_are_one(one: list[bytes], two: list[bytes]) -> None:
    assert (named(one) == named(two)) is (one == two)


BAD = {
    "up": [row(b"../x", FILE, 0, bytes(32))],
    "root": [row(b"/etc/x", FILE, 0, bytes(32))],
    "dot": [row(b"a/./x", FILE, 0, bytes(32))],
    "nothing": [row(b"", FILE, 0, bytes(32))],
    "device": [row(b"x", stat.S_IFBLK | 0o600, 0, bytes(32))],
    "twice": [row(b"x", FILE, 0, bytes(32)), row(b"x", FILE, 1, bytes(32))],
    "order": [row(b"b", FILE, 0, bytes(32)), row(b"a", FILE, 0, bytes(32))],
    "through a symlink": [row(b"a", LINK, 0, bytes(32)), row(b"a/b", FILE, 0, bytes(32))],
    "far through a file": [row(b"a", FILE, 0, bytes(32)), row(b"a/b/c", FILE, 0, bytes(32))],
    "short": [b"x"],
}


@pytest.mark.parametrize("rows", BAD.values(), ids=BAD.keys())
def test_rows_that_lead_elsewhere_are_refused(rows: list[bytes]) -> None:
    with pytest.raises(BadRows):
        checked(rows)


# ---- the stream ----------------------------------------------------------------------------------


def carried(
    head: dict[str, Any], body: bytes, pieces: Sequence[bytes], level: int, cut: int
) -> tuple[bytes, list[bytes]]:
    """A stream as bytes, which come in pieces of that size."""
    found = (Content(n, len(each), [each]) for n, each in enumerate(pieces))
    sent = b"".join(stream(head, body, found, iter([level, 6, 1, 6, 1] * 99).__next__))
    return sent, [sent[at : at + cut] for at in range(0, len(sent), cut)]


@settings(max_examples=60)
@given(
    body=some.binary(max_size=200),
    pieces=some.lists(some.binary(max_size=40).map(lambda piece: piece * 400), max_size=5),
    level=some.sampled_from([1, 6]),
    cut=some.integers(1, 5000),
)
def test_what_is_sent_is_what_comes(body: bytes, pieces: list[bytes], level: int, cut: int) -> None:
    _, coming = carried({"give": len(pieces)}, body, pieces, level, cut)
    waiting: Iterator[bytes] = iter(coming)
    source = Source(plain(blocks(lambda: next(waiting, b""))))
    head = source.head()
    assert source.take(head["body"]) == body
    for number, each in enumerate(pieces):
        assert (source.number(), source.take(len(each))) == (number, each)
    source.drain()
    assert next(waiting, b"") == b""


@settings(max_examples=60)
@given(
    old=some.lists(some.binary(max_size=300), min_size=1, max_size=9).map(b"|".join),
    times=some.sampled_from([1, 7, 90]),
    edit=some.binary(max_size=700),
    at=some.floats(0, 1),
    gone=some.integers(0, 40_000),
)
def test_what_is_told_by_what_it_replaces_is_what_comes(
    old: bytes, times: int, edit: bytes, at: float, gone: int
) -> None:
    old = old * times + b"."
    start = int(len(old) * at)
    pieces = [old[:start] + edit + old[start + gone :], b"another"]
    contents = [Content(0, len(pieces[0]), pieces[:1], old), Content(1, 7, pieces[1:])]
    sent = b"".join(stream({}, b"rows", contents, lambda: 6))
    coming = iter([sent])
    source = Source(plain(blocks(lambda: next(coming, b"")), lambda number: [old][number]))
    assert source.take(source.head()["body"]) == b"rows"
    for number, each in enumerate(pieces):
        assert (source.number(), source.take(len(each))) == (number, each)
    source.drain()


@given(cut=some.floats(0, 0.999))
def test_a_stream_that_is_cut_says_so(cut: float) -> None:
    sent, _ = carried({"give": 1}, b"rows", [bytes(range(256)) * 40], 6, 1 << 16)
    waiting = iter([sent[: int(len(sent) * cut)]])
    with pytest.raises(Torn):
        for _ in plain(blocks(lambda: next(waiting, b""))):
            pass


def test_what_cannot_be_compressed_costs_next_to_nothing_more() -> None:
    noise = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(1 << 15))
    sent, _ = carried({"give": 1}, b"", [noise], 6, 1 << 16)
    assert len(sent) < len(noise) + 200


# ---- the plan ------------------------------------------------------------------------------------


@given(snapshots(), snapshots(), some.integers(1, 4), some.data())
def test_an_offer_gives_every_host_all_that_it_lacks(
    now: list[bytes], before: list[bytes], many: int, data: some.DataObject
) -> None:
    """Whatever snapshots hosts have whole, the changes and contents make the new one of it."""
    archive = {named(rows).hex(): rows for rows in (before, now)}
    haves = [
        {"whole": data.draw(some.lists(some.sampled_from(sorted(archive)), unique=True))}
        for _ in range(many)
    ]
    offered = offer(now, haves, archive.get)
    given_ids = {gift.id for gift in offered.give}
    for have in haves:
        here = {one.id for id in have["whole"] for one in map(parsed, archive[id])}
        base = archive[offered.base] if offered.base else []
        assert offered.base is None or offered.base in have["whole"]
        assert applied(base, offered.gone, offered.put) == now
        assert contents(map(parsed, now)).keys() <= here | given_ids
    for number, id, size, old in offered.give:
        one: Row = parsed(now[number])
        assert (one.id, one.size) == (id, size)
        was = map(parsed, archive[offered.base or named(now).hex()])
        assert old is None or (one.path, old) in [(each.path, each.id) for each in was]


@given(some.integers(0, 300), some.integers(1, 6))
def test_a_tree_reaches_every_host_once_and_is_not_deep(many: int, fanout: int) -> None:
    hosts = [Child(name=f"w{n}", address="", port=n, token="") for n in range(many)]
    levels, waiting, seen = 0, list(grown(hosts, fanout)), []
    while waiting:
        levels += 1
        seen += waiting
        assert all(len(child.children) <= fanout for child in waiting)
        waiting = [below for child in waiting for below in child.children]
    assert sorted(child.port for child in seen) == list(range(many))
    if fanout > 1:
        assert fanout ** max(0, levels - 1) <= max(1, many)
