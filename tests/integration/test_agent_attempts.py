"""Attempts on a host: started once, fenced, watched, warned, stopped and cleaned up."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agents import AgentClient, Agents, Failed, agents, say, text, until
from tpuherd_host.agent.processes import all_processes, marked_task

pytestmark = pytest.mark.real


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Agents]:
    with agents(tmp_path, "3.8") as made:
        yield made


def phase(client: AgentClient, attempt: str) -> str:
    works = {work["id"]: work for work in client.call("attempts")["attempts"]}
    return str(works[attempt]["phase"])


def begun(client: AgentClient, attempt: str, **arguments: Any) -> None:
    """Start it, and wait until its command runs."""
    arguments.setdefault("shell", "echo up; exec sleep 1000")
    client.call("start", attempt=attempt, **{"slot": "gpt-0", **arguments})
    client.event("attempt", id=attempt, phase="running")


def test_an_attempt_is_started_once_and_reported(home: Agents) -> None:
    client = home.attach(epoch=5)
    arguments = {"slot": "gpt-0", "number": 2, "shell": "echo $SECRET $HERD_WORK; read x <go"}
    os.mkfifo(home.home / "go")
    first = client.call("start", attempt="gpt-0-2", env={"SECRET": "s3"}, **arguments)
    assert (first["again"], first["number"]) == (False, 2)
    assert client.call("start", attempt="gpt-0-2", env={"SECRET": "s3"}, **arguments)["again"]
    with pytest.raises(Failed, match="still runs") as busy:
        client.call("start", attempt="gpt-0-3", **arguments)
    assert busy.value.error == "busy"
    follower = home.attach()
    id = follower.ask("follow", attempt="gpt-0-2")
    follower.data(id, 5)
    say(home.home / "go", "\n")
    ended = follower.event("ended", id="gpt-0-2")
    assert (ended["exit"], ended["tail"], ended["free"]) == (0, ["s3 gpt-0-2"], True)
    folder = home.folder / "attempts" / "gpt-0-2"
    kept = [file for file in folder.iterdir() if b"s3" in file.read_bytes()]
    assert sorted(f.name for f in kept) == ["log.00000000000000000000", "status.json"]
    assert {file.stat().st_mode & 0o077 for file in folder.iterdir()} == {0}
    home.kill(client)
    again = home.attach(epoch=5)
    assert again.call("start", attempt="gpt-0-2", env={"SECRET": "s3"}, **arguments)["again"]
    assert phase(again, "gpt-0-2") == "ended"


def test_only_the_newest_engine_of_an_owner_leads(home: Agents) -> None:
    old, new, other = (home.attach(epoch=n, owner=o) for n, o in ((5, "a"), (6, "a"), (1, "b")))
    begun(old, "x-1", slot="x")
    new.call("lease", seconds=100)
    for verb in ("start", "halt", "lease"):
        with pytest.raises(Failed) as failed:
            old.call(verb, attempt="x-1", argv=["true"], slot="x")
        assert failed.value.error == "outdated"
    begun(other, "y-1", slot="y")
    assert new.call("halt", attempt="x-1", grace_s=5)["signal"] == signal.SIGTERM
    home.kill(new)
    late = home.attach(epoch=5, owner="a")
    assert late.hello["epoch"] == 6
    with pytest.raises(Failed, match="epoch 6"):
        late.call("start", attempt="x-2", argv=["true"])


TRAINER = """
import os, signal, subprocess, sys
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "worker"], start_new_session=True)
    def save(*_):
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""


def test_halt_lets_the_leader_save_and_leaves_nothing(home: Agents) -> None:
    client = home.attach(epoch=1)
    (home.home / "train.py").write_text(TRAINER)
    begun(client, "x-1", shell=None, argv=[sys.executable, "train.py"])
    id = client.ask("follow", attempt="x-1")
    client.data(id, 30)
    work = client.call("halt", attempt="x-1", grace_s=1.0, why="it was withdrawn")
    assert (work["exit"], work["free"], work["why"]) == (0, True, "it was withdrawn")
    assert work["tail"][-1] == "saved"
    assert [p for p in all_processes() if marked_task(p, str(home.folder)) == "x-1"] == []
    assert client.call("halt", attempt="x-1")["exit"] == 0
    assert client.call("halt", attempt="never")["phase"] == "absent"


