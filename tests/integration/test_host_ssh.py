"""OpenSSH's programs and rsync against the SSH server of one host."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.plain_host import VIEW, PlainHost, PlainWorld
from tpuherd_sim.ssh.ssh_server import SshServer

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh", "ssh-keygen", "scp", "sftp")]


@dataclass
class Done:
    """How a program ended."""

    code: int
    out: bytes
    err: str


@dataclass
class Site:
    """A host with a door, and a client's key."""

    host: PlainHost
    world: PlainWorld
    ssh_server: SshServer
    folder: Path
    port: int

    @property
    def options(self) -> list[str]:
        return [
            *("-F", "none", "-i", str(self.folder / "id")),
            *("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self.folder}/known"),
            *("-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"),
        ]

    def ssh(self, *words: str, user: str = "alice") -> list[str]:
        return ["ssh", *self.options, "-p", str(self.port), f"{user}@127.77.0.1", *words]

    async def match(self, **fields: object) -> None:
        self.world.change(**fields)
        await self.ssh_server.apply_views({VIEW.key: self.world.now})


async def run(argv: list[str], given: bytes | None = b"", *, deadline_s: float = 60) -> Done:
    child = await asyncio.create_subprocess_exec(
        *argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(deadline_s):
        out, err = await child.communicate(given)
    return Done(child.returncode or 0, out, err.decode(errors="replace"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.77.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    for name in ("id", "stranger"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True)
    mine = (folder / "id.pub").read_text()
    host = PlainHost(folder / "root")
    world = PlainWorld(VIEW, {"alice": (mine,), "bob": (mine,)})
    port = free_port()
    ssh_server = SshServer(
        world, port, lambda key: None if host.gone.is_set() else host, folder / "keys"
    )
    try:
        await ssh_server.apply_views({VIEW.key: VIEW})
        yield Site(host, world, ssh_server, folder, port)
    finally:
        await ssh_server.close()
        host.die()


def at_a_site(work: Callable[[Site], Awaitable[None]], folder: Path) -> None:
    async def whole() -> None:
        async with site(folder) as here:
            await work(here)

    asyncio.run(whole())


async def until(true: Callable[[], bool], *, deadline_s: float = 60) -> None:
    async with asyncio.timeout(deadline_s):
        while not true():
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_streams_and_exit_statuses(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        done = await run(here.ssh("cat; echo oops >&2; exit 7"), b"in\n")
        assert (done.out, done.err, done.code) == (b"in\n", "oops\n", 7)
        assert (await run(here.ssh("kill -9 $$"))).code == 255
        assert (await run(here.ssh("echo late > /dev/stderr"))).err == "late\n"
        # The input is over, the output is not: half-closed.
        done = await run(here.ssh("sort -r; sleep 0.2; echo end"), b"1\n2\n")
        assert done.out == b"2\n1\nend\n"
        # What is left running keeps the session until it lets go of the output.
        done = await run(here.ssh("(sleep 0.3; echo child) & echo parent"))
        assert done.out == b"parent\nchild\n"

    at_a_site(work, tmp_path)


def test_environment(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        await here.host.write(
            "/etc/environment", b'PATH="/opt/x:/usr/bin:/bin"\nHF_HOME=/d # k\n', 0o644
        )
        await here.host.write("/etc/passwd", b"bob:x:1:1::/home/bob:/bin/sh\n", 0o644)
        argv = here.ssh("env; pwd; echo $0")
        argv[1:1] = ["-o", "SetEnv=LANG=de_DE.UTF-8 SECRET=x LC_ALL=C"]
        said = (await run(argv)).out.decode().splitlines()
        home = str(tmp_path / "root/home/alice")
        env = dict(line.split("=", 1) for line in said if "=" in line)
        assert re.fullmatch(rf"127\.0\.0\.1 \d+ 127\.77\.0\.1 {here.port}", env["SSH_CONNECTION"])
        assert env["SSH_CLIENT"].split()[::2] == ["127.0.0.1", str(here.port)]
        assert said[-2:] == [home, "bash"]
        for name in ("SSH_CONNECTION", "SSH_CLIENT", "PWD", "SHLVL", "_", "OLDPWD"):
            env.pop(name, None)
        assert env == {
            "HF_HOME": "/d",
            "HOME": home,
            "LANG": "de_DE.UTF-8",
            "LC_ALL": "C",
            "LOGNAME": "alice",
            "PATH": "/opt/x:/usr/bin:/bin",
            "SHELL": "/bin/bash",
            "USER": "alice",
        }
        assert (await run(here.ssh("echo $0 $SHELL", user="bob"))).out == b"sh /bin/sh\n"
        login = await run(here.ssh(), b"echo $0; shopt login_shell; exit 3\n")
        assert (login.out, login.code) == (b"-bash\nlogin_shell    \ton\n", 3)

    at_a_site(work, tmp_path)


def test_who_may_log_in(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        mine, other = str(tmp_path / "id"), str(tmp_path / "stranger")
        stranger = [word.replace(mine, other) for word in here.ssh("true")]
        refused = await run(stranger)
        assert refused.code == 255
        assert "Permission denied (publickey)" in refused.err
        assert (await run(here.ssh("true", user="carol"))).code == 255
        assert (await run(here.ssh("echo $USER", user="bob"))).out == b"bob\n"
        public = (tmp_path / "stranger.pub").read_text().strip()
        over = 'google-ssh {"userName":"x","expireOn":"2020-01-01T00:00:00+0000"}'
        here.world.keys = {"alice": (f"{public} {over}",)}
        assert (await run(stranger)).code == 255
        here.world.keys = {"alice": (f"{public} {over.replace('2020', '2120')}",)}
        assert (await run(stranger)).code == 0
        # Keys that the user put there by hand count as on any machine.
        here.world.keys = {}
        await here.host.write("/etc/passwd", b"alice:x:1:1::/home/alice:/bin/bash\n", 0o644)
        assert (await run(stranger)).code == 255
        await here.host.write("/home/alice/.ssh/authorized_keys", public.encode(), 0o600)
        assert (await run(stranger)).code == 0

    at_a_site(work, tmp_path)


def test_copies_are_equal(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        big = tmp_path / "big"
        big.write_bytes(os.urandom(24 << 20))
        home = tmp_path / "root/home/alice"
        place = "alice@127.77.0.1:"
        scp = ["scp", "-q", *here.options, "-P", str(here.port)]
        shell = " ".join(here.ssh()[:-1])
        # scp's old way, and rsync, want a program of that name on the host too.
        rsync = [["rsync", "-e", shell]] if shutil.which("rsync") else []
        for number, there in enumerate(([*scp], [*scp, "-O"], *rsync)):
            done = await run([*there, str(big), f"{place}up{number}"])
            assert done.code == 0, done.err
            done = await run([*there, f"{place}up{number}", str(tmp_path / f"down{number}")])
            assert done.code == 0, done.err
            for copy in (home / f"up{number}", tmp_path / f"down{number}"):
                assert copy.read_bytes() == big.read_bytes()
        done = await run(here.ssh("cat | cat"), big.read_bytes())
        assert done.out == big.read_bytes()
        batch = f"put {big} put\nls -l\n".encode()
        done = await run(
            ["sftp", "-q", *here.options, "-P", str(here.port), "-b", "-", place[:-1]], batch
        )
        assert done.code == 0, done.err
        assert (home / "put").read_bytes() == big.read_bytes()

    at_a_site(work, tmp_path)


@contextlib.asynccontextmanager
async def in_a_terminal(argv: list[str]) -> AsyncIterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """A client on a terminal of 33 rows and 101 columns: its other end, and the client."""
    master, slave = os.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))

    def own() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    client = subprocess.Popen(
        argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=own
    )
    os.close(slave)
    os.set_blocking(master, False)
    try:
        yield master, client
    finally:
        client.kill()
        client.wait()
        os.close(master)


async def heard(master: int, pattern: str, *, deadline_s: float = 60) -> str:
    """What came out of the terminal, up to where the pattern was found."""
    said = ""
    async with asyncio.timeout(deadline_s):
        while not re.search(pattern, said):
            try:
                said += os.read(master, 65536).decode(errors="replace")
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError as error:
                raise AssertionError(f"closed after {said!r}") from error
    return said


def test_a_terminal(tmp_path: Path) -> None:
    import fcntl
    import struct
    import termios

    async def work(here: Site) -> None:
        async with in_a_terminal(here.ssh("-tt")) as (master, client):
            os.write(master, b"PS1=; tty; stty size; stty -a | grep -o '.iutf8'; echo $TERM:o''k\n")
            said = await heard(master, r":ok\r\n")
            assert re.search(r"/dev/pts/\d+\r\n33 101\r\n", said), said
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
            client.send_signal(signal.SIGWINCH)
            os.write(
                master,
                b"until [ \"$(stty size)\" = '50 132' ]; do sleep 0.05; done; echo re:si''zed\n",
            )
            await heard(master, r"re:sized\r\n")
            os.write(master, b"sh -c 'echo beg''un; exec sleep 100'\n")
            await heard(master, r"begun\r\n")
            os.write(master, b"\x03")
            os.write(master, b"echo co''de:$?\n")
            await heard(master, r"code:130\r\n")
            os.write(master, b"exit 9\n")
            await until(lambda: client.poll() is not None)
            assert client.returncode == 9

    at_a_site(work, tmp_path)


def test_a_client_that_disconnects(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        async def left(words: str, file: str, *flags: str) -> list[int]:
            argv = here.ssh(words)
            argv[1:1] = flags
            client = await asyncio.create_subprocess_exec(
                *argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            path = tmp_path / file
            await until(
                lambda: path.exists() and path.read_text().count("\n") == len(words.split("&")) - 1
            )
            pids = [int(line) for line in path.read_text().split()]
            client.kill()
            await client.wait()
            return pids

        pids = await left(
            f"sleep 300 & echo $! >>{tmp_path}/t;"
            # Its number is written once it ignores the hanging up.
            f" nohup sh -c 'echo $$ >>{tmp_path}/t; exec sleep 300' >/dev/null & wait",
            "t", "-tt",
        )  # fmt: skip
        await until(lambda: not alive(pids[0]))
        assert alive(pids[1])
        pipes = await left(f"sleep 300 & echo $! >>{tmp_path}/p; wait", "p")
        await until(lambda: not here.ssh_server.listeners[VIEW.key].connections)
        assert alive(pipes[0])
        for pid in (pids[1], pipes[0]):
            os.kill(pid, signal.SIGKILL)

    at_a_site(work, tmp_path)


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    """A server on this machine that gives back what it gets, once the sender has ended."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_port_forwarding(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        data = os.urandom(3 << 20)
        async with echoing() as echo:
            there, dead = free_port(), free_port()
            argv = here.ssh("echo up; cat")
            argv[1:1] = [
                *("-L", f"{there}:localhost:{echo}", "-L", f"{dead}:127.0.0.1:1"),
                *("-R", f"0:127.0.0.1:{echo}", "-o", "ExitOnForwardFailure=yes"),
            ]
            argv[argv.index("LogLevel=ERROR")] = "LogLevel=INFO"
            client = await asyncio.create_subprocess_exec(
                *argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            assert client.stdin and client.stdout and client.stderr
            assert await client.stdout.readline() == b"up\n"
            assert await ask(there, data) == data
            assert await asyncio.gather(*(ask(there, b"x" * n) for n in range(30))) == [
                b"x" * n for n in range(30)
            ]
            assert await ask(dead, b"") == b""
            line = ""
            while "Allocated port" not in line:
                line = (await client.stderr.readline()).decode()
            back = int(re.findall(r"port (\d+) for", line)[0])
            assert await ask(back, data) == data
            client.stdin.close()
            assert await client.wait() == 0

    at_a_site(work, tmp_path)


def test_many_sessions_on_one_connection(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        place = Path(short, "c")
        control = ["-S", str(place), "-o", "ControlPersist=no"]
        master = await asyncio.create_subprocess_exec(
            "ssh", *control, "-M", *here.ssh("-N")[1:], stdin=subprocess.DEVNULL
        )
        await until(place.exists)
        ends = [run(["ssh", *control, *here.ssh("sleep 0.3; echo $PPID")[1:]]) for _ in range(10)]
        assert [done.code for done in await asyncio.gather(*ends)] == [0] * 10
        master.kill()  # at a SIGTERM it sometimes forgets to look
        await master.wait()

    with TemporaryDirectory() as short:  # as the path of a socket must be
        at_a_site(work, tmp_path)


def test_weather_affects_connections(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        quick = here.ssh("echo hi")
        quick[1:1] = ["-o", "ConnectTimeout=1"]
        stays = here.ssh("while sleep 0.05; do echo tick; done")
        stays[1:1] = ["-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1"]
        for fields, says in (
            ({"network": "down"}, "Connection timed out"),
            ({"hung": True}, "Connection timed out during banner exchange"),
        ):
            client = await asyncio.create_subprocess_exec(
                *stays, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            assert client.stdout and client.stderr
            await client.stdout.readline()
            await here.match(**fields)
            assert says in (await run(quick)).err
            assert await client.wait() == 255  # its keepalives got no answer
            await here.match(network="up", hung=False)
            assert (await run(quick)).out == b"hi\n"
        await here.match(ssh=False)
        assert "Connection refused" in (await run(quick)).err
        await here.match(ssh=True)
        assert (await run(quick)).out == b"hi\n"

    at_a_site(work, tmp_path)


def test_a_host_that_dies(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        client = await asyncio.create_subprocess_exec(
            *here.ssh("echo up; sleep 300"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert client.stdout and client.stderr
        await client.stdout.readline()
        here.host.die()
        assert await client.wait() == 255
        assert "send disconnect: Broken pipe" in (await client.stderr.read()).decode()
        await here.match()
        assert "Connection refused" in (await run(here.ssh("true"))).err

    at_a_site(work, tmp_path)


def test_the_host_key_stays_until_the_host_is_deleted(tmp_path: Path) -> None:
    async def work(here: Site) -> None:
        async def key() -> str:
            done = await run(["ssh-keyscan", "-t", "ed25519", "-p", str(here.port), "127.77.0.1"])
            return done.out.decode().split()[-1]

        before = await key()
        await here.match(on=False)
        await here.match(on=True)
        assert await key() == before
        await here.ssh_server.apply_views({VIEW.key: None})
        await here.match()
        assert await key() != before

    at_a_site(work, tmp_path)
