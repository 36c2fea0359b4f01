"""Node reads per second and a list of 5,000 nodes over TCP, and the time to start a world.

    .venv/bin/python bench/tcp_world.py [--nodes 5000] [--seconds 5]

The world runs in its own process, pinned to one core; the client, on the other, is a bare loop over
one keep-alive connection. The limit is the same loop against a server that answers a constant on
the same event loop and HTTP stack.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import own_row, pair_row, write_figures

CONSTANT = """
import sys, uvicorn
BODY = b'x' * int(sys.argv[2])
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", str(len(BODY)).encode())]})
    await send({"type": "http.response.body", "body": BODY})
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False,
            lifespan="off")
"""
NODES = "/v2/projects/demo/locations/us-central2-b/nodes"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def on_core_0(argv: list[str]) -> subprocess.Popen[bytes]:
    def pin() -> None:
        os.sched_setaffinity(0, {0})

    return subprocess.Popen(argv, preexec_fn=pin, stdout=subprocess.DEVNULL)


def first_answer(port: int, path: str) -> None:
    """Wait for the first answer; a refused connection is asked again at once."""
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", path)
            connection.getresponse().read()
            return
        except ConnectionError:
            os.sched_yield()


def rate(port: int, path: str, seconds: float) -> tuple[float, int]:
    """GETs per second over one connection, by a bare socket loop; and the size of a body."""
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        count, size, until = 0, 0, time.perf_counter() + seconds
        while time.perf_counter() < until:
            connection.sendall(request)
            size = read_answer(connection)
            count += 1
    return count / seconds, size


def read_answer(connection: socket.socket) -> int:
    received = connection.recv(1 << 16)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    rest = length - len(body)
    while rest > 0:
        rest -= len(connection.recv(1 << 16))
    return length


def list_all(port: int) -> tuple[int, float]:
    """Every node, 500 a page, through the standard library's client, JSON read."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    began, found, token = time.perf_counter(), 0, ""
    while True:
        connection.request("GET", f"{NODES}?pageSize=500&pageToken={token}")
        page = json.loads(connection.getresponse().read())
        found += len(page.get("nodes", ()))
        token = page.get("nextPageToken", "")
        if not token:
            return found, time.perf_counter() - began


def fill(port: int, nodes: int) -> None:
    """Create the nodes. The limit of 91 creates a minute is lifted first."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    limit: dict[str, object] = {"zone": "us-central2-b", "quota": "qps/create", "limit": 10**9}
    node: dict[str, object] = {
        "acceleratorType": "v4-8",
        "runtimeVersion": "tpu-ubuntu2204-base",
    }
    asks = [("/sim/v1/weather/quota", limit)]
    asks += [(f"{NODES}?nodeId=n{number}", node) for number in range(nodes)]
    for target, body in asks:
        connection.request("POST", target, json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"POST {target}: {answer.status} {text.decode()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.sched_setaffinity(0, {1 if (os.cpu_count() or 1) > 1 else 0})
    port, ssh_port, other = free_port(), free_port(), free_port()
    herd = Path(sys.executable).with_name("herd")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        world = on_core_0(
            [
                *(str(herd), "sim", "start", "--port", str(port), "--ssh-port", str(ssh_port)),
                *("--state-dir", folder, "--hosts", "none", "--time-scale", "1000"),
            ]
        )
        try:
            first_answer(port, "/v2/projects/demo/locations")
            start_s = time.perf_counter() - began
            print(f"start to first answer {start_s:.2f} s")
            fill(port, options.nodes)
            reads, size = rate(port, f"{NODES}/n0", options.seconds)
            found, took = list_all(port)
        finally:
            world.terminate()
            world.wait()
    bare = on_core_0([sys.executable, "-c", CONSTANT, str(other), str(size)])
    try:
        first_answer(other, "/")
        limit, _ = rate(other, "/", options.seconds)
    finally:
        bare.terminate()
        bare.wait()
    print(
        f"node reads {reads:,.0f}/s; a constant of {size} bytes {limit:,.0f}/s; "
        f"ratio {reads / limit:.2f}"
    )
    print(f"list of {found} nodes, 500 a page: {took:.2f} s")
    if options.json:
        constant = f"a constant of {size} bytes on the same HTTP stack"
        reads_row = pair_row("reads of a node over TCP", "1/s", [reads], constant, [limit])
        rows = [
            {**reads_row, "more_is_better": True},
            {**own_row("a list of all nodes, 500 a page", "s", [took]), "at": found},
            own_row("start of a new world to its first answer", "s", [start_s]),
        ]
        write_figures(options.json, "A world over TCP", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
