"""Files to and from hosts, and logs that are read on this machine, as a user does it."""

import json
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS

from tests.integration.users import User, empty_home, pod

pytestmark = pytest.mark.real
BINARY = bytes(range(256)) * 3 + b"\r\n\0"


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    with pod() as user:
        yield user


def test_code_to_hosts_and_files_both_ways(user: User, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=code, check=True)
    (code / "train.py").write_text("print('one')\n")
    done = user.herd("sync", "code", "pod:code", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "is in code until the node is deleted: pod/w[0-3]" in done.stdout
    assert user.herd("exec", "pod", "--", "python3", "code/train.py").stdout == "pod/w[0-3]: one\n"
    (tmp_path / "data").write_bytes(BINARY)
    assert user.herd("cp", "data", "pod:data.bin", cwd=tmp_path).returncode == 0
    back = user.herd("cp", "pod/w1:data.bin", "back", cwd=tmp_path)
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "back").read_bytes() == BINARY


def test_a_secret_is_not_shipped_without_consent(user: User, tmp_path: Path) -> None:
    (tmp_path / "id_ed25519").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n")
    asked = user.herd("sync", tmp_path, "pod:secret")
    assert asked.returncode == 2
    assert "id_ed25519 looks like" in asked.stderr
    assert "--yes" in asked.stderr
    assert user.herd("exec", "pod/w0", "-c", "ls secret").returncode != 0
    assert user.herd("sync", tmp_path, "pod:secret", "--yes").returncode == 0


def test_logs_of_commands_are_kept(user: User) -> None:
    text = "echo for the log; echo and this >&2"
    assert user.herd("exec", "pod", "-c", text).returncode == 0
    lines = user.herd("logs", "pod", "--grep", "for the log").stdout.splitlines()
    assert [line[9:] for line in lines[1:]] == ["pod/w[0-3]: for the log"], "what is equal, once"
    assert lines[0].startswith("-- ")
    assert lines[0].endswith(text)
    one = user.herd("logs", "pod", "--host", "w2", "--grep", "and this", "--json").stdout
    (row,) = [json.loads(line) for line in one.splitlines()]
    assert (row["host"], row["port"], row["text"]) == ("pod/w2", "stderr", "and this")
    id = lines[0].split()[2]
    named = user.herd("logs", "--attempt", id, "--json").stdout
    assert len(named.splitlines()) == 8
    nobody = user.herd("logs", "pod", "--since", "2000-01-01", "--grep", "never said")
    assert (nobody.returncode, nobody.stdout) == (0, "")


