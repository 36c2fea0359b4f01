"""Outputs of many hosts become one text: nothing is lost, and each host's order is kept."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuherd.views import fold_output
from tpuherd.views.fold_output import (
    Block,
    FoldingMerger,
    LineBuffer,
    PlainMerger,
    join_blocks,
    json_line,
    prefix_lines,
)

OUT, ERR = 1, 2
HOSTS = ("gpt/w0", "gpt/w1", "gpt/w2")


def shown(blocks: Iterable[Block]) -> str:
    return b"".join(map(prefix_lines, blocks)).decode()


def of(host: str, port: int, blocks: Iterable[Block]) -> bytes:
    return b"".join(b.text for b in blocks if host in b.hosts and b.port == port)


def test_lines_of_all_hosts_are_shown_once_and_at_once() -> None:
    fold = FoldingMerger(HOSTS)
    assert fold.feed("gpt/w0", OUT, b"same\n", 0.0) == []
    assert fold.feed("gpt/w2", OUT, b"same\n", 0.1) == []
    assert shown(fold.feed("gpt/w1", OUT, b"same\n", 0.1)) == "gpt/w[0-2]: same\n"


def test_lines_of_some_hosts_are_shown_together_after_a_moment() -> None:
    fold = FoldingMerger(HOSTS)
    fold.feed("gpt/w0", OUT, b"a\nb\n", 0.0)
    fold.feed("gpt/w2", OUT, b"a\n", 0.1)
    assert fold.wake_at() == pytest.approx(0.2)
    assert fold.due_blocks(0.1) == []
    assert shown(fold.due_blocks(0.2)) == "gpt/w[0,2]: a\ngpt/w0: b\n"
    assert fold.wake_at() is None


def test_a_difference_does_not_end_the_folding() -> None:
    fold = FoldingMerger(HOSTS)
    for host in HOSTS:
        fold.feed(host, OUT, f"head\nI am {host}\ntail\n".encode(), 0.0)
    text = shown([*fold.due_blocks(1.0), *fold.close(1.0)])
    assert text.count("gpt/w[0-2]: tail") == 1
    assert text.count("I am") == 3


def test_dead_and_finished_hosts_are_not_waited_for() -> None:
    fold = FoldingMerger(HOSTS)
    fold.feed("gpt/w0", OUT, b"x\n", 0.0)
    fold.feed("gpt/w1", OUT, b"x\n", 0.0)
    assert shown(fold.end_host("gpt/w2", 0.0)) == "gpt/w[0-1]: x\n"


def test_stdout_and_stderr_are_not_mixed() -> None:
    fold = FoldingMerger(HOSTS[:2])
    fold.feed("gpt/w0", OUT, b"x\n", 0.0)
    fold.feed("gpt/w1", ERR, b"x\n", 0.0)
    assert [(b.hosts, b.port) for b in fold.due_blocks(9.0)] == [
        (("gpt/w0",), OUT),
        (("gpt/w1",), ERR),
    ]


def test_output_without_a_final_newline() -> None:
    fold = FoldingMerger(HOSTS[:2])
    for host in HOSTS[:2]:
        assert fold.feed(host, OUT, b"prompt", 0.0) == []
    assert shown(fold.close(0.0)) == "gpt/w[0-1]: prompt\n"


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("10%\r20%\r30%\n", "30%\n"),
        ("30%\r\r\n", "30%\n"),
        ("30%\r\nnext\n", "30%\nnext\n"),
        ("\n\n", "\n\n"),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 100])
def test_carriage_returns(said: str, seen: str, step: int) -> None:
    lines = LineBuffer()
    lines.drawn_at = 0.0  # a moment ago: nothing is drawn in between
    text = said.encode()
    parts = [lines.feed(text[at : at + step], 0.1) for at in range(0, len(text), step)]
    assert b"".join(parts).decode() + lines.take_rest().decode() == seen


def test_a_progress_bar_is_shown_once_a_second_and_at_its_end() -> None:
    plain = PlainMerger()
    blocks = []
    for number in range(101):
        blocks += plain.feed("gpt/w0", ERR, b"%d%%\r" % number, number / 20)
    blocks += plain.feed("gpt/w0", ERR, b"\n", 5.1)
    seen = of("gpt/w0", ERR, blocks).split()
    assert 5 <= len(seen) <= 7
    assert seen[-1] == b"100%"


def test_endless_lines_are_shown_in_parts_and_memory_stays_bounded() -> None:
    hosts = [f"gpt/w{at}" for at in range(256)]
    fold = FoldingMerger(hosts)
    shown_bytes = 0
    for _ in range(10):
        for host in hosts:
            blocks = fold.feed(host, OUT, b"x" * 100_000, 0.0)
            shown_bytes += sum(len(b.text) for b in blocks)
            assert fold._held <= fold_output.HELD_MAX
    left = sum(len(b.text.rstrip(b"\n")) * len(b.hosts) for b in fold.close(0.0))
    assert shown_bytes + left == 256 * 1_000_000


def test_a_flood_is_neither_folded_nor_lost() -> None:
    hosts = [f"gpt/w{at}" for at in range(8)]
    fold = FoldingMerger(hosts)
    piece = b"".join(b"line %d\n" % number for number in range(10_000))
    blocks = [block for host in hosts for block in fold.feed(host, OUT, piece, 0.0)]
    blocks += fold.close(0.0)
    assert all(of(host, OUT, blocks) == piece for host in hosts)


def test_a_line_of_a_megabyte() -> None:
    line = b"y" * 1_000_000 + b"\n"
    fold = FoldingMerger(HOSTS[:2])
    blocks = []
    for host in HOSTS[:2]:
        for at in range(0, len(line), 65_536):
            blocks += fold.feed(host, OUT, line[at : at + 65_536], 0.0)
    blocks += fold.close(0.0)
    assert blocks == [Block(HOSTS[:2], OUT, line)]


PIECES = st.lists(
    st.tuples(
        st.sampled_from(HOSTS),
        st.sampled_from([OUT, ERR]),
        st.one_of(st.sampled_from([b"a\n", b"b\n", b"a", b"\n", b"\x00\xff\n"]), st.binary()),
        st.floats(0, 0.3),
    ),
    max_size=60,
)


@given(PIECES)
def test_nothing_is_lost_and_order_is_kept(pieces: list[tuple[str, int, bytes, float]]) -> None:
    fold, plain, now = FoldingMerger(HOSTS), PlainMerger(), 0.0
    given_: dict[tuple[str, int], bytes] = {}
    folded: list[Block] = []
    plainly: list[Block] = []
    for host, port, raw, wait in pieces:
        piece = raw.replace(b"\r", b".")
        given_[host, port] = given_.get((host, port), b"") + piece
        now += wait
        wake = fold.wake_at()
        if wake is not None and wake <= now:
            folded += fold.due_blocks(wake)
        folded += fold.feed(host, port, piece, now)
        plainly += plain.feed(host, port, piece, now)
    folded += fold.close(now)
    plainly += plain.close(now)
    assert fold._held == 0
    assert fold.wake_at() is None
    for (host, port), said in given_.items():
        whole = said if not said or said.endswith(b"\n") else said + b"\n"
        assert of(host, port, folded) == whole
        assert of(host, port, plainly) == whole


@given(PIECES)
def test_no_output_waits_longer_than_the_window(
    pieces: list[tuple[str, int, bytes, float]],
) -> None:
    fold, now = FoldingMerger(HOSTS), 0.0
    for host, port, piece, wait in pieces:
        now += wait
        fold.due_blocks(now)
        wake = fold.wake_at()
        assert wake is None or now < wake <= now + fold_output.WINDOW_S
        fold.feed(host, port, piece, now)


def test_blocks_of_the_same_hosts_are_joined() -> None:
    blocks = [Block(("a",), OUT, b"1\n"), Block(("a",), OUT, b"2\n"), Block(("b",), OUT, b"3\n")]
    joined = join_blocks(blocks)
    assert [b.text for b in joined] == [b"1\n2\n", b"3\n"]
    assert all(one.hosts != other.hosts for one, other in pairwise(joined))


def test_the_format_of_folded_output() -> None:
    block = Block(("gpt/w0", "gpt/w1"), OUT, b"one\ntwo")
    assert prefix_lines(block) == b"gpt/w[0-1]: one\ngpt/w[0-1]: two\n"
    assert prefix_lines(block, prefix="> ") == b"> one\n> two\n"
    assert json_line("gpt/w0", "stdout", "ü".encode(), 1.5) == (
        '{"host": "gpt/w0", "time": 1.5, "port": "stdout", "text": "ü"}\n'.encode()
    )
    assert b'"base64": "/w=="' in json_line("gpt/w0", "stderr", b"\xff", 0.0)
    assert fold_output.file_name("gpt-0/w3", "stdout") == "gpt-0-w3.out"
