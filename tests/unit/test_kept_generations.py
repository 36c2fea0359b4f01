"""Which generation an attempt restores, and what a manifest may say."""

import json
from itertools import product
from pathlib import Path
from random import Random

import pytest

from tests.hostile_words import mutate_bytes
from tpuherd_host.agent.keep.generation import (
    END,
    Attempt,
    Passed,
    Published,
    begin_attempt,
    choose_source,
    format_attempt,
    generations_to_keep,
    list_published,
)
from tpuherd_host.agent.keep.kept_manifest import (
    Generation,
    Manifest,
    Part,
    Piece,
    Row,
    format_manifest,
    manifest_name,
    parse_head,
    parse_manifest,
    parse_segments,
    pieces_of,
)
from tpuherd_host.agent.keep.kept_store import FolderStore, KeepConfig, Stored, parse_config

SHA = "0123456789abcdef" * 4
PART = Part("parts/w0000/000000003.0000000480.0000.tar", 4096)
FILE = Row(b"ckpt/a", "f", 0o644, 1_700_000_000_123_456_789, 7, SHA, PART.name, 512)
CONFIG = KeepConfig("me/gpt/gpt-0/run1", "", "herd/gpt", 1, 0, 1)


def make_manifest(*rows: Row) -> Manifest:
    parts = (PART,) if rows else ()
    gone, left_out = ((b"old.py", SHA),), ((b"pipe", "is a pipe"), (b"../odd\n", "open"))
    return Manifest(Generation(3, 480), 0, 1.5, parts, rows, gone, left_out)


def test_a_manifest_comes_back_as_it_was() -> None:
    rows = (
        FILE,
        Row(b"", "d", 0o755, 0, part=PART.name),
        Row(b"n\xff\n", "l", 0o777, -5, part=PART.name, target=b"\xfe/.."),
        Row(b"/data/x", "f", 0o600, 1, 1 << 40, SHA, PART.name, 0, b"", SHA, ((0, 5), (9, 1))),
    )
    for one in (make_manifest(*rows), make_manifest()):
        assert parse_manifest(format_manifest(one)) == one


def test_equal_files_have_one_content_whatever_their_times_and_parts() -> None:
    other = FILE._replace(mtime_ns=1, offset=1024)
    contents = [
        parse_head(format_manifest(make_manifest(*rows)))[0].content
        for rows in ((FILE,), (other,), (FILE._replace(mode=0o600),), ())
    ]
    assert contents[0] == contents[1] != contents[2]
    assert contents[3] == ""


