"""Commands outlive the connection that started them: the real agent, on both kinds of hosts."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.host_backends import HostBackend, linked, opened
from tpuherd.errors import NotReached
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.agent_bundle import current_agent
from tpuherd.remote.agent_link import AgentLink
from tpuherd.remote.connection_pool import ConnectionPool
from tpuherd_host.agent.frames import LOG, STDOUT
from tpuherd_host.agent.log_records import RecordReader

pytestmark = pytest.mark.real
LINES = 40_000
COUNT = f"for i in $(seq {LINES}); do echo line $i; done"


class Reader:
    """Follows a command's log, wherever it was left."""

    def __init__(self) -> None:
        self.records = RecordReader()
        self.said = bytearray()
        self.heard = asyncio.Event()  #: more than there was when somebody cleared it

    async def follow(self, link: AgentLink, verb: str, **more: Any) -> Any:
        """Read to the end; what the agent answers then."""
        asked = {"id": "one", "from": self.records.offset, **more}
        self.records.rest = b""
        async with link.open_stream(RpcRequest(name=verb, arguments=asked)) as call:
            while (piece := await call.read()) is not None:
                if piece[0] == LOG:
                    for record in self.records.feed(piece[1]):
                        if record.port == STDOUT:
                            self.said += record.piece
                            self.heard.set()
            return await call.reply()


def test_a_command_survives_cuts_and_nothing_is_lost(backend: HostBackend, tmp_path: Path) -> None:
    (host,) = backend.node("long")
    reader = Reader()

    async def work(connections: ConnectionPool) -> Any:
        asked: dict[str, Any] = {"shell": f"{COUNT}; sleep 1; exit 7"}
        verb, cuts = "run", 0
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            while True:
                link = await linked(connections, host)
                reader.heard.clear()
                following = group.create_task(tried(reader.follow(link, verb, **asked)))
                if cuts < 3:
                    more = group.create_task(reader.heard.wait())
                    await asyncio.wait({more, following}, return_when=asyncio.FIRST_COMPLETED)
                    more.cancel()
                    cuts += 1
                    await asyncio.to_thread(backend.cut, host)
                answer = await following
                if answer is not None:
                    return answer
                verb, asked = "attach", {}

    answer = opened(backend, tmp_path, current_agent()).run(work)
    assert answer["exit"] == 7
    whole = "".join(f"line {number}\n" for number in range(1, LINES + 1)).encode()
    assert hashlib.sha256(reader.said).digest() == hashlib.sha256(whole).digest()


async def tried(work: Any) -> Any:
    """The answer, or None where the connection was cut."""
    try:
        return await work
    except NotReached:
        return None


def test_a_reboot_ends_a_command_and_says_so(backend: HostBackend, tmp_path: Path) -> None:
    (host,) = backend.node("victim")

    async def work(connections: ConnectionPool) -> None:
        link = await connections.get_link(host)
        asked = {"id": "two", "argv": ["sleep", "600"]}
        async with link.open_stream(RpcRequest(name="run", arguments=asked)) as call:
            await link.call(RpcRequest(name="ping"))
            await asyncio.to_thread(backend.reboot, host)
            async with asyncio.timeout(40):
                with pytest.raises(NotReached):
                    await call.reply()
        async with asyncio.timeout(60):
            link = await linked(connections, host)
        answer = await link.call(RpcRequest(name="attach", arguments={"id": "two"}))
        assert answer["exit"] is None
        assert answer["phase"] != "running"

    opened(backend, tmp_path, current_agent()).run(work)


def test_each_host_returns_its_own_exit_status(backend: HostBackend, tmp_path: Path) -> None:
    hosts = backend.node("gang", 4)

    async def work(connections: ConnectionPool) -> list[fanout.FanoutResult[Any]]:
        async def one(host: Host) -> Any:
            link = await connections.get_link(host)
            asked = {"id": "one", "shell": f"exit {host.worker}"}
            return (await link.call(RpcRequest(name="run", arguments=asked)))["exit"]

        return await fanout.run_on_all(hosts, one, seconds=60)

    done = opened(backend, tmp_path, current_agent()).run(work)
    assert fanout.failure_lines(done) == []
    assert [one.value for one in done] == [0, 1, 2, 3]


#: As many of them as are there, as soon as there are none, or after ten seconds.
ATTACHED = (
    "for i in $(seq 100); do n=$(ps -eo args | grep -c ' tpuherd-attach$'); [ $n = 0 ] && break;"
    " sleep 0.1; done; exit $n"
)


def test_a_running_agent_is_reached_through_its_socket(
    backend: HostBackend, tmp_path: Path
) -> None:
    (host,) = backend.node("door")

    async def counted(connections: ConnectionPool) -> Any:
        link = await connections.get_link(host)
        work = await link.call(
            RpcRequest(name="run", arguments={"id": str(id(link)), "shell": ATTACHED})
        )
        return link.hello["pid"], work["exit"]

    first, again = (opened(backend, tmp_path, current_agent()).run(counted) for _ in range(2))
    assert first[1] == 1  # the first time it had to be started
    assert again == (first[0], 0)  # then nothing is started to reach it
