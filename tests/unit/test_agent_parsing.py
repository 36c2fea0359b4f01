"""Frames, records, logs and host facts: right for every cut and every sample."""

import random
from pathlib import Path

import pytest

from tpuherd.remote.agent_bundle import current_agent, strip_docs
from tpuherd_host.agent import frames, log_records, metadata_requests
from tpuherd_host.agent.effects.log_segments import SegmentedLog, choose_last_lines
from tpuherd_host.agent.host.chip_users import parse_lock_holder
from tpuherd_host.agent.host.host_facts import chip_generation, parse_meminfo
from tpuherd_host.agent.processes import Process, parse_stat, with_descendants
from tpuherd_host.agent.state_machine.messages import Event, ThreadAnswered
from tpuherd_host.agent.state_machine.rpc_methods import PURE
from tpuherd_host.agent.state_machine.rpc_methods import __doc__ as reference
from tpuherd_host.agent.state_machine.state import AgentState
from tpuherd_host.agent.threaded_methods import THREADED
from tpuherd_host.agent.threaded_rpc import AgentPaths, ThreadedCall, run_call

SEEDS = range(20)


def cut(text: bytes, dice: random.Random) -> list[bytes]:
    """The same bytes in pieces."""
    places = sorted(dice.choices(range(len(text) + 1), k=dice.randrange(30)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_frames_are_decoded_however_the_stream_is_cut(seed: int) -> None:
    dice = random.Random(seed)
    kinds = range(frames.HELLO, frames.CANCEL + 1)
    sent = [
        frames.Frame(
            dice.choice(kinds), dice.randrange(1 << 32), dice.randbytes(dice.randrange(99))
        )
        for _ in range(50)
    ]
    text = b"".join(
        frames.pack_frame(*frame) for frame in ((f.kind, f.id, f.payload) for f in sent)
    )
    reader = frames.FrameReader()
    assert [frame for piece in cut(text, dice) for frame in reader.feed(piece)] == sent
    assert not b"".join(reader.pieces)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_are_decoded_however_the_stream_is_cut(seed: int) -> None:
    dice = random.Random(seed)
    sent = [
        log_records.Record(dice.random(), dice.randrange(4), dice.randbytes(dice.randrange(99)))
        for _ in range(50)
    ]
    text = b"".join(log_records.pack_record(*record) for record in sent)
    reader = log_records.RecordReader(offset=1000)
    assert [record for piece in cut(text, dice) for record in reader.feed(piece)] == sent
    assert reader.offset == 1000 + len(text) == 1000 + sum(record.size for record in sent)
    for end in range(0, len(text), 7):
        known = log_records.complete_length(text[:end])
        assert known <= end
        assert len(list(log_records.RecordReader().feed(text[:known]))) == len(
            list(log_records.RecordReader().feed(text[:end]))
        )


def test_a_jump_sets_the_offset_and_counts_as_a_gap() -> None:
    reader = log_records.RecordReader()
    jump = log_records.pack_record(0.0, log_records.JUMP, log_records.NUMBER.pack(5000))
    gap = log_records.pack_record(0.0, log_records.GAP, log_records.NUMBER.pack(77))
    told = list(reader.feed(jump + gap))
    assert [log_records.parse_number(record.piece) for record in told] == [5000, 77]
    assert reader.offset == 5000 + len(gap)
    with pytest.raises(log_records.BadRecord):
        list(reader.feed(b"\xff" * 20))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("raw", [False, True])
def test_a_log_is_a_window_on_all_output(tmp_path: Path, seed: int, raw: bool) -> None:
    dice = random.Random(seed)
    whole, cap = b"", 1 << 19
    log = SegmentedLog(str(tmp_path), cap, raw)
    for at in range(dice.randrange(5, 60)):
        piece = dice.randbytes(dice.randrange(1, 1 << 16))
        assert log.append(float(at), 1, piece)
        whole += piece if raw else log_records.pack_record(float(at), 1, piece)
        if dice.random() < 0.1:  # another agent
            log.close()
            log = SegmentedLog(str(tmp_path), cap, raw)
        assert log.length == len(whole)
        assert len(whole) - log.first_offset <= cap
        assert log.first_offset == 0 or len(whole) - log.first_offset > cap // 2
        start = dice.randrange(log.first_offset, log.length)
        many = dice.randrange(log.length - start)
        assert log.read(start, many) == whole[start : start + many]
    log.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == log.length - log.first_offset


def test_a_log_cut_by_a_crash_continues_after_its_last_complete_record(tmp_path: Path) -> None:
    log = SegmentedLog(str(tmp_path), 1 << 20)
    log.append(1.0, 1, b"one")
    log.append(2.0, 1, b"two")
    log.close()
    [segment] = tmp_path.iterdir()
    segment.write_bytes(segment.read_bytes()[:-2])
    again = SegmentedLog(str(tmp_path), 1 << 20)
    again.append(3.0, 2, b"three")
    told = list(log_records.RecordReader().feed(again.read(0, again.length)))
    assert [(record.at, record.piece) for record in told] == [(1.0, b"one"), (3.0, b"three")]
    assert again.last_lines() == ["onethree"]
    again.close()


HEAD = "Traceback (most recent call last):"
RAISED = [
    HEAD,
    '  File "train.py", line 3, in <module>',
    "    check(loss)",
    "AssertionError: differs",
]


@pytest.mark.parametrize(
    ("lines", "raised", "first"),
    [
        ([*RAISED, *["0.5"] * 150], True, [HEAD, RAISED[-1]]),
        (
            ["[rank0]: " + one for one in [*RAISED, *["0.5"] * 50]],
            True,
            ["[rank0]: " + HEAD, RAISED[-1]],
        ),
        ([*RAISED, *["0.5"] * 150], False, ["0.5", "0.5"]),  # it exited with another status
        ([*RAISED, *["step"] * 500], True, ["step", "step"]),  # and went on for long
        ([*["step"] * 40, *RAISED, "0.5"], True, ["step", "step"]),  # it is among the last lines
        ([HEAD, "step 1", *["0.5"] * 50], True, ["0.5", "0.5"]),
        (["0.5"] * 50, True, ["0.5", "0.5"]),
        (["a", "b"], True, ["a", "b"]),
    ],
)
def test_of_an_exception_of_many_lines_the_first_is_kept(
    lines: list[str], raised: bool, first: list[str]
) -> None:
    found = choose_last_lines(lines, lines[-3:], raised=raised)
    assert found[:2] == first
    assert found[2:] == lines[-20:][2:]


@pytest.mark.parametrize("pause_s", [0.5, 60.0])
def test_an_exception_of_very_many_lines_was_written_at_once(
    tmp_path: Path, pause_s: float
) -> None:
    log = SegmentedLog(str(tmp_path), 1 << 24)
    log.append(1.0, 1, b"step 1\n" * 500)
    log.append(90.0, 2, "".join(f"{line}\n" for line in RAISED).encode())
    for _ in range(2):
        log.append(90.0 + pause_s, 2, b"0.00833104 " * 5 + b"\n" + b"0.5\n" * 2000)
    burst = log.last_lines(1 << 20, 2.0)
    found = choose_last_lines(log.last_lines(), burst, raised=True)
    assert (found[:2] == [HEAD, RAISED[-1]]) is (pause_s < 2.0)
    assert len(found) == 20 and found[2:] == ["0.5"] * 18
    log.close()


ANSWER = b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nETag: 8d3\r\nContent-Length: 4\r\n\r\nTRUE"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ANSWER, ("TRUE", "8d3")),
        (ANSWER.replace(b"200 OK", b"503 Service Unavailable"), None),
        (ANSWER.replace(b"Google", b"Other"), None),
        (ANSWER.replace(b"Metadata-Flavor: Google\r\n", b""), None),
        (b"", None),
        (b"\xff\xfe", None),
    ],
)
def test_metadata_server_answers_are_parsed(answer: bytes, told: tuple[str, str] | None) -> None:
    assert metadata_requests.parse_answer(answer) == told


