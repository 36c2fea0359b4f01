"""`herd exec` on the hosts of a pod: output, input, exit status, and every kind of refusal."""

import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import md5
from pathlib import Path

import pytest

from tests.integration.users import ZONE, User, empty_home, line, pod, until

pytestmark = pytest.mark.real
HOSTS = {"pod/w0", "pod/w1", "pod/w2", "pod/w3"}
BINARY = bytes(range(256)) * 3 + b"\r\n\0"


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    with pod() as user:
        yield user


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("true", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ],
)
@pytest.mark.parametrize("target", ["pod/w0", "pod"])
def test_the_exit_status_is_that_of_the_command(
    user: User, target: str, text: str, status: int
) -> None:
    done = user.herd("exec", target, "-c", text)
    assert done.returncode == status
    assert ("failed on 4 of 4" in done.stderr) == (status > 0 and target == "pod")


def test_process_lists_name_the_agent_and_not_its_python(user: User) -> None:
    text = (
        r"for p in /proc/[0-9]*; do tr -s '\0' ' ' <$p/cmdline; echo; done | grep '^herd-\|[.]pyz'"
    )
    lines = user.herd("exec", "pod/w0", "-c", text).stdout.split("\n")
    assert {line.strip() for line in lines if line} == {"herd-agent", "herd-supervisor"}, lines


@pytest.mark.parametrize(
    ("command", "status", "sentence"),
    [
        ("no-such-thing", 127, "no-such-thing: command not found"),
        ("/etc/passwd", 126, "/etc/passwd"),
    ],
)
def test_commands_that_cannot_be_executed(
    user: User, command: str, status: int, sentence: str
) -> None:
    done = user.herd("exec", "pod/w1", "--", command)
    assert (done.returncode, done.stdout) == (status, "")
    assert sentence in done.stderr


def test_one_argument_with_spaces_is_a_line_for_the_shell(user: User) -> None:
    assert user.herd("exec", "pod/w1", "seq 9 | tail -n 1").stdout == "9\n"
    assert user.herd("exec", "pod/w1", "WHO=a b", "printenv", "WHO").stdout == "a b\n"
    several = user.herd("exec", "pod/w1", "ls | wc", "-l")
    assert several.returncode == 127
    assert "command not found; a line for the shell goes after -c" in several.stderr


def test_the_exit_status_is_the_greatest_and_a_table_names_the_hosts(user: User) -> None:
    text = (
        "n=${HOSTNAME##*-}; [ -z $n ] && n=$(hostname | grep -o '.$'); echo bad $n; exit $((n*2))"
    )
    done = user.herd("exec", "pod", "-c", text)
    assert done.returncode == 6
    assert done.stderr.splitlines()[0] == "failed on 3 of 4 hosts:"
    for n in (1, 2, 3):
        assert f"  pod/w{n}  exit {2 * n}\n      bad {n}\n" in done.stderr


def test_with_one_pipe_for_both_outputs_their_order_is_kept(user: User) -> None:
    text = "for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; sleep 0.05; done; exit 3"
    for target in ("pod/w0", "pod"):
        with user.begun("exec", target, "-c", text, stderr=subprocess.STDOUT) as begun:
            said = begun.communicate(timeout=60)[0].splitlines()
        lines = [line.removeprefix("pod/w[0-3]: ") for line in said]
        if target == "pod":
            assert lines.index("failed on 4 of 4 hosts:") > lines.index("err 5")
        else:
            assert lines == [f"{port} {n}" for n in range(1, 6) for port in ("out", "err")]


def test_equal_lines_are_shown_once(user: User) -> None:
    done = user.herd("exec", "pod", "-c", "echo same; hostname")
    assert done.stdout.splitlines()[0] == "pod/w[0-3]: same"
    assert len(done.stdout.splitlines()) == 5
    assert user.herd("exec", "pod", "-c", "echo also >&2").stderr == "pod/w[0-3]: also\n"


def test_lines_of_each_host(user: User) -> None:
    done = user.herd("exec", "pod", "--output", "stream", "--", "echo", "same")
    assert sorted(done.stdout.splitlines()) == sorted(f"{host}: same" for host in HOSTS)


def test_a_single_host_has_no_prefixes(user: User) -> None:
    done = user.herd("exec", "pod/w2", "-c", "cat; printf 'no end'", input=BINARY, text=False)
    said: object = done.stdout
    assert (done.returncode, said) == (0, BINARY + b"no end")


def test_input_goes_to_all_hosts(user: User) -> None:
    text = "".join(f"line {n}\n" for n in range(200_000))
    each = ("--output", "stream", "--")  # who is late is not waited for to be folded
    done = user.herd("exec", "pod", *each, "md5sum", input=text)
    digest = md5(text.encode(), usedforsecurity=False).hexdigest()
    assert sorted(done.stdout.splitlines()) == sorted(f"{host}: {digest}  -" for host in HOSTS)
    nothing = user.herd("exec", "pod", "-n", *each, "wc", "-c", input=text)
    assert sorted(nothing.stdout.splitlines()) == sorted(f"{host}: 0" for host in HOSTS)