def test_halt_names_the_users_of_the_chips(home: Agents) -> None:
    client = home.attach(epoch=1)
    lock = home.home / ".libtpu_lockfile"
    script = "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f,2); print('up',flush=True); "
    script += "sys.stdin.read()"
    words = [sys.executable, "-c", script, str(lock)]
    holder = subprocess.Popen(words, stdin=-1, stdout=-1)
    assert holder.stdout is not None
    holder.stdout.readline()
    [row] = client.call("holders")["holders"]
    assert (row["pid"], row["device"], row["ours"]) == (holder.pid, str(lock), False)
    assert "lockf" in row["command"]
    assert client.call("clean")["removed"] == []
    begun(client, "x-1")
    id = client.ask("halt", attempt="x-1", grace_s=5)
    client.event("attempt", id="x-1", phase="running")
    until(lambda: phase(client, "x-1") == "freeing")
    holder.communicate()
    assert client.stream(id)[0]["free"] is True
    assert client.call("clean")["removed"] == [str(lock)]


def test_clean_all_ends_all_users_of_the_chips(home: Agents) -> None:
    client = home.attach(epoch=1)
    begun(client, "x-1", shell="echo up; sleep 1000; true")
    (home.home / ".libtpu_lockfile").touch()
    with (home.home / ".libtpu_lockfile").open("w") as file:
        pid = os.fork()
        if not pid:
            fcntl.lockf(file, fcntl.LOCK_EX)
            signal.pause()
    until(lambda: client.call("holders")["holders"])
    assert client.call("clean", grace_s=1)["ended"] == []
    told = client.call("clean", all=True, grace_s=1)
    assert {row["work"] for row in told["ended"]} == {"", "x-1"}
    assert (told["left"], os.waitpid(pid, 0)[1]) == ([], signal.SIGTERM)
    ended = client.event("ended", id="x-1")
    assert ended["signal"] == signal.SIGTERM
    assert (ended["stopped"], ended["code"]) == (True, "cleaned")
    assert ended["why"] == "ended by herd clean of test"


@pytest.mark.parametrize("agent", ["x-0-a1-me", "x-0-g1-me-setup-1f-0"], ids=["attempt", "setup"])
def test_an_unknown_attempt_is_ended_before_another_starts(home: Agents, agent: str) -> None:
    client = home.attach(epoch=1)
    shell = "echo up; sleep 1000 & sleep 1000"
    if "setup" in agent:
        client.ask("setup", id=agent, slot="x-0", steps=[{"shell": shell}])
        client.event("attempt", id=agent, phase="running")
    else:
        begun(client, agent, slot="x-0", shell=shell)

    def mine() -> list[int]:
        return [one for one in all_processes() if marked_task(one, str(home.folder)) == agent]

    until(lambda: len(mine()) >= 2)
    home.kill(client)
    for folder in ("attempts", "setups", "commands"):
        shutil.rmtree(home.folder / folder, ignore_errors=True)
    again = home.attach(epoch=1)
    assert phase(again, agent) == "sweeping"
    if "setup" not in agent:
        with pytest.raises(Failed, match="still runs"):
            again.call("start", attempt="x-0-a2-me", slot="x-0", argv=["true"])
    ended = again.event("ended", id=agent)
    assert (ended["phase"], ended["exit"]) == ("lost", None)
    assert "were removed from the host" in ended["why"]
    assert mine() == []
    if "setup" in agent:  # its request is unknown: the answer is how it ended
        assert again.call("setup", id=agent, slot="x-0", steps=[{"shell": shell}])["exit"] is None
    begun(again, "x-0-a2-me", slot="x-0")


def test_a_users_command_survives_the_loss_of_the_agents_state(home: Agents) -> None:
    client = home.attach(epoch=1)
    id = client.ask("run", id="q1", shell="echo up; exec sleep 1000")
    client.data(id, 5)
    home.kill(client)
    shutil.rmtree(home.folder / "commands")
    again = home.attach(epoch=1)
    assert again.call("attempts")["attempts"] == []
    [pid] = [one for one in all_processes() if marked_task(one, str(home.folder)) == "q1"]
    os.kill(pid, signal.SIGKILL)


