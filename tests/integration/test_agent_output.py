"""Whatever commands write and however slowly it is read: complete, in order, in bounded memory."""

import hashlib
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agents import (
    PATIENCE_S,
    AgentClient,
    Agents,
    agents,
    gone,
    say,
    text,
    until,
)
from tpuherd_host.agent import frames
from tpuherd_host.agent.log_records import GAP, JUMP, RecordReader, parse_number
from tpuherd_host.agent.processes import all_processes, marked_task

pytestmark = pytest.mark.real

MEMORY_MAX = 48 << 20


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Agents]:
    with agents(tmp_path, "3.8") as made:
        yield made


def ours(home: Agents, work: str) -> list[int]:
    """The processes of a piece of work that live."""
    among = [one.pid for one in all_processes().values() if not one.gone]
    return [pid for pid in among if marked_task(pid, str(home.folder)) == work]


def test_a_flood_arrives_complete(old: Agents) -> None:
    client = old.attach()
    id = client.ask("run", id="a", shell="head -c 100000000 /dev/zero; echo; echo end >&2")
    records, many, errors = RecordReader(), 0, b""
    while (frame := client.frame(id)).kind == frames.DATA:
        client.send(frames.pack_credit(id, len(frame.payload) - 1))
        for record in records.feed(frame.payload[1:]):
            many += len(record.piece) if record.port == frames.STDOUT else 0
            errors += record.piece if record.port == frames.STDERR else b""
    assert (many, errors) == (100000001, b"end\n")
    assert frame.content["length"] == records.offset
    assert old.memory(client) < MEMORY_MAX


def test_a_slow_reader_slows_its_command_and_no_other(home: Agents) -> None:
    client, other = home.attach(), home.attach()
    shell = "head -c 30000000 /dev/zero; echo end"
    id = client.ask("run", id="slow", shell=shell, log_bytes=8 << 20)
    assert other.run("b", shell="echo quick")[0]["exit"] == 0

    def length() -> int:
        works = {work["id"]: work for work in other.call("commands")["commands"]}
        return int(works["slow"]["length"])

    until(lambda: length() > 4 << 20)
    assert length() < 6 << 20
    assert home.memory(other) < MEMORY_MAX
    work, records = client.records(id)
    assert (work["exit"], work["first"] > 0) == (0, True)
    assert text(records) == bytes(30000000) + b"end\n"
    assert [record.port for record in records if record.port == JUMP] == []


def test_without_a_reader_the_oldest_output_is_dropped_and_reported(home: Agents) -> None:
    client = home.attach()
    shell = "seq -w 10000000 | head -c 30000000; echo end"
    client.greedy = False
    id = client.ask("run", id="a", shell=shell, log_bytes=4 << 20, hold=False)
    client.data(id, 1000)
    client.send(frames.pack_frame(frames.CANCEL, id, b""))
    works = until(lambda: [w for w in client.call("commands")["commands"] if w["ended"]])
    assert works[0]["length"] > 30000000
    client.greedy = True
    work, [jump, *records] = client.records(client.ask("attach", id="a"))
    assert (jump.port, parse_number(jump.piece)) == (JUMP, work["first"])
    assert work["length"] - work["first"] <= 4 << 20
    kept = text(records)
    assert kept.endswith(b"end\n")
    assert work["first"] + sum(record.size for record in records) == work["length"]
    folder = home.folder / "commands" / "a"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 5 << 20


def test_bytes_of_every_kind_and_lines_of_a_megabyte(home: Agents) -> None:
    client = home.attach()
    wanted = os.urandom(3 << 20) + b"x" * (1 << 20) + b"\n" + bytes(range(256))
    (home.home / "wanted").write_bytes(wanted)
    work, records = client.run("a", shell="cat wanted; cat wanted >&2")
    assert work["exit"] == 0
    assert text(records) == text(records, frames.STDERR) == wanted
    assert [r.at for r in records] == sorted(r.at for r in records)


def test_a_command_ends_with_its_leader_and_its_daemon_lives_on(home: Agents) -> None:
    client = home.attach()
    os.mkfifo(home.home / "go")
    work, records = client.run("a", shell="(read x <go; echo late; sleep 1000) & echo soon")
    assert (work["exit"], text(records)) == (0, b"soon\n")
    assert len(ours(home, "a")) >= 1
    say(home.home / "go", "\n")
    until(lambda: text(client.records(client.ask("attach", id="a"))[1]) == b"soon\nlate\n")
    told = client.call("clean", grace_s=2)
    assert {row["work"] for row in told["ended"]} == {"a"}
    assert ours(home, "a") == []


DAEMON = "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 1000\" &) ; echo up; sleep 1000"


def test_stop_ends_processes_that_ignore_it_or_fled_into_another_session(home: Agents) -> None:
    client = home.attach()
    client.data(client.ask("run", id="a", shell=DAEMON), 5)
    until(lambda: len(ours(home, "a")) >= 4)
    work = client.call("stop", id="a", grace_s=0.2, why="it was time")
    assert (work["signal"], work["why"], work["phase"]) == (9, "it was time", "ended")
    assert ours(home, "a") == []


def test_signals_reach_the_leader_or_all(home: Agents) -> None:
    client = home.attach()
    id = client.ask(
        "run", id="a", shell="trap 'echo got; exit 3' USR1; echo up; while :; do sleep 1; done"
    )
    client.data(id, 5)
    client.call("signal", id="a", signal=10)
    assert client.stream(id)[0]["exit"] == 3
    id = client.ask("run", id="b", shell="sleep 1000; echo ended by $?")
    until(lambda: len(ours(home, "b")) == 2)
    client.call("signal", id="b", signal=9, whole=True)
    assert client.stream(id)[0]["signal"] == 9