def test_the_metadata_server_address_is_found() -> None:
    assert metadata_requests.server_address({}) == ("169.254.169.254", 80)
    assert metadata_requests.server_address({"GCE_METADATA_HOST": "127.0.0.1:81"}) == (
        "127.0.0.1",
        81,
    )
    assert b"wait_for_change" not in metadata_requests.build_request("preempted", "h", "")
    assert b"last_etag=8d3" in metadata_requests.build_request("preempted", "h", "8d3")


LOCKS = """\
1: POSIX  ADVISORY  WRITE 4242 fe:00:131 0 EOF
2: FLOCK  ADVISORY  WRITE 77 fe:00:132 0 EOF
3: POSIX  ADVISORY  WRITE -1 fe:00:133 0 EOF
3: -> POSIX  ADVISORY  WRITE 99 fe:00:134 0 EOF
"""


@pytest.mark.parametrize(("inode", "pid"), [(131, 4242), (132, None), (133, 0), (1, None)])
def test_lock_owners_are_parsed(inode: int, pid: int | None) -> None:
    assert parse_lock_holder(LOCKS.splitlines(), inode) == pid


def test_related_processes_are_found() -> None:
    stat = b"77 (a (strange) name) S 5 77 70 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9001 1 2"
    assert parse_stat(77, stat) == Process(77, 5, 70, 9001, False)
    assert parse_stat(77, stat.replace(b") S", b") Z")).gone
    among = {pid: Process(pid, parent, 0, 0, False) for pid, parent in ((2, 1), (3, 2), (4, 1))}
    assert with_descendants({2}, among) == {2, 3}