def test_a_command_that_reads_no_input_does_not_block(user: User) -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as yes:
        done = user.herd("exec", "pod", "--", "head", "-c", "2", stdin=yes.stdout)
        yes.kill()
    assert (done.returncode, done.stdout) == (0, "pod/w[0-3]: y\n")


def test_json_lines(user: User) -> None:
    done = user.herd("exec", "pod", "--json", "-c", r"echo hi; printf '\377\n' >&2; exit 3")
    assert done.returncode == 3
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert Counter((row["host"], row["port"]) for row in rows) == Counter(
        (host, port) for host in HOSTS for port in ("stdout", "stderr")
    )
    assert {row.get("text") or row["base64"] for row in rows} == {"hi", "/w=="}


def test_a_file_for_each_host(user: User, tmp_path: Path) -> None:
    words = ("--into", tmp_path / "out")
    done = user.herd("exec", "pod", *words, "--json", "--", "true")
    assert (done.returncode, "--into is for --output dir" in done.stderr) == (2, True)
    done = user.herd("exec", "pod", *words, "-c", "hostname; echo oops >&2")
    assert done.returncode == 0, done.stderr
    files = {file.name: file.read_text() for file in (tmp_path / "out").iterdir()}
    assert set(files) == {f"pod-w{n}.{port}" for n in range(4) for port in ("out", "err")}
    assert len({files[f"pod-w{n}.out"] for n in range(4)}) == 4
    assert files["pod-w0.err"] == "oops\n"


def test_a_flood_and_lines_of_a_megabyte(user: User) -> None:
    text = "head -c 1000000 /dev/zero | tr '\\0' x; echo; yes | head -c 30000000"
    done = user.herd("exec", "pod", "--output", "stream", "-c", text)
    assert done.returncode == 0
    lines = Counter(done.stdout.splitlines())
    for host in HOSTS:
        assert lines[f"{host}: {'x' * 1_000_000}"] == 1
        assert lines[f"{host}: y"] == 15_000_000


def test_a_slow_reader_slows_no_other_host(user: User) -> None:
    with user.begun("exec", "pod", "-c", "yes | head -c 50000000; echo end") as slow:
        assert slow.stdout is not None
        assert slow.stdout.read(2)
        for _ in range(3):
            assert user.herd("exec", "pod", "--", "echo", "quick", seconds=10).returncode == 0
        assert memory(user.daemon_pid(), "VmRSS") < 300_000
        rest = deque(iter(partial(slow.stdout.read, 1 << 20), ""), maxlen=2)  # of a gigabyte
        assert "".join(rest).endswith("end\n")
        assert slow.wait(60) == 0


def test_the_daemon_stays_small_under_heavy_output(user: User) -> None:
    text = "yes 'something that is said again and again' | head -c 40000000; echo end"
    with user.begun("exec", "pod", "--output", "stream", "-c", text) as slow:
        assert slow.stdout is not None
        assert slow.stdout.read(2)
        daemon_pid = user.daemon_pid()
        Path(f"/proc/{daemon_pid}/clear_refs").write_text("5")  # from now on: the highest
        before = memory(daemon_pid, "VmRSS")
        said = slow.stdout.read()
        assert said.count("end\n") == 4
        assert slow.wait(60) == 0
    assert memory(daemon_pid, "VmHWM") - before < 24_000


def memory(pid: int | None, row: str) -> int:
    """In kB."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(found for found in rows if found.startswith(row)).split()[1])


@pytest.mark.parametrize("cold", [False, True])
def test_a_command_whose_reader_has_gone_is_stopped(user: User, cold: bool) -> None:
    words = f"yes a-line-of-this-test-{cold}"
    if cold:  # then some hosts are reached only when it has been stopped already
        user.leave()
    with user.begun("exec", "pod", "--", *words.split()) as begun:
        assert line(begun).endswith(f": a-line-of-this-test-{cold}\n")
        assert begun.stdout is not None
        begun.stdout.close()
        assert begun.wait(60) == 141
    until(lambda: not user.running(words), "the command to end")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_without_a_terminal_stops_it(user: User, number: signal.Signals) -> None:
    words = f"sleep 10{int(number)}"
    with user.begun("exec", "pod", "--", *words.split()) as begun:
        until(lambda: len(user.running(words)) == 4, "it to run")
        begun.send_signal(number)
        assert begun.wait(60) == 128 + number
    assert not user.running(words)


def test_a_command_that_ignores_term_is_killed(user: User) -> None:
    text = "trap '' TERM; echo deaf; while :; do sleep 1; done"
    with user.begun("exec", "pod/w0", "-c", text) as begun:
        assert line(begun) == "deaf\n"
        begun.send_signal(signal.SIGINT)
        until(lambda: any(one["why"] for one in user.running(text)), "it to be told")
        begun.send_signal(signal.SIGINT)
        assert begun.wait(6) == 130, "the second one kills before the first one's 10 s are over"


def pids_of(command: str) -> list[int]:
    """Those of this machine that run it, on whatever host."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes().replace(b"\0", b" ").strip() == command.encode():
                found.append(int(file.parent.name))
    return found