def test_setup_steps_are_cached_and_a_failure_is_explained(home: Agents) -> None:
    client = home.attach(epoch=1)
    steps: list[dict[str, Any]] = [
        {"name": "pip", "hash": "h1", "shell": "echo installed >> ran", "delay_s": 0.1},
        {"name": "data", "hash": "h2", "shell": "echo no such bucket >&2; exit 9"},
        {"name": "never", "hash": "h3", "argv": ["true"]},
    ]
    failed = client.call("setup", id="s-1", steps=steps)
    assert (failed["exit"], failed["stage"], failed["stage_name"]) == (9, 1, "data")
    assert failed["why"] == "data failed"
    assert failed["tail"][-1] == "no such bucket"
    steps[1]["shell"] = "true"
    assert client.call("setup", id="s-2", steps=steps)["exit"] == 0
    home.kill(client)
    again = home.attach(epoch=1)
    assert again.call("setup", id="s-3", steps=steps)["exit"] == 0
    assert (home.home / "ran").read_text() == "installed\n"
    again.call("start", attempt="x-1", slot="x", setup=steps, shell="cat ran; exit 6")
    ended = again.event("ended", id="x-1")
    assert (ended["exit"], ended["stage"], ended["tail"]) == (6, 3, ["installed"])
    bad = [{"name": "bad", "argv": ["no-such"]}]
    again.call("start", attempt="x-2", slot="x", setup=bad, argv=["touch", "never"])
    ended = again.event("ended", id="x-2")
    assert (ended["exit"], ended["why"]) == (127, "no-such: command not found")
    assert not (home.home / "never").exists()


def test_a_setup_is_replaced_by_another(home: Agents) -> None:
    client = home.attach(epoch=1)
    hangs = [{"name": "hangs", "shell": "trap '' TERM; echo up; while :; do sleep 0.1; done"}]
    old = client.ask("setup", id="s-1", slot="x", steps=hangs)
    client.event("attempt", id="s-1", phase="running")
    assert [work["id"] for work in home.attach(epoch=1).call("attempts")["attempts"]] == ["s-1"]
    steps = [{"name": "quick", "shell": "echo ran >> ran"}]
    with pytest.raises(Failed, match="other steps") as taken:
        client.call("setup", id="s-1", slot="x", steps=steps)
    assert taken.value.error == "taken"
    told = client.call("setup", id="s-2", slot="x", steps=steps)
    assert (told["id"], told["signal"]) == ("s-1", signal.SIGKILL)  # for once it had its grace
    assert client.stream(old)[0]["why"] == "replaced by another setup"
    assert not (home.home / "ran").exists()
    told = client.call("setup", id="s-2", slot="x", steps=steps)
    assert (told["id"], told["exit"], told["slot"]) == ("s-2", 0, "x")
    assert (home.home / "ran").read_text() == "ran\n"


def test_the_dead_man_switch(home: Agents) -> None:
    client = home.attach(epoch=1)
    begun(client, "x-1", lease_s=0.6)
    client.call("lease", seconds=0.8)
    watcher = home.attach()
    assert watcher.event("deadman")["wanted"] == "delete"
    ended = watcher.event("ended", id="x-1")
    assert (ended["deadman"], ended["signal"]) == (True, signal.SIGTERM)
    assert "dead-man switch" in ended["why"]


def test_steps_are_reported(home: Agents) -> None:
    client = home.attach(epoch=1)
    script = "import json,os,socket; s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); "
    script += "s.sendto(b'nonsense',os.environ['HERD_STEPS']); "
    script += "s.sendto(json.dumps({'attempt':os.environ['HERD_WORK'],'step':7}).encode(),"
    script += "os.environ['HERD_STEPS']); print('up',flush=True); import signal; signal.pause()"
    begun(client, "x-1", shell=None, argv=[sys.executable, "-c", script])
    assert client.event("step", attempt="x-1")["report"] == {"step": 7}
    [work] = client.call("attempts")["attempts"]
    assert work["report"]["step"] == 7
    beat = client.event("heartbeat")
    assert beat["attempts"][0]["id"] == "x-1"


def served(
    socket_file: socket.socket,
    change: threading.Event,
    asked: list[str],
    heard: threading.Event | None = None,
) -> None:
    """A metadata server that says FALSE, and TRUE after the change; who waits hears it then, or
    when that is `heard`."""

    def answer(line: socket.socket) -> None:
        with line, suppress(ConnectionError):  # an agent that is killed leaves in the middle
            request = line.recv(4096).decode()
            if not request:
                return
            path = request.split(" ")[1]
            asked.append(path)
            if "wait_for_change" in path:
                (heard or change).wait(30)
            changed = change.is_set() and "preempted" in path
            value = "TRUE" if changed else "NONE" if "maintenance" in path else "FALSE"
            head = f"HTTP/1.0 200 OK\r\nMetadata-Flavor: Google\r\nETag: {value}\r\n\r\n{value}"
            line.sendall(head.encode())

    while True:
        try:
            line, _ = socket_file.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(line,), daemon=True).start()


