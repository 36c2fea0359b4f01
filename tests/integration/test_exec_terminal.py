"""Terminals: Ctrl+C and its question, sessions on hosts, window size, and detaching."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.integration.users import Terminal, User, lines_of_each, pod, said_by_all, until

pytestmark = pytest.mark.real
CTRL_C, CTRL_D = b"\x03", b"\x04"


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    with pod() as user:
        yield user


def test_a_terminal_shows_the_world_and_colors_hosts(user: User) -> None:
    assert user.herd("exec", "pod", "--", "true").returncode == 0  # the first one takes its time
    window = Terminal(user, "exec", "pod", "--", "echo", "hi")
    window.expect(rb"world: .* \(simulated\)\r\n")
    window.expect(rb"\x1b\[[0-9]+mpod/w\[0-3\]:\x1b\[0m hi\r\n")
    assert window.end() == 0


def test_a_terminal_shows_the_progress_of_a_transfer(user: User, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(Random(1).randbytes(1_000_000))
    user.world.ask("POST", "sim/v1/weather/hang", {"target": "pod/w3"})
    window = Terminal(user, "sync", str(tmp_path), "pod:noise")
    window.expect(rb"\r\x1b\[K[0-9.]+ \w*B sent, [0-3] of 4 hosts filled")
    user.world.ask("POST", "sim/v1/weather/unhang", {"target": "pod/w3"})
    window.expect(rb"\r\x1b\[KSnapshot \w+ is in noise", seconds=60)
    assert window.end() == 0


def test_ctrl_c_can_detach_and_the_rest_is_seen_later(user: User) -> None:
    words = ["sh", "-c", "echo begun; sleep 6; echo rest; exit 5"]
    window = Terminal(user, "exec", "pod", "--", *words)
    window.expect(rb"begun\r\n")
    window.type(CTRL_C)
    window.expect(rb"\[d\]etach and keep it running, or \[s\]top it\?")
    window.type(b"x\n")
    window.expect(rb"d to detach, s to stop")
    window.type(b"d\n")
    id = window.expect(rb"it keeps running; herd exec --attach (\w+) shows it")[1].decode()
    assert window.end() == 0
    assert [one["phase"] for one in user.kept(id)] == ["running"] * 4
    again = user.herd("exec", "--attach", id)
    assert again.returncode == 5
    assert lines_of_each(again.stdout) == said_by_all("rest")
    logs = user.herd("logs", "--attempt", id).stdout
    assert [logs.count(f"pod/w[0-3]: {word}") for word in ("begun", "rest")] == [1, 1], logs


@pytest.mark.parametrize("answer", [b"s\n", CTRL_C], ids=["said", "twice"])
def test_ctrl_c_can_stop(user: User, answer: bytes) -> None:
    words = f"sleep {3000 + answer[0]}"
    window = Terminal(user, "exec", "pod", "--", *words.split())
    until(lambda: len(user.running(words)) == 4, "it to run")
    window.type(CTRL_C)
    window.expect(rb"\[s\]top it\?")
    window.type(answer)
    assert window.end() == 130
    assert not user.running(words)


def test_ctrl_c_without_an_answer_keeps_it_running(user: User) -> None:
    window = Terminal(user, "exec", "pod/w0", "--", "sleep", "4")
    until(lambda: user.running("sleep 4"), "it to run")
    window.type(CTRL_C)
    window.expect(rb"\[s\]top it\?")
    window.type(b"\n")
    assert window.end() == 0


def test_a_closed_window_ends_nothing(user: User) -> None:
    words = "sleep 4001"
    window = Terminal(user, "exec", "pod", "--", *words.split())
    until(lambda: len(user.running(words)) == 4, "it to run")
    window.close()
    (id,) = {one["id"] for one in user.running(words)}
    assert len(user.running(words)) == 4
    killed = user.herd("exec", "--kill", id)
    assert (killed.returncode, killed.stdout) == (0, "pod/w[0-3]: stopped: exit 143\n")


def test_a_shell_on_a_host(user: User) -> None:
    window = Terminal(user, "ssh", "pod", rows=33, columns=101)
    window.expect(rb"pod/w0, the first of 4 hosts")
    window.type(b"stty size; tty\n")
    window.expect(rb"33 101\r\n")
    window.expect(rb"/dev/pts/")
    window.resize(44, 77)
    os.kill(window.pid, signal.SIGWINCH)
    until(lambda: size(window) == b"44 77", "the new size")
    window.type(b"sh -c 'echo go; exec sleep 100'\n")
    window.expect(rb"[\r\n]go\r\n")
    window.type(CTRL_C)
    window.expect(rb"\^C(?s:.*)\$ ")
    window.type(b"echo in$?terrupted\n")
    window.expect(rb"in130terrupted\r\n")
    window.type(b"exit 9\n")
    assert window.end() == 9


def size(window: Terminal) -> bytes:
    window.type(b"stty size\n")
    return window.expect(rb"[\r\n](\d+ \d+)\r\n")[1]


def test_a_shell_can_be_detached_and_reattached(user: User) -> None:
    window = Terminal(user, "ssh", "pod/w1")
    window.type(b"X=kept-in-the-shell\n")
    window.type(b"echo ready\n")
    window.expect(rb"[\r\n]ready\r\n")
    window.type(b"\r~.")
    id = window.expect(rb"herd exec --attach (\w+) shows it")[1].decode()
    assert window.end() == 0
    window = Terminal(user, "exec", "--attach", id)
    window.type(b"echo $X\n")
    window.expect(rb"[\r\n]kept-in-the-shell\r\n")
    window.type(b"exit\n")
    assert window.end() == 0


def test_a_shell_survives_a_cut(user: User) -> None:
    window = Terminal(user, "ssh", "pod/w2")
    window.type(b"echo before; X=still\n")
    window.expect(rb"[\r\n]before\r\n")
    user.cut("pod/w2")
    window.expect(rb"pod/w2: .*; reconnecting", seconds=60)
    window.type(b"echo $X here\n")
    window.expect(rb"[\r\n]still here\r\n", seconds=60)
    window.type(b"exit\n")
    assert window.end() == 0


def test_a_command_with_a_terminal(user: User) -> None:
    window = Terminal(user, "exec", "--tty", "pod/w0", "--", "sh", "-c", "read x; echo got $x; tty")
    window.type(b"this\n")
    window.expect(rb"got this\r\n")
    window.expect(rb"/dev/pts/")
    assert window.end() == 0


def test_ssh_with_a_command_has_a_terminal_only_on_request(user: User) -> None:
    for words, said in (([], rb"no-tty"), (["-t"], rb"has-tty")):
        line = "test -t 1 && echo has-tty || echo no-tty; read x; echo got $x"
        window = Terminal(user, "ssh", *words, "pod/w0", line)
        window.expect(rb"\r\n" + said + rb"\r\n")
        window.type(b"this\n")
        window.expect(rb"got this\r\n")
        assert window.end() == 0


def test_output_of_a_host_never_controls_the_terminal(user: User) -> None:
    text = r"\033]0;owned\007\033[2Jx\342\200\256y \033[31mred"
    for target in ("pod/w0", "pod"):
        window = Terminal(user, "exec", target, "--", "printf", text + r"\n")
        window.expect(rb"\\x1b\]0;owned\\x07\\x1b\[2Jx\\u202ey \x1b\[31mred")
        assert window.end() == 0
        assert b"\x1b]" not in window.seen
        assert b"\x1b[2J" not in window.seen
        assert window.seen.rstrip().endswith(b"\x1b[0m"), "the colour ends"
    piped = user.herd("exec", "pod/w0", "--", "printf", text).stdout
    assert piped == "\x1b]0;owned\x07\x1b[2Jx\u202ey \x1b[31mred"


def test_the_terminal_is_restored(user: User) -> None:
    window = Terminal(user, "ssh", "pod/w0")
    window.type(b"echo ready\n")
    window.expect(rb"[\r\n]ready\r\n")
    daemon_pid = user.daemon_pid()
    assert daemon_pid is not None
    os.kill(daemon_pid, signal.SIGKILL)
    window.expect(rb"the daemon ended unexpectedly")
    assert window.end() == 255


def test_colour_is_the_users_choice(user: User) -> None:
    words = ("exec", "pod", "--", "echo", "hi")
    assert "\x1b" not in user.herd(*words).stdout
    assert re.search(r"\x1b\[\d+m", user.herd(*words, env={"FORCE_COLOR": "1"}).stdout)