def status_field(pid: int, name: str) -> str:
    """A line of what the kernel says of a process, such as its parent."""
    return Path(f"/proc/{pid}/status").read_text().split(f"{name}:")[1].split()[0]


@contextmanager
def paused(user: User, host: str, whose: str) -> Iterator[None]:
    """Its supervisor or its agent stands still for the block."""
    mark = f"sleep 31{int(time.time() * 1000) % 10**9}"
    with user.begun("exec", host, "--", *mark.split()) as begun:
        [found] = until(lambda: pids_of(mark), "it to run")
        pid = int(status_field(found, "PPid"))
        assert status_field(pid, "Name") == "herd-supervisor"
        pid = pid if whose == "herd-supervisor" else int(status_field(pid, "PPid"))
        assert status_field(pid, "Name") == whose
        begun.send_signal(signal.SIGINT)
        assert begun.wait(60) == 130
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("whose", "waits", "ends"),
    [
        (
            "herd-supervisor",
            "[waiting: herd-supervisor on the host has not started the command;"
            " it is paused, or the host is busy]",
            "herd-supervisor on the host has not started the command;"
            " when it does, the command is ended at once",
        ),
        (
            "herd-agent",
            "[no answer; reconnecting]",
            "its agent does not answer, so it could not be stopped; it may still be running",
        ),
    ],
)
def test_a_host_that_stands_still_is_told_and_can_be_left(
    user: User, whose: str, waits: str, ends: str
) -> None:
    with (
        paused(user, "pod/w3", whose),
        user.begun("exec", "pod/w3", "--", "sleep", "77") as begun,
    ):
        assert begun.stderr is not None
        assert begun.stderr.readline().strip() == waits
        begun.send_signal(signal.SIGINT)
        assert begun.wait(30) == 130
        assert ends in begun.stderr.read()
    user.herd("exec", "pod/w3", "-c", "pkill -f 'sleep 77'")
    until(lambda: not user.running("sleep 77"), "it to end")


def test_a_timeout(user: User) -> None:
    done = user.herd("exec", "pod", "--timeout", "0.5s", "--", "sleep", "99")
    assert done.returncode == 124
    assert done.stderr.startswith("herd exec: stopped after 0.5 s\n")


@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [
        ("exec pdo -- true", 4, "herd exec: there is no pdo: did you mean pod?"),
        ("exec pod/w9 -- true", 4, "herd exec: pod has no worker 9: it has w[0-3]"),
        ("exec pod[ -- true", 2, "herd exec: 'pod[' is not a target: a bracket is not closed"),
        ("exec", 2, "herd exec: give a target and a command"),
        ("exec pod", 2, "herd exec: give a target and a command"),
        ("exec pod -c x -- y", 2, "herd exec: give a target and a command"),
        ("exec pod --timeout soon -- true", 2, "'soon' is not a duration"),
        ("exec pod --output dirr -- true", 2, "herd exec: invalid value for '--output'"),
        ("exec pod --list -- true", 2, "herd exec: --list, --attach and --kill take no command"),
        ("exec pod --attach nothere", 4, "herd exec: there is not a command nothere"),
        ("exec --attach nothere", 4, "herd exec: no command nothere was started on this machine"),
        ("exec pod --kill nothere", 4, "herd exec: there is not a command nothere"),
        ("exec pod --tty -- true", 2, "herd exec: a terminal needs one host"),
        ("cp here.txt", 2, "herd cp: give a source and a destination"),
        ("cp a b", 2, "herd cp: no path is on a host"),
        ("cp nowhere.txt pod:x", 4, "nowhere.txt does not exist"),
        (
            "sync . pod:",
            2,
            "herd sync: give a folder on the hosts: pod:DEST",
        ),
        ("sync . pod", 4, "herd sync: there is no job pod"),
        ("sync /no/such pod:x", 2, "herd sync: /no/such does not exist"),
        ("logs", 4, "herd logs: no jobs; start one with"),
        ("logs nobody", 4, "herd logs: there is no log of nobody"),
        ("logs pod --grep (", 2, "herd logs: '(' is no regular expression"),
        ("logs pod --since whenever", 2, "'whenever' is not a time"),
    ],
)
def test_invalid_usage(user: User, line: str, status: int, sentence: str) -> None:
    done = user.herd(*line.split())
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_world(user: User, tmp_path: Path) -> None:
    done = user.herd("--world", tmp_path, "exec", "pod", "--", "true")
    assert done.returncode == 4
    assert f"there is no world in {tmp_path}; start it: herd sim start" in done.stderr


