"""Rows, changes, the stream and the plan: what holds for any snapshot."""

import hashlib
import select
import socket
import stat
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tpuherd.sync.delta import compute_delta
from tpuherd.sync.relay_tree import RelayHost, build_tree
from tpuherd_host.agent.snapshots import relay
from tpuherd_host.agent.snapshots.manifest import (
    BadRows,
    ManifestRow,
    apply_diff,
    check_rows,
    content_sizes,
    diff_rows,
    pack_row,
    pack_rows,
    parse_row,
    rows_id,
    unpack_rows,
)
from tpuherd_host.agent.snapshots.stream import (
    BLOCK,
    DEFLATED,
    END,
    LIKE,
    LIKENESS,
    NUMBER,
    SAME,
    SAMENESS,
    BrokenStream,
    ContentReader,
    StreamContent,
    decode_blocks,
    encode_stream,
    read_blocks,
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
        found.append(pack_row(path, mode, len(content), hashlib.sha256(content).digest()))
    return sorted(found)


@given(snapshots())
def test_rows_are_decoded_as_encoded(rows: list[bytes]) -> None:
    assert unpack_rows(pack_rows(rows)) == rows
    assert [pack_row(one.path, one.mode, one.size, one.id) for one in map(parse_row, rows)] == rows
    assert check_rows(rows) == [parse_row(each) for each in rows]


@given(snapshots(), snapshots())
def test_changes_lead_from_one_snapshot_to_any_other(one: list[bytes], two: list[bytes]) -> None:
    gone, put = diff_rows(one, two)
    assert apply_diff(one, gone, put) == two
    assert apply_diff(one, *diff_rows(one, one)) == one
    assert len(put) <= len(two)


@given(snapshots(), snapshots())
def test_snapshots_with_the_same_id_are_equal(one: list[bytes], two: list[bytes]) -> None:
    assert (rows_id(one) == rows_id(two)) is (one == two)


BAD = {
    "up": [pack_row(b"../x", FILE, 0, bytes(32))],
    "root": [pack_row(b"/etc/x", FILE, 0, bytes(32))],
    "dot": [pack_row(b"a/./x", FILE, 0, bytes(32))],
    "nothing": [pack_row(b"", FILE, 0, bytes(32))],
    "device": [pack_row(b"x", stat.S_IFBLK | 0o600, 0, bytes(32))],
    "twice": [pack_row(b"x", FILE, 0, bytes(32)), pack_row(b"x", FILE, 1, bytes(32))],
    "order": [pack_row(b"b", FILE, 0, bytes(32)), pack_row(b"a", FILE, 0, bytes(32))],
    "through a symlink": [pack_row(b"a", LINK, 0, bytes(32)), pack_row(b"a/b", FILE, 0, bytes(32))],
    "far through a file": [
        pack_row(b"a", FILE, 0, bytes(32)),
        pack_row(b"a/b/c", FILE, 0, bytes(32)),
    ],
    "short": [b"x"],
    "deep": [pack_row(b"a/" * 2000 + b"x", FILE, 0, bytes(32))],
}


@pytest.mark.parametrize("rows", BAD.values(), ids=BAD.keys())
def test_rows_with_paths_outside_the_tree_are_refused(rows: list[bytes]) -> None:
    with pytest.raises(BadRows):
        check_rows(rows)


def test_a_stranger_who_sends_byte_by_byte_holds_no_transfer_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any host of the network may connect to a host that listens for a snapshot."""
    monkeypatch.setattr(relay, "DIAL_S", 0.3)
    port, sent = relay.listen_for_parent("token", "127.0.0.1"), []
    stranger = socket.create_connection(("127.0.0.1", port))

    def drip() -> None:
        with suppress(OSError):
            while not select.select([stranger], [], [], 0.05)[0]:
                sent.append(stranger.send(b"x"))

    thread = threading.Thread(target=drip)
    thread.start()

    def dial() -> None:
        relay.connect_to_child("127.0.0.1", port, "token", [["a", 1, "t", []]]).close()

    parent = threading.Thread(target=dial)
    with stranger:
        parent.start()
        with relay.receive_stream("token", lambda: None) as (read, plan):
            assert (read(), plan) == (b"", [["a", 1, "t", []]])
        thread.join()
        parent.join()
    assert len(sent) < relay.NONCE, "it was cut off before it had sent what a parent sends"


# ---- the stream ----------------------------------------------------------------------------------


def carried(
    head: dict[str, Any], body: bytes, pieces: Sequence[bytes], level: int, cut: int
) -> tuple[bytes, list[bytes]]:
    """A stream as bytes, which come in pieces of that size."""
    found = (StreamContent(n, len(each), [each]) for n, each in enumerate(pieces))
    sent = b"".join(encode_stream(head, body, found, iter([level, 6, 1, 6, 1] * 99).__next__))
    return sent, [sent[at : at + cut] for at in range(0, len(sent), cut)]


@settings(max_examples=60)
@given(
    body=some.binary(max_size=200),
    pieces=some.lists(some.binary(max_size=40).map(lambda piece: piece * 400), max_size=5),
    level=some.sampled_from([1, 6]),
    cut=some.integers(1, 5000),
)
def test_a_stream_is_received_as_sent(
    body: bytes, pieces: list[bytes], level: int, cut: int
) -> None:
    _, coming = carried({"give": len(pieces)}, body, pieces, level, cut)
    waiting: Iterator[bytes] = iter(coming)
    source = ContentReader(decode_blocks(read_blocks(lambda: next(waiting, b""))))
    head = source.read_head()
    assert source.read_bytes(head["body"]) == body
    for number, each in enumerate(pieces):
        assert (source.read_number(), source.read_bytes(len(each))) == (number, each)
    source.drain()
    assert next(waiting, b"") == b""


def test_deltas_of_an_earlier_controller_are_received() -> None:
    """A part of the old content, then what is compressed with it as the dictionary."""
    old = b"".join(b"line %d\n" % number for number in range(400))
    new = old[:2000] + b"another line\n" + old[2000:]
    press = zlib.compressobj(wbits=-zlib.MAX_WBITS, zdict=old[1000:])
    changed = press.compress(new[2000:]) + press.flush()
    plain = zlib.compress(NUMBER.pack(2) + b"{}" + NUMBER.pack(7))
    blocks = [
        (DEFLATED, plain),
        (SAME, SAMENESS.pack(7, 0, 2000)),
        (LIKE, LIKENESS.pack(7, 1000) + changed),
        (END, b""),
    ]
    sent = iter([b"".join(BLOCK.pack(kind, len(piece)) + piece for kind, piece in blocks)])
    source = ContentReader(
        decode_blocks(read_blocks(lambda: next(sent, b"")), lambda number: {7: old}[number])
    )
    assert source.read_head() == {}
    assert (source.read_number(), source.read_bytes(len(new))) == (7, new)
    source.drain()


@given(cut=some.floats(0, 0.999))
def test_a_truncated_stream_is_an_error(cut: float) -> None:
    sent, _ = carried({"give": 1}, b"rows", [bytes(range(256)) * 40], 6, 1 << 16)
    waiting = iter([sent[: int(len(sent) * cut)]])
    with pytest.raises(BrokenStream):
        for _ in decode_blocks(read_blocks(lambda: next(waiting, b""))):
            pass


def test_incompressible_data_costs_little_more() -> None:
    noise = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(1 << 15))
    sent, _ = carried({"give": 1}, b"", [noise], 6, 1 << 16)
    assert len(sent) < len(noise) + 200


# ---- the plan ------------------------------------------------------------------------------------


@given(snapshots(), snapshots(), some.integers(1, 4), some.data())
def test_an_offer_gives_every_host_all_that_it_lacks(
    now: list[bytes], before: list[bytes], many: int, data: some.DataObject
) -> None:
    """Whatever snapshots hosts have whole, the changes and contents make the new one of it."""
    archive = {rows_id(rows).hex(): rows for rows in (before, now)}
    haves = [
        {"whole": data.draw(some.lists(some.sampled_from(sorted(archive)), unique=True))}
        for _ in range(many)
    ]
    offered = compute_delta(now, haves, archive.get)
    given_ids = {gift.id for gift in offered.give}
    for have in haves:
        here = {one.id for id in have["whole"] for one in map(parse_row, archive[id])}
        base = archive[offered.base] if offered.base else []
        assert offered.base is None or offered.base in have["whole"]
        assert apply_diff(base, offered.gone, offered.put) == now
        assert content_sizes(map(parse_row, now)).keys() <= here | given_ids
    for number, id, size in offered.give:
        one: ManifestRow = parse_row(now[number])
        assert (one.id, one.size) == (id, size)


@given(some.integers(0, 300), some.integers(1, 6))
def test_a_relay_tree_reaches_every_host_once_and_is_shallow(many: int, fanout: int) -> None:
    hosts = [RelayHost(name=f"w{n}", address="", port=n, token="") for n in range(many)]
    levels, waiting, seen = 0, list(build_tree(hosts, fanout)), []
    while waiting:
        levels += 1
        seen += waiting
        assert all(len(child.children) <= fanout for child in waiting)
        waiting = [below for child in waiting for below in child.children]
    assert sorted(child.port for child in seen) == list(range(many))
    if fanout > 1:
        assert fanout ** max(0, levels - 1) <= max(1, many)