def test_a_copy_overwrites(user: User, tmp_path: Path) -> None:
    for text in ("one", "two"):
        (tmp_path / "settings").write_text(text)
        done = user.herd("cp", "-r", "settings", "pod:kept", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert user.herd("exec", "pod", "--", "cat", "kept").stdout == f"pod/w[0-3]: {text}\n"
    done = user.herd("cp", "settings", "pod:", cwd=tmp_path)
    assert done.stdout.startswith("copied to the login's home: pod/w[0-3] (")


def test_without_write_permission_nothing_is_sent(user: User, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for words in (("sync", tmp_path, "pod:/etc/x"), ("cp", tmp_path / "file", "pod:/etc/x")):
        done = user.herd(*words)
        assert done.returncode == 1
        sentence = "/etc is not writable; name another destination"
        assert done.stderr == f"pod/w[0-3]: {sentence}\nnothing was changed on any host\n"
    done = user.herd("cp", "pod:/etc/shadow", tmp_path / "shadow")
    assert (done.returncode, done.stderr) == (1, "pod/w[0-3]: /etc/shadow: Permission denied\n")


def test_an_unreachable_host_keeps_nothing_from_the_others(user: User, tmp_path: Path) -> None:
    assert user.herd("exec", "pod", "-c", "hostname > name").returncode == 0
    user.world.herd("weather", "unreachable", "pod/w2")
    user.leave()
    try:
        done = user.herd("cp", "pod:name", tmp_path / "names")
        assert done.returncode == 3
        assert done.stderr.startswith("pod/w2: ")
        found = {file.parent.name for file in (tmp_path / "names").glob("*/name")}
        assert found == {"pod-w0", "pod-w1", "pod-w3"}
        assert user.herd("sync", "--partial", tmp_path, "pod:part").returncode == 3
        assert user.herd("sync", tmp_path, "pod:whole").returncode == 7
    finally:
        user.world.herd("weather", "reachable", "pod/w2")
    assert user.herd("exec", "pod", "-c", "ls whole").returncode != 0


def test_a_missing_log_is_refused_with_the_existing_ones(user: User) -> None:
    assert user.herd("exec", "pod/w3", "--", "echo", "only there").returncode == 0
    assert user.herd("exec", "pod", "--", "echo", "counted").returncode == 0
    heads = [one for one in user.herd("logs", "pod").stdout.splitlines() if one.startswith("-- ")]
    number = next(one.split()[1] for one in heads if one.endswith("echo counted"))
    said = user.herd("logs", "pod", "--host", "w0", "--attempt", number, "--json").stdout
    assert [json.loads(one)["text"] for one in said.splitlines()] == ["counted"]
    for words, sentence in {
        ("pdo",): "there is no log of pdo: did you mean pod?",
        ("pod", "--attempt", "999"): f"there is no log 999 of pod, only 1-{number}",
        ("pod", "--host", "w9"): "there is no log of w9, only of pod/w[0-3]",
        ("--attempt", "nosuch"): "there is no log nosuch",
    }.items():
        done = user.herd("logs", *words)
        assert (done.returncode, done.stdout) == (4, "")
        assert done.stderr == f"herd logs: {sentence}; commands without output leave no log\n"
    with user.begun("logs", "pdo", "-f") as begun:
        assert begun.stderr is not None
        assert begun.stderr.readline().endswith("did you mean pod?; waiting for one\n")


def test_output_that_cannot_be_kept_is_reported(user: User) -> None:
    other = empty_home(user, "full")
    state = other.home / ".local/state/tpuherd"
    state.mkdir(parents=True)
    (state / "logs").write_text("in the place of the folder")
    try:
        done = other.herd("exec", "pod/w0", "--", "echo", "hi")
        assert (done.returncode, done.stdout) == (0, "hi\n")
        assert done.stderr.startswith("herd exec: some output is missing in herd logs: ")
    finally:
        other.leave()


def test_a_job_without_a_node_is_known(user: User) -> None:
    user.world.herd("weather", "drought", "us-east5-a")
    words = ("--name", "late", "--accelerator", "v5litepod-4", "--zones", "us-east5-a", "--yes")
    assert user.herd("up", *words).returncode == 0
    try:
        for target in ("late", "late-0"):
            done = user.herd("exec", target, "--", "true")
            assert done.returncode == 4
            says = f"herd exec: {target} has no node yet: `herd why` shows what it waits for\n"
            assert done.stderr == says
    finally:
        user.herd("down", "late", "--yes")
        user.herd("engine", "stop")


def test_a_single_word_with_a_terminal_is_a_shell_line(user: User) -> None:
    done = user.herd("ssh", "pod/w1", "echo one | tr o 0; exit 4")
    assert (done.returncode, done.stdout.split()) == (4, ["0ne"])


def test_chips_in_use_show_what_the_host_says_and_idle_ones_say_why(user: User) -> None:
    hold = (
        'exec python3 -c \'import sys; x = bytearray(200 << 20); print("held", flush=True);'
        ' print(open("/proc/self/statm").read(), flush=True); sys.stdin.read()\' 3</dev/accel1'
    )
    with user.begun("exec", "pod/w0", "-c", hold, stdin=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        while "held" not in holder.stdout.readline():
            pass
        resident = int(holder.stdout.readline().split()[-6]) * resource.getpagesize()
        done = user.herd("smi", "pod/w[0-1]", "--json")
        holder.stdin.close()
        holder.wait()
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    jsonschema.validate(rows, SCHEMAS["herd smi --json"])
    assert [(row["host"], row["chip"]) for row in rows] == [
        (f"pod/w{worker}", f"/dev/accel{chip}") for worker in (0, 1) for chip in range(4)
    ]
    held, idle = rows[1], rows[4:]
    assert held["hbm_total"] == 32 << 30
    assert held["hbm_used"] == pytest.approx(resident, rel=0.05)
    assert 0 <= held["duty_percent"] <= 100
    assert [one["command"].split()[0] for one in held["processes"]] == ["python3"]
    assert [row["hbm_used"] for row in rows[:4] if row is not held] == [0, 0, 0]
    assert {row["why"] for row in idle} == {"no program uses the chips"}
    assert {(row["hbm_used"], row["duty_percent"]) for row in idle} == {(None, None)}
    assert all(row["cores"] and row["ram_total"] for row in rows)
    table = user.herd("smi", "pod/w1")
    assert table.stdout.count("accel") == 4
    assert "no program uses the chips" in table.stdout