@pytest.mark.parametrize("key", ["no key", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"])
def test_an_invalid_key(user: User, key: str) -> None:
    other = empty_home(user, "keyless")
    file = other.home / ".config/tpuherd/id_ed25519"
    file.write_text(key)
    try:
        done = other.herd("exec", "pod/w0", "--", "true")
        assert done.returncode == 2
        assert f"{file} is not a private key without a passphrase" in done.stderr
        assert "move it away and herd creates a new one" in done.stderr
        assert file.read_text() == key  # the user's own is never overwritten
        file.unlink()
        assert other.herd("exec", "pod/w0", "--", "true").returncode == 0  # a new one is let in
    finally:
        other.leave()


def test_without_credentials_no_simulator_is_used(user: User) -> None:
    env = {"HERD_WORLD": "", "NO_GCE_CHECK": "true", "PATH": "/nowhere"}  # no gcloud either
    done = user.herd("exec", "pod", "--", "true", env=env)
    assert done.returncode == 6
    assert "herd sim start" in done.stderr


def dark(user: User, worker: int) -> bool:
    """Whether packets to a host of the pod really vanish: the weather takes a moment to come."""
    path = f"v2/projects/{user.world.facts['project']}/locations/{ZONE}/nodes/pod"
    end = user.world.ask("GET", path)["networkEndpoints"][worker]
    address = (end["accessConfig"]["externalIp"], user.world.facts["ssh_port"])
    try:
        socket.create_connection(address, timeout=0.3).close()
    except TimeoutError:
        return True
    return False


def test_a_dead_host_is_named_and_stops_no_other(user: User) -> None:
    user.world.herd("weather", "network", "pod/w2", "down")
    try:
        # Cut off in the middle of the command, the host would be looked for: for two minutes.
        until(lambda: dark(user, 2), "the network to be down")
        done = user.herd("exec", "pod", "--output", "stream", "-c", "echo alive")
        assert done.returncode == 255
        alive = sorted(HOSTS - {"pod/w2"})
        assert sorted(done.stdout.splitlines()) == [f"{host}: alive" for host in alive]
        assert "failed on 1 of 4 hosts:\n  pod/w2  " in done.stderr
        with user.begun("exec", "pod", "--output", "stream", "-c", "echo up; sleep 77") as begun:
            assert line(begun).endswith(": up\n")
            begun.send_signal(signal.SIGINT)
            assert begun.wait(60) == 130
            assert begun.stderr is not None
            assert "  pod/w2  stopped before it started here\n" in begun.stderr.read()
        assert user.herd("ssh", "pod/w2", "true").returncode == 255
    finally:
        user.world.herd("weather", "network", "pod/w2", "up")
    back = ("exec", "pod/w2", "--", "true")
    until(lambda: user.herd(*back).returncode == 0, "the host to be back", seconds=60)


def test_a_cut_connection_ends_no_command(user: User) -> None:
    text = "for n in 1 2 3 4 5 6; do echo line $n; sleep 1; done"
    with user.begun("exec", "pod/w3", "-c", text) as begun:
        assert line(begun) == "line 1\n"
        user.world.herd("weather", "network", "pod/w3", "down", "for=2s")
        user.cut("pod/w3")
        said, _ = begun.communicate(timeout=90)
        assert said.splitlines() == [f"line {n}" for n in range(2, 7)]
        assert begun.returncode == 0


def test_chips_and_clean(user: User) -> None:
    free = user.herd("chips", "pod")
    assert (free.returncode, free.stdout) == (0, "pod/w[0-3]: the chips are free\n")
    took = "import time; f = open('/dev/accel0'); time.sleep(60)"
    with user.begun("exec", "pod/w0", "--", "python3", "-c", took) as begun:

        def shown() -> str | None:
            said = user.herd("chips", "pod/w0").stdout
            return said if "accel0" in said else None

        assert "python3 -c import time" in until(shown, "the chip to be held")
        assert json.loads(user.herd("chips", "pod/w0", "--json").stdout)["pod/w0"]["holders"]
        spared = user.herd("clean", "pod/w0")
        assert spared.stdout == "pod/w0: nothing to clean\n"
        cleaned = user.herd("clean", "pod/w0", "--all", "--grace", "2s")
        assert cleaned.returncode == 0, cleaned.stderr
        assert "pod/w0: ended python3 -c import time" in cleaned.stdout
        assert begun.wait(60) == 143
