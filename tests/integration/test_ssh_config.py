"""Real ssh, scp, rsync and sftp reach hosts by name after `herd ssh --config`."""

import filecmp
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner
from tests.integration.users import Done

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh", "scp", "sftp", "rsync")]

CARRY = """
import socket, sys, threading
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def back():
    while piece := line.recv(65536):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
threading.Thread(target=back).start()
while piece := sys.stdin.buffer.read1(65536):
    line.sendall(piece)
line.shutdown(socket.SHUT_WR)
"""


@pytest.fixture(scope="module")
def me() -> Iterator[Owner]:
    """A user whose home has a space in its name, with a node of two hosts."""
    with owner("--time-scale", "600") as found:
        home = found.home / "my home"
        home.mkdir()
        user = Owner(home, found.world)
        try:
            for words in (
                ("up", "--name", "dev", "--accelerator", "v4-16", "--yes"),
                (
                    "ssh",
                    "--config",
                ),
            ):
                done = user.herd(*words)
                assert done.returncode == 0, done.stderr
            until(lambda: ssh(user, "dev-0", "true").returncode == 0, "the node", seconds=60)
            yield user
        finally:
            user.leave_all()


def config(me: Owner) -> str:
    return str(me.home / ".ssh/config")


def call(me: Owner, *words: str, **more: Any) -> "Done[str]":
    """Run a program of OpenSSH's as from anywhere: without a word about the world."""
    env = {name: value for name, value in me.env.items() if name != "HERD_WORLD"}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, **more)


def ssh(me: Owner, *words: str, **more: Any) -> "Done[str]":
    return call(me, "ssh", "-F", config(me), "-o", "BatchMode=yes", *words, **more)


@contextmanager
def no_new_nodes(me: Owner) -> Iterator[None]:
    me.world.ask("POST", "sim/v1/weather/http-error", {"http": 503, "method": "*.create"})
    try:
        yield
    finally:
        me.world.ask("POST", "sim/v1/weather/clear", {"rule": "all"})


def test_each_host_answers_to_its_name(me: Owner) -> None:
    ends = {name: ssh(me, name, "hostname").stdout.strip()[-4:] for name in names(me)}
    assert ends == {"dev": "-w-0", "dev-0": "-w-0", "dev-0-w0": "-w-0", "dev-0-w1": "-w-1"}
    done = ssh(me, "dev-0-w1", "cat; echo oops >&2; exit 7", input="in\n")
    assert (done.stdout, done.stderr, done.returncode) == ("in\n", "oops\n", 7)
    assert ssh(me, "bob@dev-0", "whoami").stdout == "bob\n"


def names(me: Owner) -> list[str]:
    text = (me.home / ".config/tpuherd/ssh/config").read_text()
    return [word for line in text.splitlines() if line[:5] == "Host " for word in line.split()[1:]]


