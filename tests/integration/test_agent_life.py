"""An agent lives as long as its host: through cuts, kills, other versions and malformed input."""

import ctypes.util
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agents import (
    AgentClient,
    Agents,
    Failed,
    Gone,
    agents,
    gone,
    pythons,
    say,
    status,
    text,
    until,
)
from tpuherd.remote.agent_bootstrap import END_OF_LINES, MARK
from tpuherd.remote.agent_bundle import current_agent
from tpuherd_host.agent import frames
from tpuherd_host.agent.processes import boot_id

pytestmark = pytest.mark.real


@pytest.fixture(params=sorted(pythons()))
def each_home(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agents]:
    with agents(tmp_path, request.param) as made:
        yield made


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with agents(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.mark.parametrize("again", range(5))
def test_the_first_command_says_why_it_could_not_start(home: Agents, again: int) -> None:
    """Five times: an agent's first beat and its supervisor's answer come in either order."""
    work, records = home.attach().run("a", argv=["no-such-program"])
    assert (work["exit"], work["length"]) == (127, sum(record.size for record in records))
    assert text(records, frames.STDERR) == b"herd: no-such-program: command not found\n"


def test_a_host_without_the_agent_asks_for_it(each_home: Agents) -> None:
    bootstrap(each_home, "nothing")


@pytest.mark.parametrize("there", ["empty", "half", "whole"])
def test_a_host_asks_for_the_agent_unless_it_has_all_of_it(home: Agents, there: str) -> None:
    bootstrap(home, there)


def bootstrap(home: Agents, there: str) -> None:
    """Start an agent on a host that has this of its file, twice: the second start finds it."""
    content = current_agent().content
    parts = {"empty": b"", "half": content[: len(content) // 2], "whole": content}
    home.file.unlink()
    if there in parts:
        home.file.write_bytes(parts[there])
    process = home.begin()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"exec sh -c : a shell may have read this line\n")
    word = process.stdout.readline()
    process.stdin.write(END_OF_LINES)
    if there != "whole":
        assert word == MARK + b"want\n"
        sent = current_agent().compressed
        process.stdin.write(b"%d\n" % len(sent) + sent)
        word = process.stdout.readline()
    assert word == MARK + b"have\n"
    home.clients.append(AgentClient(process, 0, "me"))
    path = {"PYTHONPATH": str(home.file)}  # as attempts have it
    argv = [home.interpreter, "-c", "import tpuherd_host.report"]
    assert home.clients[0].run("a", argv=argv, env=path)[0]["exit"] == 0
    assert home.clients[0].call("facts")["boot"] == boot_id()
    again = home.begin()
    assert again.stdin is not None and again.stdout is not None
    again.stdin.write(END_OF_LINES)
    assert again.stdout.readline() == MARK + b"have\n"
    home.clients.append(AgentClient(again, 0, "me"))
    assert home.clients[1].hello["pid"] == home.clients[0].hello["pid"]


@pytest.mark.parametrize("login", [{}, {"LD_PRELOAD": ""}, {"HERD_WORK": "a"}], ids=str)
def test_an_agent_inherits_nothing_from_its_starter(home: Agents, login: dict[str, str]) -> None:
    """A library that is loaded into all, or the mark of a piece of work: it would end with that."""
    library = ctypes.util.find_library("m") or ""
    home.environment.update({name: value or library for name, value in login.items()})
    client = home.attach()
    pid = client.hello["pid"]
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert not [one for one in environ if one.startswith((b"LD_PRELOAD=", b"HERD_WORK="))]
    assert Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == b"herd-agent"
    said = text(client.run("a", argv=["env"])[1]).splitlines()
    assert (f"LD_PRELOAD={library}".encode() in said) == ("LD_PRELOAD" in login)
    assert b"HERD_WORK=a" in said  # its own


def test_commands_end_as_in_a_shell(each_home: Agents) -> None:
    client = each_home.attach()
    assert client.hello["agent"] == each_home.file.name.removeprefix("agent-").removesuffix(".pyz")
    assert client.hello["boot"] == boot_id()
    work, records = client.run("a", shell="echo out; echo err >&2; exit 7")
    assert (work["exit"], work["signal"], work["phase"]) == (7, None, "ended")
    assert (text(records), text(records, frames.STDERR)) == (b"out\n", b"err\n")
    assert work["rusage"]["memory_bytes"] > 0
    work, _ = client.run("b", shell="kill -9 $$")
    assert (work["exit"], work["signal"]) == (None, 9)
    work, records = client.run("c", argv=["no-such-program"])
    assert work["exit"] == 127
    assert text(records, frames.STDERR) == b"herd: no-such-program: command not found\n"
    (each_home.home / "plain").write_text("no program")
    assert client.run("d", argv=["./plain"])[0]["exit"] == 126
    assert client.run("e", argv=["true"], directory="nowhere")[0]["exit"] == 125
    work, records = client.run("f", argv=["pwd"])
    assert text(records).decode().strip() == str(each_home.home)
    (each_home.home / "sub").mkdir()
    work, records = client.run("g", argv=["pwd"], directory="~/sub", env={"A": "ü\n"})
    assert text(records).decode().strip() == str(each_home.home / "sub")
    script = each_home.home / "script"
    script.write_text("echo no line says by whom $1")
    script.chmod(0o755)
    assert text(client.run("h", argv=["./script", "!"])[1]) == b"no line says by whom !\n"
    work, records = client.run("i", argv=["env"], env={"A": "ü"})
    told = dict(line.split("=", 1) for line in text(records).decode().splitlines())
    assert (told["A"], told["HOME"], told["HERD_WORK"]) == ("ü", str(each_home.home), "i")
    assert [w["id"] for w in client.call("commands")["commands"]] == list("abcdefghi")


def test_a_cut_connection_ends_no_command(each_home: Agents) -> None:
    client = each_home.attach()
    pipe = each_home.home / "go"
    os.mkfifo(pipe)
    id = client.ask("run", id="a", shell="echo one; cat go; echo two; exit 3")
    assert client.data(id, 5).endswith(b"one\n")
    client.leave()
    again = each_home.attach()
    assert again.hello["pid"] == client.hello["pid"]
    say(pipe, "word\n")
    work, records = again.records(again.ask("attach", id="a"))
    assert (work["exit"], text(records)) == (3, b"one\nword\ntwo\n")
    work, records = again.records(again.ask("attach", id="a", **{"from": work["length"]}))
    assert (work["exit"], records) == (3, [])
    _, records = again.records(again.ask("attach", id="a"))
    _, rest = again.records(again.ask("attach", id="a", **{"from": records[0].size}))
    assert rest == records[1:]


def test_a_killed_agent_loses_nothing(each_home: Agents) -> None:
    client = each_home.attach()
    os.mkfifo(each_home.home / "go")
    id = client.ask("run", id="a", shell="echo one; cat go; seq 9999; exit 5")
    client.data(id, 5)
    each_home.kill(client)
    with pytest.raises(Gone):
        client.stream(id)
    say(each_home.home / "go", "said while nobody listened\n")
    again = each_home.attach()
    assert again.hello["pid"] != client.hello["pid"]
    work, records = again.records(again.ask("attach", id="a"))
    assert (work["phase"], work["exit"]) == ("ended", 5)
    told = b"".join(b"%d\n" % n for n in range(1, 10000))
    assert text(records) == b"one\nsaid while nobody listened\n" + told


def test_a_command_that_ended_between_two_agents_is_known(home: Agents) -> None:
    client = home.attach()
    os.mkfifo(home.home / "go")
    client.data(client.ask("run", id="a", shell="echo one; read x <go; echo two; exit 5"), 5)
    home.kill(client)
    say(home.home / "go", "\n")
    until((home.folder / "commands" / "a" / "exit").exists)
    again = home.attach()
    work, records = again.records(again.ask("attach", id="a"))
    assert (work["phase"], work["exit"], text(records)) == ("ended", 5, b"one\ntwo\n")


def test_an_unseen_end_is_reported_as_lost(home: Agents) -> None:
    client = home.attach()
    os.mkfifo(home.home / "go")
    client.data(client.ask("run", id="a", shell="echo one; read x <go; exit 5"), 5)
    supervisor_pid, pid = home.supervisor_pid(client), client.call("commands")["commands"][0]["pid"]
    os.kill(client.hello["pid"], signal.SIGKILL)
    os.kill(supervisor_pid, signal.SIGKILL)
    say(home.home / "go", "\n")
    until(lambda: gone(pid))
    again = home.attach()
    work, _ = again.records(again.ask("attach", id="a"))
    assert (work["phase"], work["exit"]) == ("lost", None)
    assert "exit status is unknown" in work["why"]


def test_a_killed_supervisor_is_replaced(home: Agents) -> None:
    client = home.attach()
    supervisor_pid = home.supervisor_pid(client)
    id = client.ask("run", id="a", shell="echo one; sleep 1000")
    client.data(id, 5)
    os.kill(supervisor_pid, signal.SIGKILL)
    until(lambda: home.supervisor_pid(client) not in (0, supervisor_pid))
    assert client.run("b", argv=["true"])[0]["exit"] == 0
    work = client.call("stop", id="a", grace_s=5)
    assert (work["phase"], work["exit"]) == ("lost", None)


def test_after_a_reboot_nothing_runs(home: Agents) -> None:
    client = home.attach(epoch=1)
    client.call("start", attempt="x-1", slot="x", argv=["sleep", "1000"])
    until(lambda: client.call("attempts")["attempts"][0]["phase"] == "running")
    client.data(client.ask("run", id="a", shell="echo one; sleep 1000"), 5)
    works = [home.folder / "attempts" / "x-1", home.folder / "commands" / "a"]
    home.kill(client)
    for folder in works:
        content = {**status(folder), "boot": "another"}
        (folder / "status.json").write_text(json.dumps(content))
    again = home.attach()
    [attempt] = again.call("attempts")["attempts"]
    assert (attempt["phase"], attempt["why"]) == ("lost", "the host was rebooted")
    work, records = again.records(again.ask("attach", id="a"))
    assert (work["phase"], text(records)) == ("lost", b"one\n")


def test_many_concurrent_controllers_find_one_agent(home: Agents) -> None:
    started = [home.start() for _ in range(8)]
    pids: list[int] = []

    def greet(process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        [hello, *_] = frames.FrameReader().feed(os.read(process.stdout.fileno(), 1 << 16))
        pids.append(hello.content["pid"])

    threads = [threading.Thread(target=greet, args=(process,)) for process in started]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in started:
        process.kill()
        process.communicate()
    assert len(pids) == 8
    assert len(set(pids)) == 1


def test_an_idle_agent_is_replaced_by_another_version_and_a_busy_one_stays(home: Agents) -> None:
    other = home.folder / "agent-0123.pyz"
    other.write_bytes(home.file.read_bytes())
    old = home.attach()
    assert old.run("a", shell="exit 4")[0]["exit"] == 4
    busy = home.attach(file=other)
    assert busy.hello["agent"] == old.hello["agent"]  # the first is connected still
    busy.leave()
    old.leave()
    until(lambda: home.attach(file=other).hello["agent"] == "0123")
    new = home.clients[-1]
    assert [w["exit"] for w in new.call("commands")["commands"]] == [4]
    new.ask("run", id="b", argv=["sleep", "1000"])
    until(lambda: new.call("commands")["commands"][-1]["phase"] == "running")
    for client in home.clients:
        client.leave()
    assert home.attach().hello["agent"] == "0123"


def test_two_controllers_see_the_same(home: Agents) -> None:
    one, two = home.attach(), home.attach()
    os.mkfifo(home.home / "go")
    first = one.ask("run", id="a", shell="echo one; read x <go; echo two")
    one.data(first, 5)
    second = two.ask("attach", id="a")
    same = two.ask("run", id="a", shell="echo one; read x <go; echo two")
    with pytest.raises(Failed) as taken:
        two.call("run", id="a", shell="echo another")
    assert taken.value.error == "taken"
    say(home.home / "go", "\n")
    assert text(two.records(second)[1]) == text(two.records(same)[1]) == b"one\ntwo\n"
    assert one.stream(first)[0]["exit"] == 0


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"\0" * 64,
        frames.pack_json(frames.CALL, 0, {"verb": "ping"}),
        frames.pack_json(frames.REPLY, 1, {}),
        frames.pack_frame(frames.CALL, 1, b"[1]"),
        frames.pack_frame(frames.CALL, 1, b"[" * 100000),
        # Nobody reads that input, so no credit comes for more of it.
        frames.pack_json(
            frames.CALL, 1, {"verb": "run", "id": "a", "shell": "sleep 99", "stdin": True}
        )
        + frames.pack_data(1, 0, b"x" * 200000) * 4,
        frames.pack_json(frames.HELLO, 0, {"protocol": 99}),
    ],
    ids=range(8),
)
def test_a_malformed_frame_ends_its_connection_and_no_other(
    shared_home: Agents, nonsense: bytes, request: pytest.FixtureRequest
) -> None:
    good, bad = shared_home.attach(), shared_home.attach()
    work = f"good-{request.node.callspec.id}"
    id = good.ask("run", id=work, shell="echo one; sleep 1000")
    good.data(id, 5)
    bad.send(nonsense)
    with pytest.raises(Gone):
        while bad.pull():
            pass
    assert bad.process.wait(60) == 0
    assert good.call("stop", id=work, grace_s=5)["signal"] == 15


@pytest.mark.parametrize(
    ("verb", "arguments", "error"),
    [
        ("nothing", {}, "unknown"),
        ("attach", {"id": "absent"}, "unknown"),
        ("run", {"id": "../x", "argv": ["true"]}, "unfit"),
        ("run", {"id": "x"}, "unfit"),
        ("run", {"id": "x", "argv": ["true"], "shell": "true"}, "unfit"),
        ("run", {"id": "x", "argv": [1]}, "unfit"),
        ("run", {"id": "x", "argv": ["a\0b"]}, "unfit"),
        ("run", {"id": "x", "argv": ["true"], "env": {"A=B": ""}}, "unfit"),
        ("run", {"id": "x", "argv": ["true"], "from": 10}, "unfit"),
        ("start", {"attempt": "x", "argv": ["true"]}, "outdated"),
        ("setup", {"id": "x", "steps": []}, "unfit"),
    ],
    ids=str,
)
def test_invalid_calls_are_refused_with_a_sentence(
    shared_home: Agents, verb: str, arguments: dict[str, object], error: str
) -> None:
    client = shared_home.attach()
    with pytest.raises(Failed) as failed:
        client.call(verb, **arguments)
    assert failed.value.error == error
    assert str(failed.value)
    assert client.call("ping")["time"] > 0
