"""A host whose agent was replaced by a liar, over real SSH: its own job suffers, and no other."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner
from tests.integration.real_faults import memory_of

pytestmark = pytest.mark.real
LIAR = Path(__file__).with_name("lying_agent.py")
RSS_MAX = 250 << 20
BEGIN = "exec python3 liar.py"
COUNTS = "for i in $(seq 600); do echo $i; [ -e ~/stop ] && exit 0; sleep 0.5; done; exit 1"


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    """His job `bad` is on a host whose agent lies from now on, `good` on another."""
    with owner() as found:
        found.job("good", COUNTS, accelerator="v4-8", retry={"failures": 0})
        found.job("bad", f"cat >liar.py <<'THE END'\n{LIAR.read_text()}\nTHE END\n{BEGIN}",
                  accelerator="v4-8", retry={"failures": 0})  # fmt: skip
        found.happened("attempt.started", many=2)
        yield found


def set_mode(user: Owner, mode: str) -> None:
    """What the liar does to those who connect from now on; it knows the other's attempt."""
    attempts = sorted({str(one.facts["attempt"]) for one in user.events("attempt.started")})

    def write() -> bool:
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"liar.py" in file.read_bytes().split(b"\0"):
                    (file.parent / "cwd/mode").write_text(" ".join([mode, *attempts]))
                    return (file.parent / "cwd/lying").exists()
            except OSError:
                continue
        return False

    until(write, "the liar", seconds=60)


@pytest.mark.parametrize("mode", ["half", "never", "lie", "flood"])
def test_a_lying_agent_harms_its_own_job_only(user: Owner, mode: str) -> None:
    set_mode(user, mode)
    user.cut("bad-0*")
    assert user.herd("exec", "good-0", "--", "true").returncode == 0
    engine, daemon = user.engine(), user.daemon_pid()
    assert engine and daemon
    with user.begun("exec", "bad-0", "--", "true", stderr=subprocess.PIPE) as asking:
        for _ in range(5):
            done = user.herd("exec", "good-0", "--", "echo", "here")
            assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr
            assert "attempt 1 on good-0" in user.herd("why", "good").stdout
        for pid in (engine, daemon):
            assert memory_of(pid) < RSS_MAX, (pid, memory_of(pid))
        said = "" if asking.poll() is None else asking.communicate()[1]
        assert "Traceback" not in said and "internal error" not in said
    assert user.engine() == engine, "it is the same engine"


def test_the_others_job_comes_to_its_end(user: Owner) -> None:
    """Once the liars have done what they could."""
    assert user.herd("exec", "good-0", "-c", "touch ~/stop").returncode == 0
    user.happened("slot.done")
    of_good = [event for event in user.events() if event.job == "good"]
    assert [e.facts["verdict"] for e in of_good if e.kind == "attempt.ended"] == ["success"]
    assert len([e for e in of_good if e.kind == "attempt.launched"]) == 1
    assert "bad-0-" in user.herd("why", "bad").stdout, "a sentence names the host"
