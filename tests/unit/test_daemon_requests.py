"""What launcher and daemon exchange, which commands the daemon runs, and the small tables."""

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tpuherd
from tpuherd import launcher
from tpuherd.cli.command_table import ALIASES, HIDDEN, SECTIONS
from tpuherd.cli.cp import HostPath, parse_path
from tpuherd.cli.formats import parse_duration
from tpuherd.clock import WallClock
from tpuherd.commands.command_types import HostOutcome, new_command_id, parse_outcome, worst_status
from tpuherd.commands.failure_table import failure_table, last_lines
from tpuherd.daemon import handshake
from tpuherd.daemon.handshake import NO, OWN_COMMAND, YES, install_stamp
from tpuherd.daemon.request import (
    LENGTH,
    XUCRED_SIZE,
    DaemonRequest,
    decode_request,
    peer_uid,
    read_xucred,
    request_length,
)
from tpuherd.daemon.server import Daemon
from tpuherd.errors import InvalidInput

FOLDERS = ("tpuherd", "tpuherd/cli", "tpuherd_host", "tpuherd_host/agent")


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("exec pod -- true", True),
        ("exec pod -- ls --help", True),
        ("exec pod -- ls -h", True),
        ("exec --help", False),
        ("exec pod -h", False),
        ("--world w exec pod", True),
        ("--world exec sim", False),
        ("-q -v logs pod", True),
        ("logs pod -f", False),
        ("-q logs --follow pod --tail 3", False),
        ("sim start", False),
        ("sim exec", False),
        ("engine daemon status", True),
        ("--world w engine daemon stop --now", True),
        ("engine status", False),
        ("exec engine daemon", True),
        ("--world", False),
        ("", False),
    ],
)
def test_which_commands_go_to_the_daemon(line: str, kept: bool) -> None:
    assert launcher.is_for_daemon(line.split()) is kept


def test_every_daemon_command_exists() -> None:
    there = set(SECTIONS["Hosts"]) - {"open", "profile"}  # they start programs of their user
    others = {alias for alias, words in ALIASES.items() if words[0] in there}
    assert {OWN_COMMAND} | there | others | set(HIDDEN) == launcher.IN_DAEMON


def test_a_request_arrives_as_it_was_written() -> None:
    environ = {"HOME": "/home/ü", "HERD_WORLD": "a=b", "LANG": "\udcff", "SECRET": "not for it"}
    words = ["exec", "pod", "", "-c", "echo 'a=b'\n", "\udcff"]
    sent = launcher.encode_request(words, b"/where/\xff", environ)
    assert request_length(sent) == len(sent) - LENGTH
    request = decode_request(sent[LENGTH:])
    assert request.arguments == tuple(words)
    assert request.stamp == install_stamp(tpuherd.__version__)
    assert bytes(request.folder) == b"/where/\xff"
    assert request.environ == {name: environ[name] for name in ("HOME", "HERD_WORLD", "LANG")}