def feed(client: AgentClient, id: int, wanted: bytes) -> None:
    """Send on standard input, as much as there is credit for."""
    left, credit = memoryview(wanted), frames.WINDOW
    while left:
        while not credit:
            if any(f.id == id and f.kind == frames.REPLY for f in client.waiting):
                return
            client.pull()
            for frame in [f for f in client.waiting if f.kind == frames.CREDIT]:
                client.waiting.remove(frame)
                credit += int.from_bytes(frame.payload, "big")
        many = min(credit, frames.DATA_MAX - 1, len(left))
        client.send(frames.pack_data(id, frames.STDIN, bytes(left[:many])))
        left, credit = left[many:], credit - many
    client.send(frames.pack_frame(frames.END, id, bytes([frames.STDIN])))


def test_standard_input_with_credit(old: Agents) -> None:
    client = old.attach()
    wanted = os.urandom(10 << 20)
    id = client.ask("run", id="a", argv=["sha256sum"], stdin=True)
    feed(client, id, wanted)
    _, records = client.records(id)
    assert text(records).decode().split()[0] == hashlib.sha256(wanted).hexdigest()
    id = client.ask("run", id="b", shell="head -c 3; exec sleep 0.01", stdin=True)
    feed(client, id, bytes(1 << 20))  # most of it is not read
    assert client.stream(id)[0]["exit"] == 0
    id = client.ask("run", id="c", argv=["cat"], stdin=True)
    client.send(frames.pack_data(id, frames.STDIN, b"never ended"))
    client.data(id, 11)
    client.call("close_stdin", id="c")
    assert client.stream(id)[0]["exit"] == 0
    assert client.run("d", argv=["cat"])[0]["exit"] == 0  # without: it is empty


SMALL = {"rows": 9, "columns": 40}
CLOSED = "exec <&- >&- 2>&-; sleep 0.3; "


@pytest.mark.parametrize("shell", ["touch made", CLOSED + "exit 0"], ids=["touch", "shell"])
def test_a_command_that_closes_its_terminal_is_not_hung_up(home: Agents, shell: str) -> None:
    """As `touch` does before it ends: nobody but the agent has the terminal open then."""
    client = home.attach()
    for at in range(10):
        work, _ = client.stream(client.ask("run", id=f"c{at}", shell=shell, terminal=SMALL))
        assert (work["exit"], work["signal"]) == (0, None)


def test_a_terminal(old: Agents) -> None:
    client = old.attach()
    size = {"rows": 33, "columns": 101, "term": "dumb"}
    shell = "stty size; tty; echo $TERM; trap 'stty size' WINCH; trap 'echo int; exit 4' INT; "
    shell += "echo ready; while :; do sleep 0.05; done"
    id = client.ask("run", id="a", shell=shell, terminal=size)
    shown = b""
    while b"ready" not in shown:
        shown += client.data(id, 1)
    assert shown.startswith(b"33 101\r\n/dev/pts/")
    client.call("resize", id="a", rows=50, columns=132)
    while b"50 132" not in shown:
        shown += client.data(id, 1)
    client.send(frames.pack_data(id, frames.STDIN, b"\x03"))
    work, rest = client.stream(id)
    assert (work["exit"], work["terminal"], b"int" in rest) == (4, True, True)
    work, whole = client.stream(client.ask("attach", id="a"))
    assert whole == shown + rest
    assert len(whole) == work["length"]


@pytest.mark.root
def test_a_full_disk_stops_no_command_and_the_gap_is_reported(small: Agents) -> None:
    client = small.attach()
    # Two pipes: whoever opens one again while its last writer still closes it reads an end.
    for pipe in ("go", "on", "past"):
        os.mkfifo(small.home / pipe)
    past = os.open(small.home / "past", os.O_RDONLY | os.O_NONBLOCK)
    shell = (
        "echo one; read x <go; seq 100000; echo middle; echo >past; read x <on; echo end; exit 3"
    )
    id = client.ask("run", id="a", shell=shell)
    text_one = client.data(id, 5)
    filler = small.home / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    say(small.home / "go", "\n")
    lost = client.event("gap", work="a")["lost"]
    # With room again, a log that nobody reads holds its command back: all must be out before that.
    assert select.select([past], [], [], PATIENCE_S)[0]
    os.close(past)
    work, records = client.run("b", shell="echo there is room in memory; rm filler")
    assert (work["exit"], text(records)) == (0, b"there is room in memory\n")
    say(small.home / "on", "\n")
    work, rest = client.stream(id)
    records = list(RecordReader().feed(text_one + rest))
    gaps = [parse_number(record.piece) for record in records if record.port == GAP]
    assert work["exit"] == 3
    assert work["lost_bytes"] == sum(gaps) >= lost > 0
    assert text(records).startswith(b"one\n")
    assert text(records).endswith(b"end\n")
    assert sum(gaps) + len(text(records)) == len("one\nmiddle\nend\n") + len(
        "".join(f"{n}\n" for n in range(1, 100001))
    )


def test_many_commands_at_once(home: Agents) -> None:
    clients = [home.attach() for _ in range(4)]
    done: list[bool] = []

    def use(index: int, client: AgentClient) -> None:
        ids = {client.ask("run", id=f"{index}-{n}", shell=f"seq {n}"): n for n in range(20)}
        for id, n in ids.items():
            work, records = client.records(id)
            told = text(records).decode().split()
            done.append((work["exit"], told) == (0, [str(i + 1) for i in range(n)]))

    threads = [threading.Thread(target=use, args=pair) for pair in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 80
    assert home.memory(clients[0]) < MEMORY_MAX
    assert not gone(clients[0].hello["pid"])