def test_host_facts_are_parsed() -> None:
    text = "MemTotal:       24679112 kB\nMemFree: 1 kB\nMemAvailable:   23000000 kB\n"
    assert parse_meminfo(text) == {"total": 24679112 * 1024, "available": 23000000 * 1024}
    assert chip_generation("0x1ae0", "0x0027", "0x004f") == "v3"
    assert chip_generation("0x1ae0", "0x0063", "0x1") == "v5e"
    assert chip_generation("0x1ae0", "0x9999", "") == ""
    assert chip_generation("0x10de", "0x0063", "") is None


def test_every_rpc_method_is_documented() -> None:
    assert reference is not None
    for verb in [*PURE, *THREADED]:
        assert f"\n  {verb} " in reference, verb


def test_the_agent_bundle_is_reproducible() -> None:
    made = current_agent()
    current_agent.cache_clear()
    assert current_agent() == made
    assert len(made.compressed) < 180_000  # what each new host receives: training's modules, keep
    text = '"""Doc."""\n\n\nclass A:\n    """Only this."""\n\n\ndef f() -> str:\n    # why\n'
    text += '    """Doc\n    more."""\n    return "# no comment"\n'
    shown = strip_docs(text)
    assert "Doc" not in shown
    assert shown.count("\n") == text.count("\n")
    space: dict[str, object] = {}
    exec(shown, space)
    assert space["f"]() == "# no comment"  # type: ignore[operator]


@pytest.mark.parametrize("kind", [NameError, AttributeError, AssertionError, ZeroDivisionError])
def test_every_caller_gets_an_answer_whatever_fails(
    kind: type[Exception],
) -> None:
    def verb(threaded_call: ThreadedCall) -> dict[str, str]:
        raise kind("a mistake of ours")

    heard: list[Event] = []
    house = AgentPaths("/nowhere", "/nowhere", {}, AgentState, heard.append)
    with pytest.raises(kind):  # so that the agent's own log says where
        run_call(verb, ThreadedCall(house, {"verb": "mistaken"}, 1, 2))
    sentence = "mistaken failed; see ~/.tpuherd/agent.log on the host"
    assert heard == [ThreadAnswered(1, 2, {"sentence": sentence}, "broken")]