@pytest.fixture
def signals() -> Iterator[None]:
    """As they were before."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH, signal.SIGTSTP)
    before = [(number, signal.getsignal(number)) for number in numbers]
    yield
    for number, meaning in before:
        signal.signal(number, meaning)


def test_daemon_commands_run_once(signals: None) -> None:
    """It may be through and gone before the front does anything else: that was no refusal."""
    here, there = socket.socketpair()

    class Quick(socket.socket):
        def sendmsg(self, *words: Any) -> int:
            sent = super().sendmsg(*words)
            _, files, _, _ = socket.recv_fds(there, 1 << 16, 3)
            for file in files:
                os.close(file)
            there.sendall(YES + bytes([7]))
            there.close()
            return sent

    with Quick(fileno=here.detach()) as connection:
        assert launcher.send_request(connection, launcher.encode_request(["exec"], b"/", {})) == 7


@pytest.mark.parametrize("answer", [YES, NO])
def test_a_signal_before_the_daemons_answer_is_the_commands_if_it_begins(
    signals: None, answer: bytes
) -> None:
    here, there = socket.socketpair()

    class Interrupted(socket.socket):
        def sendmsg(self, *words: Any) -> int:
            sent = super().sendmsg(*words)
            _, files, _, _ = socket.recv_fds(there, 1 << 16, 3)
            for file in files:
                os.close(file)
            os.kill(os.getpid(), signal.SIGINT)
            there.sendall(answer + bytes([7]))
            return sent

    request = launcher.encode_request(["exec"], b"/", {})
    with there, Interrupted(fileno=here.detach()) as connection:
        if answer == YES:
            assert launcher.send_request(connection, request) == 7
            assert there.recv(9) == bytes([signal.SIGINT])
        else:
            with pytest.raises(KeyboardInterrupt):
                launcher.send_request(connection, request)


def test_a_reinstalled_herd_has_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "HERE", str(tmp_path))
    for room in FOLDERS:
        (tmp_path / room).mkdir(parents=True)
    before = install_stamp("1")
    assert install_stamp("1") == before != install_stamp("2")
    for room in FOLDERS:
        draft = tmp_path / "draft"
        draft.write_text("new")
        draft.rename(tmp_path / room / "module.py")  # as pip and git put files in their places
        after = install_stamp("1")
        assert after != before, room
        before = after


def test_compiled_files_do_not_change_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "HERE", str(tmp_path))
    for room in FOLDERS:
        (tmp_path / room).mkdir(parents=True)
        (tmp_path / room / "module.py").write_text("old")
    daemon = Daemon(WallClock(), 60.0)

    def answer() -> bytes:
        now = install_stamp(tpuherd.__version__)
        return daemon.choose_answer(
            DaemonRequest(stamp=now, folder=tmp_path, arguments=("exec",), environ={})
        )

    before = install_stamp(tpuherd.__version__)
    for room in FOLDERS:
        (tmp_path / room / "__pycache__").mkdir()
    assert install_stamp(tpuherd.__version__) != before
    assert answer() == YES
    (tmp_path / "draft").write_text("new, too")
    (tmp_path / "draft").rename(tmp_path / FOLDERS[-1] / "module.py")
    assert answer() == NO


def test_all_folders_loaded_by_the_daemon_count_for_the_version() -> None:
    source = Path(handshake.HERE)
    folders = {str(file.parent.relative_to(source)) for file in source.rglob("*.py")}
    elsewhere = ("tpuherd_sim",)  # `herd sim …` runs in a process of its own
    wanted = {folder for folder in folders if not folder.startswith(elsewhere)}
    assert wanted <= set(handshake.package_folders())


@pytest.mark.parametrize("text", [b"", b"GET / HTTP/1.1", b"herd-keeper-0\0x\0/\x000", b"\0" * 9])
def test_malformed_requests_are_refused(text: bytes) -> None:
    with pytest.raises((InvalidInput, ValueError)):
        decode_request(text)


def test_a_request_has_a_maximum_size() -> None:
    with pytest.raises(InvalidInput):
        request_length(b"\xff\xff\xff\xff")


def test_the_exit_status_of_a_gang() -> None:
    statuses = (0, 1, 7, 127, 137, 255)
    for some in product(statuses, repeat=3):
        outcomes = [HostOutcome(label=f"h/w{n}", status=status) for n, status in enumerate(some)]
        assert worst_status(outcomes) == (255 if 255 in some else max(some))
        assert bool(failure_table(outcomes)) == any(some)
    assert worst_status([]) == 0


@pytest.mark.parametrize(
    ("work", "status"),
    [
        ({"exit": 0, "signal": None}, 0),
        ({"exit": 7}, 7),
        ({"exit": None, "signal": 9}, 137),
        ({"exit": None, "signal": None, "why": "the host was rebooted"}, 255),
    ],
)
def test_agent_results_become_exit_statuses(work: dict[str, object], status: int) -> None:
    assert parse_outcome("gpt/w0", work).status == status


def test_the_table_groups_equal_results() -> None:
    outcomes = [
        *(HostOutcome(label=f"gpt/w{n}", status=1, tail=b"x\nboom\n") for n in range(3)),
        HostOutcome(label="gpt/w3", status=255, why="no answer in 10 s"),
        HostOutcome(label="gpt/w4", status=0),
        HostOutcome(label="gpt/w5", status=137),
    ]
    assert failure_table(outcomes) == [
        "failed on 5 of 6 hosts:",
        "  gpt/w[0-2]  exit 1",
        "      x",
        "      boom",
        "  gpt/w3  no answer in 10 s",
        "  gpt/w5  exit 137 (SIGKILL)",
    ]


def test_last_lines_are_safe_for_a_terminal() -> None:
    assert last_lines(b"\x1b[2J\xff\r\n\na\rb\n") == ("·[2J\ufffd", "a", "b")
    assert last_lines(b"") == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("1.5m", 90), ("2h", 7200), ("1d", 86400), ("5 min", 300)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-3s", "3x", "1e3", "3 s s"])
def test_invalid_durations(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("a", "a"),
        ("./a:b", "./a:b"),
        ("/x:y", "/x:y"),
        (":x", ":x"),
        ("gpt:x", HostPath(target="gpt", path="x")),
        ("gpt/w0:/x:y", HostPath(target="gpt/w0", path="/x:y")),
        ("gpt-[0-3]:", HostPath(target="gpt-[0-3]", path=".")),
    ],
)
def test_remote_and_local_paths(word: str, path: str | HostPath) -> None:
    assert parse_path(word) == path


def test_ids_are_typable_and_unique() -> None:
    ids = {new_command_id() for _ in range(1000)}
    assert len(ids) > 990
    assert all(id.isalnum() and id.islower() and len(id) == 6 for id in ids if id.isalpha())


def test_a_daemon_starts_with_few_modules() -> None:
    words = """
