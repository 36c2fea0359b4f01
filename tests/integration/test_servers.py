"""The server of docs/howto/servers.md is reached by `herd forward`, also on its next node."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.world import HERD, until
from tests.integration.engines import Owner, owner

PAGE = Path(__file__).parents[2] / "docs/howto/servers.md"

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def user() -> Iterator[Owner]:
    with owner() as found:
        for kind, name in (("python", "serve.py"), ("yaml", "srv.yaml")):
            pattern = rf"^```{kind}\n# {re.escape(name)}\n(.*?)^```"
            (content,) = re.findall(pattern, PAGE.read_text(), re.M | re.S)
            (found.home / "srv").mkdir(exist_ok=True)
            (found.home / "srv" / name).write_text(content)
        (command,) = re.findall("^herd (run srv.yaml --detach)$", PAGE.read_text(), re.M)
        done = found.herd(*command.split(), "--yes", cwd=found.home / "srv")
        assert done.returncode == 0, done.stderr
        found.happened("attempt.started")
        yield found


@contextmanager
def forwarding(
    user: Owner, target: str, *ports: int
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`herd forward` to free ports, and the first address that it prints."""
    command = [str(HERD), "forward", target, *(f"{port}:0" for port in ports)]
    process = subprocess.Popen(
        command, env=user.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split(" ")[0], process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def answer(url: str) -> str:
    """What the server says; "" if nobody does."""
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return str(reply.read().decode())
    except OSError:
        return ""


def test_a_host_that_is_down_is_named_and_found_again(user: Owner) -> None:
    with forwarding(user, "srv", 8000) as (url, process):
        until(lambda: answer(url), "the server to answer", seconds=30)
        user.world.ask("POST", "sim/v1/weather/unreachable", {"target": "srv-0-*"})
        assert answer(url) == ""
        down = user.herd("forward", "srv", "8000:0")
        user.world.ask("POST", "sim/v1/weather/reachable", {"target": "srv-0-*"})
        assert (down.returncode, down.stdout) == (7, "")
        assert "srv-0/w0: nothing listens on its port" in down.stderr
        until(lambda: answer(url), "the host to be back", seconds=30)
        assert process.poll() is None


def test_several_ports_are_forwarded_at_once(user: Owner) -> None:
    with forwarding(user, "srv", 8000, 8000) as (first, process):
        assert process.stdout is not None
        second, _, said = process.stdout.readline().strip().partition(" ")
        assert said == "is port 8000 of srv-0/w0"
        assert second != first
        until(lambda: answer(first), "the server to answer", seconds=30)
        assert answer(second) == answer(first)


def test_the_address_stays_when_the_node_goes(user: Owner) -> None:
    with forwarding(user, "srv", 8000) as (url, process):
        first = until(lambda: answer(url), "the server to answer", seconds=30)
        assert first.startswith("attempt 1 on t1v-n-")
        (host,) = json.loads(user.herd("hosts", "srv", "--json").stdout)
        assert host["host"] == "srv-0/w0"
        near = user.herd(
            "exec", "srv", "--", "python3", "-c",
            "import urllib.request as r, sys; print(r.urlopen(sys.argv[1]).read().decode())",
            f"http://{host['internal_ip']}:8000/",
        )  # fmt: skip
        assert first.strip() in near.stdout, near.stderr
        assert user.herd("sim", "weather", "preempt", "srv-0-*", "0s").returncode == 0
        second = until(
            lambda: "attempt 2" in (said := answer(url)) and said, "the new node", seconds=120
        )
        assert str(second).split()[-1] != first.split()[-1]
        assert process.poll() is None


def test_impossible_forwards_are_refused_with_a_sentence(user: Owner) -> None:
    with forwarding(user, "srv", 8001) as (url, process):
        assert answer(url) == ""
        process.terminate()
        said = process.communicate(timeout=60)[1]
        assert "srv-0/w0: it does not answer on port 8001; each new connection tries again" in said
    taken = user.world.url.rpartition(":")[2].strip("/")
    for words, status, said in (
        (("srw", "8000"), 4, "srw"),
        (("srv", f"8000:{taken}"), 2, f"port {taken} of this machine can't be used"),
        (("srv", "8000:0", f"8001:{taken}"), 2, f"port {taken} of this machine can't be used"),
    ):
        done = user.herd("forward", *words)
        assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert user.herd("hosts", "srw").returncode == 4
