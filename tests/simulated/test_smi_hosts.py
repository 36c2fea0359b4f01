"""`herd smi` of hosts that are silent, dead, lying or sound: each is shown as what it is."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from tests.simulated.virtual_loop import run
from tests.unit.test_hostile_metrics import FakeTunnel, grpc_server
from tests.unit.test_smi import metric, response, whole
from tpuherd.commands.read_chips import HostPolls, read_hosts
from tpuherd.commands.read_port_metrics import METRICS_S
from tpuherd.errors import NotReached
from tpuherd.model.chip_readings import HostReading
from tpuherd.ports import Host, RpcRequest
from tpuherd.views.smi_table import smi_text

START = 1_000_000.0
SOUND, SILENT, DEAD, LIAR, LATE, MUTE, FROZEN = range(7)
USAGE = {
    "time": START, "cores": 8, "cpu_percent": 12.0, "devices": ["/dev/accel0"],
    "holders": [{"device": "/dev/accel0", "pid": 7, "user": "ann", "command": "python3 x"}],
    "metrics": [{"port": 8431, "pid": 7}],
}  # fmt: skip


@dataclass
class OddAgent:
    """The agent of one of the hosts."""

    worker: int
    thawed: asyncio.Event  #: a frozen host answers from then on

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        if self.worker == MUTE:
            await asyncio.Event().wait()
        if self.worker == FROZEN:
            await self.thawed.wait()
        if verb.name == "attempts":
            return {"attempts": [], "notices": {"preempted": "TRUE"}} if self.worker == LATE else {}
        assert verb.name == "usage"
        if self.worker == LIAR:
            return {**USAGE, "cpu_percent": -3.0}
        return {**USAGE, "time": START + (7200.0 if self.worker == LATE else 0.0)}


class SilentTunnel(FakeTunnel):
    async def read(self, n: int = -1, /) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError


def host(worker: int) -> Host:
    return Host(
        node="gpt", zone="z", worker=worker, incarnation="i", internal_ip="10.0.0.2",
        external_ip=None,
    )  # fmt: skip


def reach_hosts(thawed: asyncio.Event) -> Any:
    """The way to the hosts, and a clock that begins at START."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def get_link(host: Host) -> OddAgent:
        if host.worker == DEAD:
            raise NotReached("no route to it")
        return OddAgent(host.worker, thawed)

    async def open_tunnel(host: Host, port: int) -> Any:
        if host.worker == SILENT:
            tunnel: FakeTunnel = SilentTunnel(lambda data: b"")
        else:
            tunnel = FakeTunnel(grpc_server(response(metric(0, whole(50)))))
        return tunnel, tunnel

    pool = SimpleNamespace(get_link=get_link, open_tunnel=open_tunnel)
    clock = SimpleNamespace(now=lambda: START + loop.time() - began)
    return SimpleNamespace(pool=pool, clock=clock)


async def read_all() -> tuple[list[HostReading], float]:
    reach = reach_hosts(asyncio.Event())
    readings = await read_hosts([host(worker) for worker in range(FROZEN)], reach)
    return readings, reach.clock.now() - START


async def watch_hosts(frozen_s: tuple[float, float], until_s: float) -> list[tuple[float, str]]:
    """Return when each frame of `-l 2` came, and what it said of a host that froze meanwhile."""
    loop, thawed = asyncio.get_running_loop(), asyncio.Event()
    thawed.set()
    loop.call_at(loop.time() + frozen_s[0], thawed.clear)
    loop.call_at(loop.time() + frozen_s[1], thawed.set)
    reach = reach_hosts(thawed)
    polls, frames = HostPolls(reach), list[tuple[float, str]]()
    while (began_s := reach.clock.now() - START) < until_s:
        sound, odd = await polls.read_answers([host(SOUND), host(FROZEN)], 2.0)
        assert sound.chips[0].duty_percent == 50
        passed_s = reach.clock.now() - START
        frames.append((passed_s, odd.why))
        await asyncio.sleep(max(0.0, began_s + 2.0 - passed_s))
    await polls.aclose()
    return frames


def test_every_host_is_shown_as_what_it_is_and_none_delays_the_others() -> None:
    readings, took_s = run(read_all())
    assert took_s == 20.0  # the limit for a host that is connected and does not answer
    assert took_s > METRICS_S
    why = {one.host: one.why for one in readings}
    assert why == {
        "gpt/w0": "",
        "gpt/w1": "libtpu's metrics did not answer in 5 s",
        "gpt/w2": "no route to it",
        "gpt/w3": "its agent's answer makes no sense: Expected `float` >= 0.0 - at `$.cpu_percent`",
        "gpt/w4": "",
        "gpt/w5": "no answer in 20 s",
    }
    assert readings[SOUND].chips[0].duty_percent == 50
    assert readings[SILENT].chips[0].processes
    assert [one.machine is None for one in readings] == [False, False, True, True, False, True]
    notes = smi_text(readings, START + took_s).split("\n\n")[-1].splitlines()
    assert notes[0] == "gpt/w4: PREEMPTED"
    assert "gpt/w4: its clock is 2 h 00 m ahead of this machine's" in notes


def test_a_frozen_host_does_not_delay_the_frames_of_a_repeated_reading() -> None:
    assert run(watch_hosts((3.0, 9.0), 12.0)) == [
        (0, ""), (2, ""), (6, "no answer for 2 s"), (8, "no answer for 4 s"), (9, ""), (10, ""),
    ]  # fmt: skip


def test_a_repeated_reading_keeps_the_reason_of_a_host_that_failed() -> None:
    frames = run(watch_hosts((1.0, 900.0), 60.0))
    said = [why for _, why in frames]
    assert said[1] == "no answer for 2 s"
    assert said[-1] == "no answer in 20 s"
    assert all(later[0] - at <= 4 for (at, _), later in pairwise(frames[1:]))
    assert frames[-1][0] >= 60