LIES: list[dict[str, object]] = [
    {"path": b"../a"}, {"path": b"a/../b"}, {"path": b"/../a"}, {"path": b"//a"}, {"path": b"a//b"},
    {"path": b"a\0"}, {"path": b"a/."}, {"path": b""}, {"path": b"a" * 5000},
    {"path": b"/".join([b"a"] * 300)}, {"kind": "p"}, {"mode": 1 << 20}, {"mode": -1},
    {"size": -1}, {"size": 1 << 60}, {"size": 1.5}, {"size": True}, {"sha256": ""},
    {"sha256": SHA.upper()}, {"offset": -1}, {"mtime_ns": 1 << 70}, {"mtime_ns": "1"},
    {"code": "x"}, {"segments": ((0, 9),)}, {"segments": ((4, 1), (2, 1))},
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_row_that_leads_elsewhere_or_has_no_end_is_refused(lie: dict[str, object]) -> None:
    text = format_manifest(make_manifest(FILE._replace(**lie)))  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        parse_manifest(text)


@pytest.mark.parametrize("lie", [7, [[0]], [0, 1], [["0", 1]], [[0, 1, 1]], [[0, 0]] * 5000])
def test_holes_that_are_none_are_refused(lie: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse_segments(lie, 7)


def test_an_altered_manifest_is_refused_and_nothing_else_is_raised() -> None:
    text = format_manifest(make_manifest(FILE, Row(b"d", "d", 0o755, 1, part=PART.name)))
    whole = parse_manifest(text)
    for seed in range(300):
        altered = mutate_bytes(text, Random(seed))
        try:
            assert parse_manifest(altered)[4:] == whole[4:]
        except ValueError:
            pass
    with pytest.raises(ValueError, match="twice"):
        parse_manifest(format_manifest(make_manifest(FILE, FILE)))


# ---- which one -----------------------------------------------------------------------------------


def published(*found: tuple[int, int, int, bool]) -> Published:
    """Attempt, number, worker, and whether it kept anything."""
    names = []
    for attempt, number, worker, filled in found:
        generation = Generation(attempt, number)
        names.append(Stored(manifest_name(generation, worker), 500))
        names.append(Stored(manifest_name(generation, worker, "files"), 9 * filled))
    return list_published([*names, Stored("generations/junk", 1)])


def test_a_generation_is_whole_with_each_worker_that_has_kept_anything() -> None:
    for there in product([False, True], repeat=3):
        for filled in product([False, True], repeat=3):
            first = [(1, 1, w, filled[w]) for w in range(3)]
            found = published(*first, *[(1, 2, w, filled[w]) for w in range(3) if there[w]])
            expected = any(there) and all(there[w] or not filled[w] for w in range(3))
            assert found.is_whole(Generation(1, 2), range(3)) == expected
    assert not published((1, 2, 0, True)).is_whole(Generation(1, 2), range(2)), "one never spoke"


def attempts(*found: tuple[int, tuple[int, int] | None]) -> dict[int, Attempt]:
    return {n: Attempt(n, 1, 0.0, Generation(*s) if s else None) for n, s in found}


@pytest.mark.parametrize(
    ("there", "begun", "damaged", "expected"),
    [
        ([], [], [], None),
        ([(1, 5), (1, 7)], [(1, None)], [], (1, 7)),
        ([(1, 7), (1, END)], [(1, None)], [], (1, END)),
        ([(1, 7), (1, 8)], [(1, None)], [(1, 8)], (1, 7)),
        ([(1, 7), (2, 3)], [(1, None), (2, (1, 7))], [], (2, 3)),
        # Attempt 2 kept nothing; what attempt 1 published after it began does not count.
        ([(1, 7), (1, 9)], [(1, None), (2, (1, 7))], [], (1, 7)),
        ([(1, 6), (1, 7), (1, 9)], [(1, None), (2, (1, 7))], [(1, 7)], (1, 6)),
        ([(1, 7)], [(1, None), (2, (1, 7)), (3, (1, 7))], [], (1, 7)),
        ([(2, 7)], [(1, None)], [], None),
        ([(1, 7)], [(1, None), (2, None)], [], None),
        ([(1, 7)], [(1, None), (2, (2, 7))], [], None),
    ],
)
def test_an_attempt_continues_the_newest_generation_of_its_lineage(
    there: list[tuple[int, int]],
    begun: list[tuple[int, tuple[int, int] | None]],
    damaged: list[tuple[int, int]],
    expected: tuple[int, int] | None,
) -> None:
    found = published(*[(a, n, 0, True) for a, n in there])
    bad = {Generation(*one) for one in damaged}
    known = attempts(*begun)
    source, _ = choose_source(found, max(known, default=None), known.__getitem__, bad)
    assert source == (Generation(*expected) if expected else None)


@pytest.mark.parametrize(
    ("numbers", "tick", "expected"),
    [
        ([1, 2, 3], 3, [2, 3]),
        ([1, 2, 3, 64], 64, [3, 64]),
        ([1, 2, 3, 4, 64], 65, [4, 64]),
        ([1, 2, 3, 70, 80], 80, [3, 70, 80]),
        ([1, 5, 10**9, 10**9 + 1, END], 9, [10**9 + 1, END]),
        ([1, 2, 3, 99], 80, [2, 3, 99]),
    ],
)
def test_the_last_two_stay_and_one_that_is_an_hour_old(
    numbers: list[int], tick: int, expected: list[int]
) -> None:
    """Attempt 2 has two workers; of its newest number 99 one has published so far."""
    begun = Attempt(2, 2, 0.0, Generation(1, 7), 1)
    ours = [(2, n, w, True) for n in numbers for w in range(1 if n == 99 else 2)]
    found = published((1, 6, 0, True), (1, 7, 0, True), (1, 9, 0, True), (3, 1, 0, True), *ours)
    stays = [Generation(1, 7), *[Generation(2, n) for n in expected], Generation(3, 1)]
    assert sorted(generations_to_keep(found, begun, tick)) == stays
    nothing = published((1, 6, 0, True), (1, 7, 0, True), (2, 1, 0, True))
    assert len(generations_to_keep(nothing, begun, tick)) == 3, "until it has a whole one"


def test_a_large_file_goes_on_in_the_parts_after_its_first() -> None:
    parts = [Part(f"p{n}", size) for n, size in enumerate((10, 4, 8))]
    for offset, size in product(range(23), range(23)):
        row = FILE._replace(offset=offset, size=size)
        if size and offset + size > 22:
            with pytest.raises(ValueError):
                list(pieces_of(row, parts, 0))
            continue
        found = [(p, first + n) for p, first, many in pieces_of(row, parts, 0) for n in range(many)]
        every = [(p, n) for p, part in enumerate(parts) for n in range(part.bytes)]
        assert found == every[offset : offset + size]
    assert list(pieces_of(FILE._replace(offset=1, size=3), parts, 1)) == [Piece(1, 1, 3)]


def stop() -> None:
    raise InterruptedError


def test_all_workers_begin_with_what_the_first_one_decided(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "kept")
    store.is_shared = True
    one, two = CONFIG._replace(workers=2), CONFIG._replace(workers=2, worker=1)
    with pytest.raises(InterruptedError):
        begin_attempt(store, two, 1.0, stop)
    begun = begin_attempt(store, one, 2.0, stop)
    assert begun == Attempt(1, 2, 2.0, None, 0, True)
    assert begin_attempt(store, one, 9.0, stop) == begin_attempt(store, two, 9.0, stop) == begun
    for worker in (0, 1):
        text = format_manifest(make_manifest(FILE))
        store.write_new(manifest_name(Generation(1, 4), worker), [text])
        store.write_new(manifest_name(Generation(1, 4), worker, "files"), [b"folder/ckpt/a\0"])
    later = begin_attempt(store, one._replace(attempt=2, same_node=True), 3.0, stop)
    assert later == Attempt(2, 2, 3.0, Generation(1, 4), 2, False)
    with pytest.raises(Passed, match="attempt 2 has begun"):
        begin_attempt(store, one, 4.0, stop)
    with pytest.raises(ValueError, match="2 hosts"):
        begin_attempt(store, CONFIG._replace(attempt=2), 4.0, stop)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b'{"version": 2}', b"1" * 99])