import sys
import tpuherd.daemon.server, tpuherd.cli.exec, tpuherd.commands.multi_host_run
print(*(name for name, module in sys.modules.items() if module))
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "asyncssh.connection" in loaded, done.stderr
    assert not {"httpcore2", "sqlite3"} & loaded


def test_the_user_at_the_other_end_is_known() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == os.getuid()


def test_the_user_is_read_from_what_macos_tells() -> None:
    """struct xucred: a version, the user, a count of groups with padding, and 16 groups."""
    told = struct.pack("=IIhxx16I", 0, 501, 1, 20, *[0] * 15)
    assert len(told) == XUCRED_SIZE
    assert read_xucred(told) == 501
    assert read_xucred(struct.pack("=I", 1) + told[4:]) is None, "of another version"
    assert read_xucred(told[:7]) is None


def test_a_daemon_is_found_however_long_its_path_is(tmp_path: Path) -> None:
    """A socket's path may have 104 bytes on macOS, 108 on Linux; a home may be longer."""
    place = tmp_path.joinpath(*["a long name, ü"] * 12)
    place.mkdir(parents=True, mode=0o700)
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(place)
        try:
            listener.bind(handshake.SOCKET)
        finally:
            os.chdir(here)
        listener.listen()
        connection = launcher.connect_to_daemon(str(place))
        assert connection is not None
        assert Path.cwd() == here
        with listener.accept()[0] as accepted:
            connection.send(b"x")
            assert accepted.recv(1) == b"x"
        connection.close()


def test_a_closed_connection_is_no_longer_watched() -> None:
    """Its number goes to the next socket, which could not be watched otherwise: ENOENT."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))  # full: the command waits for its reader
    os.set_blocking(writing, True)

    def read_all(connection: socket.socket) -> bytes:
        answer = connection.recv(1)
        while os.read(reading, 1 << 16)[-1:] != b"\n":
            pass
        return answer + connection.recv(1)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        number = theirs.fileno()
        with ours:
            request = launcher.encode_request(["--version"], b"/", {})
            socket.send_fds(ours, [request], [writing] * 3)
            answer = loop.run_in_executor(None, read_all, ours)
            await Daemon(WallClock(), 60.0).handle_connection(theirs)
            pair = socket.socketpair()
            assert number in [one.fileno() for one in pair]
            with pair[0], pair[1]:
                for one in pair:
                    loop.add_writer(one, print)
                    loop.remove_writer(one)
            assert await answer == YES + bytes([0])

    asyncio.run(serve())
    os.close(reading)
    os.close(writing)
