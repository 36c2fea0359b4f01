"""SSH sessions on isolated hosts: closed terminals, forwarding, a host that dies."""

import asyncio
import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.integration.plain_host import PlainWorld
from tests.integration.running_hosts import becomes, view
from tests.integration.test_host_ssh import Done, echoing, free_port, in_a_terminal, run
from tpuherd_sim.hosts.host_pool import HostPool, PoolSettings
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.ssh.ssh_server import SshServer

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh", "ssh-keygen")]


@dataclass
class SshRig:
    """Two hosts of one node, and a client's key."""

    pool: HostPool
    ssh_server: SshServer
    folder: Path
    port: int
    views: dict[str, HostView]

    def ssh(self, *words: str, worker: int = 0, flags: tuple[str, ...] = ()) -> list[str]:
        address = list(self.views.values())[worker].external_ip
        return [
            *("ssh", "-F", "none", "-i", str(self.folder / "id"), "-p", str(self.port)),
            *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
            *("-o", "LogLevel=ERROR", "-o", "BatchMode=yes", *flags, f"alice@{address}", *words),
        ]

    async def said(self, *words: str, worker: int = 0) -> str:
        done: Done = await run(self.ssh(*words, worker=worker))
        assert done.code == 0, done
        return done.out.decode().strip()

    async def change(self, worker: int, **fields: object) -> None:
        key = list(self.views)[worker]
        self.views[key] = replace(self.views[key], **fields)  # type: ignore[arg-type]
        await self.pool.apply_views({key: self.views[key]})
        await self.ssh_server.apply_views({key: self.views[key]})


@contextlib.asynccontextmanager
async def ssh_rig(mode: str, folder: Path) -> AsyncIterator[SshRig]:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / "id")]
    subprocess.run(argv, check=True)
    views: dict[str, HostView | None] = {one.key: one for one in (view(0), view(1))}
    world = PlainWorld(view(), {"alice": ((folder / "id.pub").read_text(),)})
    with tempfile.TemporaryDirectory(prefix="hosts-") as ground:
        Path(ground).chmod(0o755)
        pool = HostPool(world, Path(ground), PoolSettings(mode=mode))
        await pool.start()
        port = free_port()
        ssh_server = SshServer(world, port, pool.hosts.get, folder / "keys")
        try:
            await pool.apply_views(views)
            await ssh_server.apply_views(views)
            whole = {key: one for key, one in views.items() if one is not None}
            yield SshRig(pool, ssh_server, folder, port, whole)
        finally:
            await ssh_server.close()
            await pool.close()


