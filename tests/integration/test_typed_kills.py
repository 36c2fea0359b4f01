"""What guides tell people to type before a run, reboots, maintenance: no node is lost by them."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner
from tests.integration.users import Terminal, read_line_of_all
from tpuherd.model.slots_and_plan import HistoryEvent

pytestmark = [pytest.mark.real, pytest.mark.needs("pkill", "killall", "python3")]

KILLS = ("pkill python3", "sudo pkill -f python3", "killall -9 -w python3")
SAID = "it was ended by a signal that herd did not send; `herd stop {}` cancels for good"
SAVES = "trap 'echo saved; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
WAITS = "echo up; until [ -e ~/end ]; do sleep 0.1; done; rm ~/end; exit 7"


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    with owner() as found:
        yield found


def events_of(user: Owner, job: str, *kinds: str) -> list[HistoryEvent]:
    return [one for one in user.events(*kinds) if one.job == job]


def started(user: Owner, job: str, many: int = 1) -> HistoryEvent:
    """Wait until this many attempts have started; return the last."""
    found = until(
        lambda: events_of(user, job, "attempt.started")[many - 1 :],
        f"attempt {many} of {job}",
        seconds=180,
    )
    return found[0]


@contextmanager
def job(user: Owner, name: str, run: str, **fields: object) -> Iterator[str]:
    user.job(name, run, zones="us-central2-b", **fields)
    started(user, name)
    if not json.loads(user.world.herd("status", "--json"))["hosts"].startswith("namespaces"):
        pytest.skip("it would end this machine's")
    yield name
    assert len(events_of(user, name, "bid.requested")) == 1, "it keeps its node"
    assert not events_of(user, name, "bid.withdrawn", "bid.notice_received", "slot.gave_up")
    assert user.herd("down", name, "--yes", seconds=120).returncode == 0


@pytest.fixture(scope="module")
def kept(user: Owner) -> Iterator[str]:
    with job(user, "kept", "exec sleep 9000") as name:
        yield name


def agents(user: Owner) -> str:
    done = user.herd("exec", "kept", "-c", "pgrep -x herd-agent; pgrep -x herd-supervisor")
    return "\n".join(sorted(done.stdout.splitlines()))


@pytest.mark.parametrize("hosts", ["/w0", ""], ids=["one", "all"])
@pytest.mark.parametrize("how", KILLS)
def test_what_is_no_python_goes_on(user: Owner, kept: str, how: str, hosts: str) -> None:
    before = agents(user)
    window = Terminal(user, "ssh", f"{kept}/w0")
    window.type(b"echo be''gun\n")
    window.expect(rb"begun")
    with user.begun("exec", kept, "-c", WAITS) as command:
        read_line_of_all(command, "up", 2)
        done = user.herd("exec", kept + hosts, "-c", how)
        assert done.returncode in (0, 1, 143), done.stderr  # 143: -f finds its own shell
        assert user.herd("exec", kept, "-c", "touch ~/end").returncode == 0
        assert command.wait(60) == 7
    window.type(b"exit 3\n")
    assert window.end() == 3
    assert agents(user) == before and len(before.splitlines()) >= 2
    assert len(events_of(user, kept, "attempt.launched")) == 1


@pytest.mark.parametrize("how", KILLS)
def test_a_python_that_was_killed_starts_again_and_says_why(user: Owner, how: str) -> None:
    name = f"python{KILLS.index(how)}"
    script = "import time; print('alive', flush=True); time.sleep(9000)"
    with job(user, name, f'exec python3 -c "{script}"', accelerator="v4-8"):
        user.herd("exec", name, "-c", how)
        started(user, name, 2)
        (ended,) = events_of(user, name, "attempt.ended")
        assert ended.facts["verdict"] == "failure"
        assert SAID.format(name) in ended.facts["why"]
        assert f"`{how}` on this host a moment before" in ended.facts["why"]


def type_reboot(user: Owner, target: str) -> None:
    user.herd("exec", target, "-c", "sudo reboot")


def weather(kind: str, **arguments: object) -> Callable[[Owner, str], None]:
    def strike(user: Owner, target: str) -> None:
        name, _, worker = target.partition("/")
        node = f"{name}-0-*/{worker}" if worker else f"{name}-0-*"
        user.world.ask("POST", f"sim/v1/weather/{kind}", {"target": node, **arguments})

    return strike


STRIKES: Mapping[str, tuple[str, Callable[[Owner, str], None]]] = {
    "typed-one": ("/w0", type_reboot),
    "typed-all": ("", type_reboot),
    "soft-one": ("/w1", weather("reboot", soft_s=3)),
    "moved-all": ("", weather("reboot", soft_s=3, change_ip=True)),
    "maintained": ("", weather("maintain", notice_s=5)),
}


@pytest.mark.parametrize("strike", STRIKES)
def test_a_node_that_restarts_is_used_again(user: Owner, strike: str) -> None:
    """It has saved before; no retry is used, of which it has none."""
    hosts, act = STRIKES[strike]
    with job(user, strike, SAVES, retry={"failures": 0, "preemptions": 0, "stalls": 0}):
        window = Terminal(user, "ssh", f"{strike}/w0")
        with user.begun("exec", strike, "-c", WAITS) as command:
            read_line_of_all(command, "up", 2)
            act(user, strike + hosts)
            started(user, strike, 2)
            assert hosts or command.wait(60) in (143, 255)
        window.close()
        (ended,) = events_of(user, strike, "attempt.ended")
        assert ended.facts["verdict"] == "node fault", ended
        first = events_of(user, strike, "attempt.launched")[0].facts["attempt"]
        said = {place: lines for place, lines in user.said().items() if place.startswith(first)}
        assert said and all("saved" in lines for lines in said.values()), said
        done = user.herd("exec", strike, "--", "echo", "here")
        assert (done.returncode, done.stdout.count("here")) == (0, 1), done.stderr
