"""What it costs to see: `herd smi` of many chips, and what they did over a month.

    .venv/bin/python bench/seeing.py [--parts smi,history] [--hosts 64] [--rounds 7]

smi   Every host holds its chips by a program, so libtpu's values are served. The peer is xargs with
      ssh over ControlMasters: on each host it sends the same requests to port 8431, reads as many
      bytes as they have answers, and prints the files of /proc that `herd smi` reads; it parses
      nothing. Hosts, their SSH server and libtpu are simulated on this machine's cores: only the
      ratio is meaningful.
history  A month of 64 chips, with a program of values that fluctuate: bytes, and the time to read
      three values of all chips for a chart of 600 points. And what 1,000 nodes cost the engine.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import h2.config
import h2.connection
from bench.exec import Pod, Tool, call
from bench.rigs import sample_history
from bench.rigs.figures import own_row, pair_row, write_figures

from tests.conformance.world import HERD, started, until
from tpuherd.commands.grpc_calls import request_headers
from tpuherd.commands.runtime_metrics import METRICS
from tpuherd_host.agent.host.runtime_metrics import SERVICE, metric_request

CHIPS = 4  #: of a host of v4
HOLD = "exec setsid nohup sleep 100000 {files} > /dev/null 2>&1 &"
ANSWERS = """\
exec 9<>/dev/tcp/127.0.0.1/8431; printf '{request}' >&9; {reader} <&9
"""
FILES = "cat /proc/stat /proc/net/dev /proc/meminfo /proc/loadavg /proc/net/tcp /proc/uptime"
SLACK = 64  #: bytes by which answers differ in length


def grpc_requests() -> bytes:
    """Return the bytes that ask for all metrics, as `herd smi` sends them."""
    http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    http.initiate_connection()
    for kind in METRICS:
        stream = http.get_next_available_stream_id()
        content = metric_request(kind.name)
        http.send_headers(stream, request_headers(SERVICE))
        http.send_data(stream, b"\0" + len(content).to_bytes(4) + content, end_stream=True)
    return http.data_to_send()


def read_command(reader: str) -> str:
    request = "".join(f"\\x{byte:02x}" for byte in grpc_requests())
    return f"bash -c {shlex.quote(ANSWERS.format(request=request, reader=reader))}"


Rows = list[dict[str, object]]


def measure_smi(many: int, rounds: int) -> Rows:
    with started("--time-scale", "60") as world:
        pod = Pod(world, many)
        files = " ".join(f"{3 + chip}</dev/accel{chip}" for chip in range(CHIPS))
        assert pod.many(pod.ips, command=HOLD.format(files=files))() == 0
        masters = pod.masters(pod.ips)
        table = until(lambda: held_chips(pod, many), "all chips to have values", seconds=60)
        size = answer_bytes(pod)
        read = f"{read_command(f'head -c {size - SLACK}')}; {FILES}"
        tools = [
            Tool("herd smi", call([HERD, "smi", "pod", "--json"], pod.user.env), pod.daemon_pid),
            Tool("xargs ssh", pod.many(pod.ips, *pod.through(), command=read), lambda: masters),
        ]
        for _ in range(rounds):
            for tool in tools:
                tool.round()
        pod.user.leave()
    print(f"smi: {table} chips of {many} hosts, {size} bytes of libtpu each")
    ours, peer = tools
    print_ratio(ours, peer)
    figure = "`herd smi` of four chips a host, warm"
    name = "xargs ssh, ControlMaster"
    rows = [
        pair_row(figure, "s", ours.wall, name, peer.wall),
        pair_row(f"{figure}, processor time of the client", "s", ours.cpu, name, peer.cpu),
    ]
    return [{**row, "at": many} for row in rows]


def held_chips(pod: Pod, many: int) -> int:
    """Return the number of chips once libtpu tells the values of all."""
    rows = json.loads(pod.user.herd("smi", "pod", "--json").stdout)
    known = [row for row in rows if row["hbm_used"] is not None and row["duty_percent"] is not None]
    return len(known) if len(known) == CHIPS * many else 0


def answer_bytes(pod: Pod) -> int:
    words = ["ssh", *pod.words(*pod.through()), pod.ips[0], read_command("timeout 2 cat")]
    return len(subprocess.run(words, capture_output=True).stdout)


def print_ratio(ours: Tool, peer: Tool) -> None:
    for tool in (ours, peer):
        wall, cpu = statistics.median(tool.wall), statistics.median(tool.cpu)
        to_wall = statistics.median(ours.wall) / wall
        to_cpu = statistics.median(ours.cpu) / max(cpu, 1e-6)
        print(
            f"  {tool.name:<12} {1000 * wall:7.0f} ms (of {min(tool.wall):.2f} to"
            f" {max(tool.wall):.2f} s)  {1000 * cpu:7.0f} ms CPU here"
            f"   ours/this: {to_wall:.2f} wall, {to_cpu:.2f} CPU"
        )


def measure_history(many: int, rounds: int) -> Rows:
    month, shares = sample_history.report_history()
    return [
        {**own_row("a month of 64 chips, kept", "MB", [month["bytes"] / 1e6]), "at": 64},
        own_row("three values of all chips over that month, read", "s", [month["month_s"]]),
        *({**own_row("samples of 1,000 nodes, taken and kept", "% of a core", [100 * share]),
           "at": hosts, "note": "at: hosts of a node"} for hosts, share in shares.items()),
    ]  # fmt: skip


PARTS: dict[str, Callable[[int, int], Rows]] = {"smi": measure_smi, "history": measure_history}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    said, rows = parser.parse_args(), list[dict[str, object]]()
    for part in said.parts.split(","):
        rows += PARTS[part](said.hosts, said.rounds)
    if said.json:
        write_figures(said.json, "Watching chips", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