def test_a_notice_is_reported_at_once_and_lets_the_trainer_save(home: Agents) -> None:
    change, asked = threading.Event(), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as socket_file:
        threading.Thread(target=served, args=(socket_file, change, asked), daemon=True).start()
        home.environment["GCE_METADATA_HOST"] = f"127.0.0.1:{socket_file.getsockname()[1]}"
        client, command = home.attach(epoch=1), home.attach()
        (home.home / "train.py").write_text(TRAINER)
        begun(client, "x-1", shell=None, argv=[sys.executable, "train.py"], notice_grace_s=1)
        id = client.ask("follow", attempt="x-1")
        client.data(id, 30)
        until(lambda: len([path for path in asked if "wait_for_change" in path]) == 2)
        change.set()
        notice = command.event("notice", what="preempted", value="TRUE")
        assert notice["deadly"]
        work, records = client.records(id)
        assert (work["exit"], work["why"]) == (0, "the host is going away: preempted is TRUE")
        assert text(records).endswith(b"saved\n")
        assert home.attach().call("attempts")["notices"]["preempted"] == "TRUE"
        socket_file.close()


def ending_word(home: Agents) -> Path:
    """Give the host a `systemctl` whose answers are in this file: its state, its jobs."""
    word, folder = home.home / "state", home.home / "programs"
    folder.mkdir()
    script = f"#!/bin/sh\n[ $1 = list-jobs ] && exec sed 1d {word}\nsed -n 1p {word}\n"
    script += f"touch {folder}/asked\n"
    (folder / "systemctl").write_text(script)
    (folder / "systemctl").chmod(0o755)
    home.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    word.write_text("running\n")
    return word


@pytest.mark.parametrize("state", ["running\n", "degraded\n", "", None])
def test_a_mere_signal_is_no_notice(home: Agents, state: str | None) -> None:
    word = ending_word(home)
    word.unlink() if state is None else word.write_text(state)
    client = home.attach(epoch=1)
    begun(client, "x-1", shell="while [ ! -e end ]; do sleep 0.02; done")
    asked = home.home / "programs/asked"
    until(asked.exists)  # at the agent's start
    asked.unlink()
    for pid in (client.process.pid, client.hello["pid"], home.supervisor_pid(client)):
        os.kill(pid, signal.SIGTERM)
    until(asked.exists)
    told = home.attach()
    assert told.hello["pid"] == client.hello["pid"]
    assert told.call("attempts")["notices"] == {}
    (home.home / "end").touch()
    work, _ = client.records(client.ask("follow", attempt="x-1"))
    assert (work["exit"], work["signal"], work["why"]) == (0, None, "")
    assert [event for event in client.events if event["event"] == "notice"] == []


def test_a_host_that_shuts_down_sends_a_last_message(home: Agents) -> None:
    word = ending_word(home)
    change, never, asked = threading.Event(), threading.Event(), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as socket_file:
        said = (socket_file, change, asked, never)
        threading.Thread(target=served, args=said, daemon=True).start()
        home.environment["GCE_METADATA_HOST"] = f"127.0.0.1:{socket_file.getsockname()[1]}"
        client = home.attach(epoch=1)
        until(lambda: len([path for path in asked if "wait_for_change" in path]) == 2)
        change.set()
        word.write_text("stopping\n")
        for pid in (client.process.pid, client.hello["pid"]):  # as an init does, in any order
            os.kill(pid, signal.SIGTERM)
        assert client.event("notice", what="shutdown")["deadly"]
        assert client.event("notice", what="preempted", value="TRUE")["deadly"]
        assert client.process.wait(60) == 0
        never.set()


@pytest.mark.parametrize(("hold_s", "jobs"), [(60.0, ""), (0.0, ""), (60.0, "reboot.target")])
def test_outputs_hold_a_host_that_goes_while_somebody_may_fetch_them(
    home: Agents, hold_s: float, jobs: str
) -> None:
    word = ending_word(home)
    client = home.attach(epoch=1)
    begun(client, "x-1", shell="echo all > out; trap 'exit 3' TERM; while :; do sleep 0.05; done",
          hold_s=hold_s)  # fmt: skip
    until((home.home / "out").exists)
    word.write_text(f"stopping\n{jobs}\n")
    os.kill(client.hello["pid"], signal.SIGTERM)
    client.event("notice", what="shutdown")
    if hold_s and not jobs:
        work, _ = client.records(client.ask("follow", attempt="x-1"))
        assert work["exit"] == 3
        assert client.stream(client.ask("give", paths=["out"]))[1]
        client.leave()
    until(lambda: not Path(f"/proc/{client.hello['pid']}").exists())


def test_facts(home: Agents) -> None:
    told = home.attach().call("facts")
    assert told["python"].startswith("3.8")
    assert told["disk"]["free"] > 0
    assert told["memory"]["total"] > told["memory"]["available"] > 0
    assert told["tools"]["git"] or told["tools"]["git"] is None
    assert json.dumps(told)