def test_an_attempt_that_is_none_is_refused(tmp_path: Path, text: bytes) -> None:
    store = FolderStore(tmp_path / "kept")
    store.write_new("attempts/000000001.json", [text])
    with pytest.raises(ValueError):
        begin_attempt(store, CONFIG, 1.0, stop)
    changed = json.loads(format_attempt(Attempt(1, 1, 0.0, None)))
    for name in changed:
        store.remove("attempts/000000001.json")
        spoiled = json.dumps({**changed, name: {"a": 1}}).encode()
        store.write_new("attempts/000000001.json", [spoiled])
        if name != "restores":
            with pytest.raises(ValueError):
                begin_attempt(store, CONFIG, 1.0, stop)


# ---- the folder, the configuration ---------------------------------------------------------------


def test_a_folder_holds_what_a_bucket_would(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "kept")
    assert list(store.list("")) == []
    assert store.write_new("a/b", [b"1", b"2"]) and store.write_new("a/b", [b"12"])
    assert not store.write_new("a/b", [b"3"])
    store.write_stream("a/c", iter([b"45", b"6"]))
    store.write_stream("a/c", iter([b"789"]))
    assert (store.read("a/c"), store.read("a/c", 1, 1)) == (b"789", b"8")
    assert b"".join(store.iter_pieces("a/c", 2)) == b"9"
    assert sorted(store.list("a/")) == [Stored("a/b", 2), Stored("a/c", 3)]
    assert [one.name for one in store.list("a/b")] == ["a/b"]
    with pytest.raises(ZeroDivisionError):
        store.write_stream("a/d", (b"%d" % (1 // n) for n in (1, 0)))
    with pytest.raises(FileNotFoundError):
        store.read("a/d")
    assert {path.name for path in (tmp_path / "kept").rglob("*")} == {"a", "b", "c"}
    assert {p.stat().st_mode & 0o77 for p in (tmp_path / "kept", *tmp_path.rglob("kept/*"))} == {0}
    store.remove("a/b")
    store.remove("a/b")
    store.remove("a/c")
    assert list((tmp_path / "kept").iterdir()) == []


def test_the_configuration_is_parsed_once() -> None:
    plain = {**CONFIG._asdict(), "unknown": 1}
    assert parse_config(json.dumps(plain)) == CONFIG
    del plain["bytes_max"], plain["files_max"]
    named = parse_config(json.dumps({**plain, "paths": ["ckpt", "!*.tmp"]}))
    assert named.named and named.bytes_max > 1 << 60 and named.files_max == 100_000
    assert parse_config(json.dumps({**plain, "paths": ["!*.tmp"]})).bytes_max == CONFIG.bytes_max
    for wrong in ({"run": "a/b"}, {"run": "a/b/c/.."}, {"worker": 1}, {"attempt": "1"}):
        with pytest.raises(ValueError):
            parse_config(json.dumps({**plain, **wrong}))
    for text in ("", "[]", "{}", "7"):
        with pytest.raises(ValueError):
            parse_config(text)
