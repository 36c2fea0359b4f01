"""Before an attempt, what tasks left on the chips ends; others are waited for and named."""

from collections.abc import Iterator

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner

pytestmark = pytest.mark.real

HOLD = "import time; chip = open('/dev/accel0'); print('has it', flush=True); time.sleep(900)"
RUN = "exec 3</dev/accel0; echo it runs; sleep 2"


@pytest.fixture(autouse=True)
def clean(user: Owner) -> Iterator[None]:
    yield
    assert user.herd("down", "--all", "--yes", seconds=120).returncode == 0


def node(user: Owner, name: str) -> None:
    words = ("up", "--name", name, "--accelerator", "v4-16", "--zones", "us-central2-b")
    assert user.herd(*words, "--yes").returncode == 0
    assert user.herd("wait", name, seconds=120).returncode == 0


def holders(user: Owner, name: str) -> str:
    return user.herd("chips", name).stdout


def starts(user: Owner, name: str) -> list[str]:
    """The reasons of the attempts that have started."""
    found = user.events("attempt.started")
    return [str(one.facts.get("why", "")) for one in found if one.job == name]


def run(user: Owner, name: str) -> None:
    words = ("run", "--name", name, "--yes", "--detach", "--accelerator", "v4-16")
    done = user.herd(*words, "--zones", "us-central2-b", "--", RUN)
    assert done.returncode == 0, done.stderr


def test_what_an_ended_command_left_on_the_chips_ends(user: Owner) -> None:
    node(user, "left")
    left = f'setsid python3 -c "{HOLD}" >/dev/null 2>&1 &'
    assert user.herd("exec", "left/w1", "-c", left).returncode == 0
    until(lambda: "accel0" in holders(user, "left"), "a leftover on the chips", seconds=30)
    run(user, "left")
    assert user.herd("wait", "left", seconds=60).returncode == 0
    [why] = starts(user, "left")
    assert "ended what was left on the chips: left-0-g" in why
    assert "/w1: python3 -c import time; chip = open" in why
    assert "chip = open" not in holders(user, "left")


def test_a_command_that_runs_is_waited_for_and_named(user: Owner) -> None:
    node(user, "held")
    with user.begun("exec", "held/w1", "--", "python3", "-c", HOLD) as held:
        until(lambda: "accel0" in holders(user, "held"), "a user of the chips", seconds=30)
        run(user, "held")
        named = until(
            lambda: why if "once its chips" in (why := user.herd("why", "held").stdout) else "",
            "the one who holds it to be named",
            seconds=60,
        )
        assert "/w1: `python3 -c import time; chip = open(" in named
        assert "a command of `herd exec`, holds /dev/accel0" in named
        assert starts(user, "held") == []
        assert held.poll() is None
        assert user.herd("clean", "held", "--all", "--grace", "1s").returncode == 0
    assert user.herd("wait", "held", seconds=60).returncode == 0


def test_another_users_process_is_waited_for_and_a_stop_does_not_wait(user: Owner) -> None:
    node(user, "other")
    other = f'sudo setsid python3 -c "{HOLD}" >/dev/null 2>&1 &'
    assert user.herd("exec", "other/w0", "-c", other).returncode == 0
    until(lambda: "accel0" in holders(user, "other"), "another's process on the chips", seconds=30)
    run(user, "other")
    until(lambda: "of root) holds /dev/accel0" in user.herd("why", "other").stdout, "its name", 60)
    assert user.herd("down", "other", "--yes", seconds=60).returncode == 0
    assert starts(user, "other") == []
