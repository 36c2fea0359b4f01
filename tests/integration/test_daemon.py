"""The daemon: started by the first command, shared, killed, replaced, and ended when idle."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.users import (
    User,
    empty_home,
    line,
    lines_of_each,
    pod,
    read_line_of_all,
    said_by_all,
    until,
)

pytestmark = pytest.mark.real

#: A herd that was installed over the one that the keeper has loaded: of another version, or not.
OTHERS = {
    "version": "from tpuherd import _version; _version.__version__ = '99.0'",
    "files": "from tpuherd.daemon import handshake; handshake.PACKAGES += ('tpuherd_sim',)",
}


@pytest.fixture(scope="module")
def owner() -> Iterator[User]:
    with pod() as user:
        assert user.herd("exec", "pod", "--", "true").returncode == 0
        yield user


@pytest.fixture
def user(owner: User, request: pytest.FixtureRequest) -> Iterator[User]:
    user = empty_home(owner, request.node.name)
    yield user
    user.leave()


def test_many_commands_at_once_start_one_daemon(user: User) -> None:
    with ThreadPoolExecutor(8) as pool:
        words = [("exec", "pod", "--", "sh", "-c", f"echo {n}; exit {n}") for n in range(8)]
        done = list(pool.map(lambda words: user.herd(*words), words))
    assert [one.returncode for one in done] == list(range(8))
    assert [lines_of_each(one.stdout) for one in done] == [said_by_all(f"{n}") for n in range(8)]
    listed = subprocess.run(
        ["pgrep", "-f", f"tpuherd.daemon {user.runtime} "], capture_output=True, text=True
    )
    assert listed.stdout.split() == [str(user.daemon_pid())]


def test_no_other_user_can_connect(user: User) -> None:
    assert user.herd("exec", "pod/w0", "--", "true").returncode == 0
    assert stat.S_IMODE(user.runtime.stat().st_mode) == 0o700
    assert stat.S_IMODE((user.runtime / "keeper.sock").stat().st_mode) & 0o077 == 0
    first = user.daemon_pid()
    user.runtime.chmod(0o755)  # a folder that others may enter is not trusted
    assert user.herd("exec", "pod/w0", "--", "echo", "here").stdout == "here\n"
    user.runtime.chmod(0o700)
    assert user.daemon_pid() == first


def test_the_daemon_is_killed_during_a_command(user: User) -> None:
    text = "echo begun; sleep 4; echo rest; exit 3"
    with user.begun("exec", "pod", "-c", text) as begun:
        read_line_of_all(begun, "begun", hosts=4)
        daemon_pid = user.daemon_pid()
        assert daemon_pid is not None
        until(lambda: len(list(user.home.rglob("*.log"))) == 4, "it to be kept", seconds=5)
        os.kill(daemon_pid, signal.SIGKILL)
        _, said = begun.communicate(timeout=10)
        assert begun.returncode == 255
        assert "the daemon ended unexpectedly" in said
    (id,) = {one["id"] for one in user.running(text)}
    again = user.herd("exec", "--attach", id)
    assert again.returncode == 3
    assert [lines[-1] for lines in lines_of_each(again.stdout).values()] == ["rest"] * 4
    logs = user.herd("logs", "--attempt", id, "--host", "w1").stdout
    assert (logs.count(": begun"), logs.count(": rest")) == (1, 1)


def test_a_killed_launcher_ends_nothing(user: User) -> None:
    text = "echo begun; sleep 3; echo rest"
    with user.begun("exec", "pod", "-c", text) as begun:
        read_line_of_all(begun, "begun", hosts=4)
        begun.kill()
        assert begun.stdout is not None
        assert begun.stdout.read() == ""  # who reads it does not wait for the command
    (id,) = {one["id"] for one in user.running(text)}
    ended = ["ended"] * 4
    until(lambda: [one["phase"] for one in user.kept(id)] == ended, "its end", seconds=20)
    assert [one["exit"] for one in user.kept(id)] == [0] * 4

    def rest() -> bool:  # the daemon continues to store its output
        return user.herd("logs", "--attempt", id).stdout.count("w[0-3]: rest") == 1

    until(rest, "the rest in the log", seconds=10)


def test_a_failing_command_affects_no_other(user: User) -> None:
    with user.begun("exec", "pod", "-c", "sleep 3; echo done") as other:
        for words in ("exec pdo -- true", "exec pod[ -- true", "logs no", "sync /no/such pod:x"):
            assert user.herd(*words.split()).returncode in (2, 4)
        output, errors = other.communicate(timeout=60)
        found = (lines_of_each(output), errors, other.returncode)
        assert found == (said_by_all("done"), "", 0)


@pytest.mark.parametrize("how", OTHERS)
def test_another_version_replaces_an_idle_daemon(user: User, how: str) -> None:
    assert user.herd("exec", "pod/w0", "--", "true").returncode == 0
    first = user.daemon_pid()
    other = [sys.executable, "-c", f"{OTHERS[how]}; from tpuherd.launcher import main; main()"]
    words = [*other, "exec", "pod/w0", "--", "echo", "here"]
    with user.begun("exec", "pod/w0", "-c", "echo begun; sleep 2; echo done") as busy:
        assert line(busy) == "begun\n"
        done = subprocess.run(words, env=user.env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "here\n")  # in its own process
        assert done.stderr.startswith("herd: the daemon runs another version of herd")
        asked = [*other, "engine", "daemon", "status"]
        done = subprocess.run(asked, env=user.env, capture_output=True, text=True, timeout=60)
        assert f"pid {first}" in done.stdout, done.stderr
        assert busy.communicate(timeout=20)[0] == "done\n"
    assert user.daemon_pid() == first
    done = subprocess.run(words, env=user.env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")
    assert user.daemon_pid() != first


def test_the_daemon_ends_when_idle(user: User) -> None:
    env = {"HERD_KEEPER_IDLE_S": "1"}
    assert user.herd("exec", "pod/w0", "--", "sleep", "2", env=env).returncode == 0
    until(lambda: not (user.runtime / "keeper.sock").exists(), "its end", seconds=10)


def test_the_daemon_ends_when_its_folder_is_gone(user: User) -> None:
    assert user.herd("exec", "pod/w0", "--", "true").returncode == 0
    daemon_pid = user.daemon_pid()
    (user.runtime / "keeper.sock").unlink()
    until(lambda: not alive(daemon_pid), "the keeper to end", seconds=15)


def alive(pid: int | None) -> bool:
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return False
    return True


def test_commands_run_where_no_daemon_can(user: User) -> None:
    user.runtime.parent.mkdir(parents=True)
    user.runtime.write_text("in the way")
    done = user.herd("exec", "pod", "-c", "echo hi; exit 4")
    assert (done.returncode, lines_of_each(done.stdout)) == (4, said_by_all("hi"))
    with user.begun("exec", "pod/w0", "-c", "echo begun; sleep 50") as stopped:
        assert line(stopped) == "begun\n"
        stopped.send_signal(signal.SIGINT)
        assert stopped.wait(20) == 130
    user.runtime.unlink()


def test_a_long_path_works(owner: User) -> None:
    user = empty_home(owner, "x" * 120)
    assert user.herd("exec", "pod/w0", "--", "echo", "hi").stdout == "hi\n"
    assert user.daemon_pid() is not None
    user.leave()


def test_the_daemon_shows_its_status_and_stops_on_request(user: User) -> None:
    absent = user.herd("engine", "daemon", "status")
    assert absent.returncode == 7
    assert "no daemon runs" in absent.stderr
    with user.begun("exec", "pod/w0", "-c", "echo begun; sleep 30") as busy:
        assert line(busy) == "begun\n"
        status = user.herd("engine", "daemon", "status").stdout
        assert f"pid {user.daemon_pid()}" in status
        assert "runs exec pod/w0 -c echo begun; sleep 30" in status
        assert user.herd("engine", "daemon", "stop").returncode == 1
        assert user.herd("engine", "daemon", "stop", "--now").stdout == "Stopped the daemon\n"
        assert busy.wait(10) == 255
    until(lambda: user.daemon_pid() is None, "the keeper to end", seconds=5)
