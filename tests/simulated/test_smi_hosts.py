"""`herd smi` of hosts that are silent, dead, lying or sound: each is shown as what it is."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.simulated.virtual_loop import run
from tests.unit.test_hostile_metrics import FakeTunnel, grpc_server
from tests.unit.test_smi import metric, response, whole
from tpuherd.commands.read_chips import read_hosts
from tpuherd.commands.read_port_metrics import METRICS_S
from tpuherd.errors import NotReached
from tpuherd.model.chip_readings import HostReading
from tpuherd.ports import Host, RpcRequest
from tpuherd.views.smi_table import smi_text

START = 1_000_000.0
SOUND, SILENT, DEAD, LIAR, LATE, MUTE = range(6)
USAGE = {
    "time": START, "cores": 8, "cpu_percent": 12.0, "devices": ["/dev/accel0"],
    "holders": [{"device": "/dev/accel0", "pid": 7, "user": "ann", "command": "python3 x"}],
    "metrics": [{"port": 8431, "pid": 7}],
}  # fmt: skip


@dataclass
class OddAgent:
    """The agent of one of the hosts."""

    worker: int

    async def call(self, verb: RpcRequest) -> Mapping[str, Any]:
        if self.worker == MUTE:
            await asyncio.Event().wait()
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


async def read_all() -> tuple[list[HostReading], float]:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def get_link(host: Host) -> OddAgent:
        if host.worker == DEAD:
            raise NotReached("no route to it")
        return OddAgent(host.worker)

    async def open_tunnel(host: Host, port: int) -> Any:
        if host.worker == SILENT:
            tunnel: FakeTunnel = SilentTunnel(lambda data: b"")
        else:
            tunnel = FakeTunnel(grpc_server(response(metric(0, whole(50)))))
        return tunnel, tunnel

    pool = SimpleNamespace(get_link=get_link, open_tunnel=open_tunnel)
    clock = SimpleNamespace(now=lambda: START + loop.time() - began)
    reach: Any = SimpleNamespace(pool=pool, clock=clock)
    readings = await read_hosts([host(worker) for worker in range(6)], reach)
    return readings, loop.time() - began


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