def at_home(mode: str, folder: Path, work: Callable[[SshRig], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with ssh_rig(mode, folder) as here:
            await work(here)

    asyncio.run(whole())


def facts(text: str) -> Mapping[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_a_session_belongs_to_its_host(mode: str, tmp_path: Path) -> None:
    async def work(here: SshRig) -> None:
        names = await asyncio.gather(*(here.said("hostname", worker=each) for each in (0, 1)))
        assert names == [one.name for one in here.views.values()]
        env = facts(await here.said("env; echo me=$(whoami); echo here=$PWD"))
        assert (env["USER"], env["HOME"], env["me"]) == ("alice", "/home/alice", "alice")
        assert env["here"] == "/home/alice"
        assert env["JAX_PLATFORMS"] == "cpu"  # of /etc/environment
        assert not {"PYTHONPATH", "VIRTUAL_ENV", "SSH_AUTH_SOCK", "OLDPWD"} & set(env)
        assert await here.said("sudo id -u; echo late > /dev/stdout") == "0\nlate"
        big = os.urandom(5 << 20)
        assert (await run(here.ssh("cat > x; cat x"), big)).out == big

    at_home(mode, tmp_path, work)


def test_closing_a_session(mode: str, tmp_path: Path) -> None:
    async def work(here: SshRig) -> None:
        begun = "sleep 301 & nohup sleep 302 >/dev/null 2>&1 & setsid sleep 303 & sleep 304"
        async with in_a_terminal(here.ssh(begun, flags=("-tt",))):
            await here.said("until [ $(pgrep -xc sleep) = 4 ]; do sleep 0.05; done")
        left = "until [ $(pgrep -xc sleep) = 2 ]; do sleep 0.05; done; pgrep -xa sleep"
        assert re.findall(r"sleep \d+", await here.said(left)) == ["sleep 302", "sleep 303"]

    at_home(mode, tmp_path, work)


def test_forwarding_in_and_out(mode: str, tmp_path: Path) -> None:
    async def work(here: SshRig) -> None:
        serve = (
            "cat > s.py <<'E'\n"
            "import os, socket, sys\n"
            "where = sys.argv[1]\n"
            "kind = socket.AF_UNIX if '/' in where else socket.AF_INET\n"
            "s = socket.socket(kind)\n"
            "s.bind(where if '/' in where else ('127.0.0.1', int(where)))\n"
            "s.listen()\n"
            "print('up', flush=True)\n"
            "while True:\n"
            "    c, _ = s.accept()\n"
            "    c.sendall(c.recv(99) + b' of ' + os.uname().nodename.encode())\n"
            "    c.close()\n"
            "E\n"
            "exec python3 s.py "
        )
        one, other, echoed = free_port(), free_port(), 18_431
        argv = here.ssh(
            f"{serve} 8431 & {serve} /home/alice/sock & cat",
            flags=(
                *("-L", f"{one}:localhost:8431", "-L", f"{other}:/home/alice/sock"),
                *("-o", "ExitOnForwardFailure=yes"),
            ),
        )
        client = await asyncio.create_subprocess_exec(
            *argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert client.stdin and client.stdout
        for _ in range(2):
            assert await client.stdout.readline() == b"up\n"
        for port in (one, other):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello")
            assert await reader.read() == f"hello of {view(0).name}".encode()
            writer.close()
        client.stdin.close()
        client.kill()
        await client.wait()
        async with echoing() as port:
            flags = ("-R", f"{echoed}:127.0.0.1:{port}", "-o", "ExitOnForwardFailure=yes")
            ask = (
                f"exec 3<>/dev/tcp/127.0.0.1/{echoed}; printf back >&3;"
                f" python3 -c 'import socket; socket.socket(fileno=3).shutdown(1)'; cat <&3"
            )
            back = await run(here.ssh(ask, flags=flags))
            assert back.out == b"back", back

    at_home(mode, tmp_path, work)


def test_from_host_to_host(mode: str, tmp_path: Path) -> None:
    async def work(here: SshRig) -> None:
        key = (tmp_path / "id").read_bytes()
        await run(here.ssh("umask 077; cat > id"), key)
        hop = "ssh -i id -o BatchMode=yes -o StrictHostKeyChecking=no"
        done = await run(here.ssh(f"{hop} {view(1).internal_ip} 'hostname; echo $SSH_CONNECTION'"))
        name, connection = done.out.decode().splitlines()
        assert name == view(1).name, done
        assert connection.split()[::2] == [view(0).internal_ip, view(1).internal_ip]

    at_home(mode, tmp_path, work)


def test_weather_and_dead_hosts(mode: str, tmp_path: Path) -> None:
    async def work(here: SshRig) -> None:
        quick = here.ssh("echo hi", flags=("-o", "ConnectTimeout=1"))
        for fields, says in (
            ({"hung": True}, "during banner exchange"),
            ({"network": "down"}, "Connection timed out"),
        ):
            await here.change(0, **fields)
            assert says in (await run(quick)).err
            await here.change(0, hung=False, network="up")
            assert (await run(quick)).out == b"hi\n"
        before = await here.said("cat /proc/sys/kernel/random/boot_id; touch kept")
        keys = ["ssh-keyscan", "-t", "ed25519", "-p", str(here.port), "127.66.0.2"]
        key = (await run(keys)).out
        client = await asyncio.create_subprocess_exec(*here.ssh("echo up; sleep 300"), stdout=-1)
        assert client.stdout
        await client.stdout.readline()
        await here.change(0, boot=1)
        assert await client.wait() == 255
        after = await here.said("cat /proc/sys/kernel/random/boot_id; ls kept")
        assert before != after and after.endswith("kept")
        assert (await run(keys)).out == key
        await here.change(0, on=False)
        assert "Connection refused" in (await run(quick)).err
        assert await becomes(lambda: not here.ssh_server.listeners.get(view(0).key))

    at_home(mode, tmp_path, work)