def test_files_go_both_ways_with_every_program(me: Owner, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(range(256)) * 9_000)
    for words in (
        ("scp", "-F", config(me), "one", "dev-0-w1:by scp"),
        ("rsync", "-s", "-e", f"ssh -F '{config(me)}'", "one", "dev-0-w1:by rsync"),
    ):
        done = call(me, *words, cwd=str(tmp_path))
        assert done.returncode == 0, done.stderr
    batch = 'get "by scp" scp\nget "by rsync" rsync\n'
    done = call(me, "sftp", "-F", config(me), "-b", "-", "dev-0-w1", input=batch, cwd=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert filecmp.cmpfiles(tmp_path, tmp_path, ["scp", "rsync"], shallow=False)[0]
    assert filecmp.cmp(tmp_path / "one", tmp_path / "scp", shallow=False)
    assert filecmp.cmp(tmp_path / "one", tmp_path / "rsync", shallow=False)


def test_a_session_outlives_the_daemon(me: Owner) -> None:
    script = "echo here; read line; echo $line"
    session = ["ssh", "-F", config(me), "-o", "ControlPath=none", "dev-0", script]
    with subprocess.Popen(
        session, env=me.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        assert me.herd("engine", "daemon", "stop", "--now").returncode == 0
        assert process.communicate("still\n", timeout=60)[0] == "still\n"


def test_a_new_job_has_its_name_at_once_and_keeps_it_until_it_is_gone(me: Owner) -> None:
    with no_new_nodes(me):
        assert me.herd("up", "--name", "new", "--accelerator", "v4-8", "--yes").returncode == 0
        said = ssh(me, "new-0", "true").stderr
        assert "new-0" in said and "Could not resolve" not in said
    until(lambda: ssh(me, "new-0", "true").returncode == 0, "the node", seconds=60)
    assert me.herd("down", "new", "--yes").returncode == 0
    assert "new" not in " ".join(names(me))


def test_a_damaged_file_of_ours_stops_no_job(me: Owner) -> None:
    odd = me.home / ".config/tpuherd/ssh/odd.json"
    odd.write_text("{")
    try:
        done = me.herd("set", "dev", "max_cost=1000", "--yes")
        assert done.returncode == 0, done.stderr
        assert f"the names for ssh are as before: {odd} can't be used" in done.stderr
        refused = me.herd("ssh", "--config")
        assert refused.returncode == 2
        assert "delete it, then run herd ssh --config" in refused.stderr
    finally:
        odd.unlink()


def test_a_name_of_two_projects_is_refused_and_the_longer_one_works(me: Owner) -> None:
    folder = me.home / ".config/tpuherd/ssh"
    suffix = next(folder.glob("*.json")).stem
    twin = json.loads((folder / f"{suffix}.json").read_text()) | {"key": "another"}
    (folder / "twin.json").write_text(json.dumps(twin))
    try:
        assert me.herd("ssh", "--config").returncode == 0
        done = ssh(me, "dev-0", "true")
        assert done.returncode == 255
        assert f"dev-0 is in 2 projects: write dev-0.{suffix} or dev-0.twin" in done.stderr
        assert ssh(me, f"dev-0-w1.{suffix}", "hostname").stdout.endswith("-w-1\n")
    finally:
        (folder / "twin.json").unlink()
        assert me.herd("ssh", "--config").returncode == 0


def test_the_way_of_a_context_is_taken_whatever_context_is_current(me: Owner) -> None:
    carry = me.home / "carry.py"
    carry.write_text(f"open({str(me.home / 'used')!r}, 'w')\n{CARRY}")
    (_, host) = json.loads(me.herd("hosts", "dev", "--json").stdout)
    way = f"command:{sys.executable} '{carry}' {host['external_ip']} %p"
    add = me.herd("context", "add", "lab", "--world", me.world.folder, "--way", way)
    assert add.returncode == 0, add.stderr
    assert me.herd("context", "add", "other", "--world", "/nowhere").returncode == 0
    try:
        assert me.herd("ssh", "--config", env={"HERD_CONTEXT": "lab"}).returncode == 0
        assert me.herd("context", "use", "other").returncode == 0
        done = ssh(me, "-o", "ControlPath=none", "dev-0-w1", "hostname")
        assert done.stdout.endswith("-w-1\n"), done.stderr
        assert (me.home / "used").exists()
    finally:
        for name in ("lab", "other"):
            me.herd("context", "remove", name)
        assert me.herd("ssh", "--config").returncode == 0


def test_a_name_leads_to_the_next_node_and_says_what_is_wrong_until_then(me: Owner) -> None:
    first = until(lambda: ssh(me, "dev-0", "hostname").stdout, "the node of an earlier test")
    me.world.ask("POST", "sim/v1/weather/unreachable", {"target": "dev-0-*"})
    down = ssh(me, "-o", "ControlPath=none", "dev-0", "true")
    me.world.ask("POST", "sim/v1/weather/reachable", {"target": "dev-0-*"})
    assert down.returncode == 255
    assert "dev-0/w0: nothing listens on its port" in down.stderr
    said: list[str] = []

    def answer() -> str:
        done = ssh(me, "dev-0", "hostname")
        said.append(done.stderr)
        return done.stdout if done.stdout != first else ""

    def refused() -> bool:
        return not answer() and ("no node" in said[-1] or "its node is" in said[-1])

    with no_new_nodes(me):
        assert me.herd("sim", "weather", "preempt", "dev-0-*", "0s").returncode == 0
        until(refused, "a refusal that says why", seconds=60)
    until(answer, "the next node", seconds=60)
    assert "REMOTE HOST IDENTIFICATION" not in "".join(said)


def test_removing_leaves_the_users_file_as_it_was(me: Owner) -> None:
    file = me.home / ".ssh/config"
    theirs = "Host elsewhere\n    HostName elsewhere.example\n"
    file.write_text(f"{file.read_text()}\n{theirs}")
    known = ssh(me, "-G", "elsewhere").stdout
    assert "hostname elsewhere.example\n" in known and "proxycommand" not in known
    file.write_text(file.read_text().replace(theirs, theirs + "    Bad[\n"))
    assert me.herd("ssh", "--config", "remove").returncode == 0
    assert file.read_text() == theirs + "    Bad[\n"
    assert me.herd("ssh", "--config", "remove").stdout.startswith("the world in")
