"""Nothing that tests start outlives `make test`, however it ends."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="supervises on Linux only")

SUPERVISE = Path(__file__).parents[1] / "supervise.py"
#: Leaves a process of a session of its own that ignores SIGTERM, and a file.
LEAVES = """
touch "$TMPDIR/file"; echo "$TMPDIR"
(trap '' TERM; exec setsid sh -c 'echo $$; exec >&- 2>&-; while :; do sleep 100; done') &
wait_for_it() { read -r _; }
"""


def supervised(program: str) -> "subprocess.Popen[str]":
    words = [sys.executable, str(SUPERVISE), "sh", "-c", program]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def read_start(process: "subprocess.Popen[str]") -> tuple[Path, int]:
    """The folder of temporary files, and the process that is left."""
    assert process.stdout is not None
    return Path(process.stdout.readline().strip()), int(process.stdout.readline())


@pytest.mark.parametrize("status", [0, 1, 5])
def test_what_is_left_is_named_and_ended(status: int) -> None:
    process = supervised(f"{LEAVES} wait_for_it; exit {status}")
    folder, left = read_start(process)
    assert is_running(left) and (folder / "file").exists()
    _, said = process.communicate("\n", timeout=60)
    assert process.returncode == status
    assert f"was left by what ran, and is ended: {left} sh -c" in said
    assert not is_running(left)
    assert (folder / "file").exists() == (status == 1), "what failed keeps its files"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_in_the_middle_leaves_nothing(number: int) -> None:
    process = supervised(f"{LEAVES} wait_for_it")
    folder, left = read_start(process)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    process.communicate()
    assert not is_running(left) and not folder.exists()


def test_a_run_whose_caller_is_killed_leaves_nothing() -> None:
    """As `make` may be, by who has no patience or no memory."""
    call = "import subprocess, sys; subprocess.call(sys.argv[1:])"
    words = [sys.executable, str(SUPERVISE), "sh", "-c", f"{LEAVES} wait_for_it"]
    pipe = subprocess.PIPE
    caller = subprocess.Popen(
        [sys.executable, "-c", call, *words], stdin=pipe, stdout=pipe, text=True
    )
    folder, left = read_start(caller)
    caller.kill()
    end = monotonic() + 60
    while is_running(left) or folder.exists():
        assert monotonic() < end, "nothing is left after a minute"
        sleep(0.05)
    caller.communicate()
