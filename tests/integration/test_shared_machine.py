"""Hosts without namespaces refuse harmful calls, and leave nothing behind."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.integration.running_hosts import becomes, host_rig, need, run, view
from tests.integration.worlds import HERD, environment
from tpuherd_sim.hosts import landlock
from tpuherd_sim.hosts.machine_users import find_other_people

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def possible() -> None:
    need("processes")


HARM = [
    *("sudo id", "reboot", "shutdown -h now", "apt-get install x", "su"),
    *("rm -rf --no-preserve-root /", "rm -rf /usr/share"),
]
WITHOUT_NAMESPACES = """
import asyncio
from tests.integration.running_hosts import host_rig, run, view

async def main():
    async with host_rig(None) as here:
        (host,) = await here.apply(view())
        print(here.pool.mode, (await run(host, "echo $USER")).text)
        print(*here.pool.missing)

asyncio.run(main())
"""


@pytest.mark.needs("unshare")
def test_a_machine_without_namespaces_is_recognized() -> None:
    need("namespaces-user")
    words = ["unshare", "--user", "--map-user=1001", "--map-group=1001", "--keep-caps"]
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
    done = subprocess.run(
        [*words, "sh", "-c", script, sys.executable, WITHOUT_NAMESPACES],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("processes root\n"), done.stdout + done.stderr
    assert "namespaces-user: not possible here (unshare: No space left" in done.stdout
    assert "user.max_user_namespaces is 0" in done.stdout


@pytest.mark.needs("unshare")
@pytest.mark.parametrize("hosts", ["auto", "processes"])
def test_on_a_shared_machine_hosts_without_isolation_need_consent(
    tmp_path: Path, hosts: str
) -> None:
    need("namespaces-user")
    refused = hosts == "auto" and bool(find_other_people())
    done = herd_without_namespaces(tmp_path, hosts)
    try:
        if refused:
            assert done.returncode == 2
            assert "others use this machine (" in done.stderr
            assert "To accept that use `--hosts processes`" in done.stderr
        else:
            assert done.returncode == 0, done.stderr
            assert "can reach your unix sockets" in done.stdout
    finally:
        stop = [*HERD, "sim", "stop", "--state-dir", str(tmp_path / "w")]
        subprocess.run(stop, capture_output=True, timeout=60)


def herd_without_namespaces(tmp_path: Path, hosts: str) -> "subprocess.CompletedProcess[str]":
    """`herd sim start` by a user of a machine that allows none."""
    words = ["unshare", "--user", "--map-user=1001", "--map-group=1001", "--keep-caps"]
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    start = ["sim", "start", "--detach", "--hosts", hosts, "--state-dir", str(tmp_path / "w")]
    return subprocess.run(
        [*words, "sh", "-c", script, "sh", *HERD, *start],
        env=environment(tmp_path, {}),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.skipif(not landlock.can_block_signals(), reason="Landlock 6 is not to be had")
def test_abstract_sockets_of_the_machine_are_unreachable() -> None:
    """Those of the host itself are not."""
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[1])"
    inside = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0tpuherd-inside'); "
        "s.listen(); socket.socket(socket.AF_UNIX).connect('\\0tpuherd-inside')"
    )

    async def story() -> None:
        async with host_rig("processes") as here:
            (host,) = await here.apply(view())
            done = await run(host, f'python3 -c "{connect}" tpuherd-outside')
            assert done.code == 1 and "Operation not permitted" in done.text, done.text
            assert (await run(host, f'python3 -c "{inside}"')).code == 0

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0tpuherd-outside")
        listener.listen()
        asyncio.run(story())


@pytest.mark.parametrize("harm", HARM)
def test_harmful_calls_are_refused_with_a_sentence(harm: str) -> None:
    async def story() -> None:
        async with host_rig("processes") as here:
            (host,) = await here.apply(view())
            await host.ensure_account("alice")
            done = await run(host, f"{harm} 2>&1", "alice")
            assert done.code == 1
            assert done.text.count("\n") == 0 and "refused" in done.text

    asyncio.run(story())


def test_a_signal_to_all_processes_reaches_none() -> None:
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as bystander:

        async def story() -> None:
            async with host_rig("processes") as here:
                (host,) = await here.apply(view())
                assert (await run(host, "kill -9 -1; echo $?")).text.endswith("1")
                if landlock.can_block_signals():
                    assert (await run(host, f"kill {bystander.pid}; echo $?")).text.endswith("1")

        asyncio.run(story())
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.skipif(not landlock.landlock_version(), reason="Landlock is not to be had")
def test_files_of_others_can_be_neither_changed_nor_seen(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o666)
    tmp_path.chmod(0o777)

    async def story() -> None:
        async with host_rig("processes") as here:
            (host,) = await here.apply(view())
            account = await host.ensure_account("alice")
            assert (await run(host, f"cat {secret}", "alice")).code == 1
            assert (await run(host, f"/bin/rm -rf {tmp_path}", "alice")).code == 1
            done = await run(host, "echo mine > ~/mine && cat ~/mine && pwd && echo $USER", "alice")
            assert done.text.split() == ["mine", account.home, "alice"]
            assert (await run(host, "f=$(mktemp) && echo x > $f && /bin/rm $f", "alice")).code == 0

    asyncio.run(story())
    assert secret.read_text() == "s3cret"


@pytest.mark.skipif(not landlock.landlock_version(), reason="Landlock is not to be had")
def test_links_that_a_host_leaves_in_its_folder_lead_nowhere_at_its_next_boot() -> None:
    with tempfile.TemporaryDirectory() as folder:
        outside = Path(folder)
        outside.chmod(0o777)
        (outside / "stopping").write_text("mine")

        async def story() -> None:
            async with host_rig("processes") as here:
                (host,) = await here.apply(view())
                links = (
                    f"cd ~/../.. && /bin/rm -rf dev run && ln -s {folder} dev && ln -s {folder} run"
                )
                await host.ensure_account("alice")
                assert (await run(host, links, "alice")).code == 0
                await here.change("a-0", boot=1)

        asyncio.run(story())
        assert [path.name for path in outside.iterdir()] == ["stopping"]


def test_a_host_listens_on_its_own_address() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with host_rig("processes") as here:
            one, other = await here.apply(view(0), view(1))
            with (
                await one.open_listener("169.254.169.254", 80) as first,
                await other.open_listener("169.254.169.254", 80) as second,
            ):
                assert first.getsockname() == ("127.66.0.2", 8080)
                assert second.getsockname() == ("127.66.0.3", 8080)
                with await one.connect("169.254.169.254", 80) as end:
                    met, _ = await loop.sock_accept(first)
                    with met:
                        await loop.sock_sendall(met, b"hello")
                        assert await loop.sock_recv(end, 9) == b"hello"
                told = (await run(other, "echo $GCE_METADATA_HOST")).text
                assert told == "127.66.0.3:8080"

    asyncio.run(story())


def test_processes_of_a_dead_leader_die_too() -> None:
    mark = f"--orphan-of-{os.getpid()}"

    def left() -> bool:
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(path.read_bytes())
            except OSError:
                continue
        return any(mark.encode() in line for line in lines)

    async def story() -> None:
        async with host_rig("processes") as here:
            (host,) = await here.apply(view())
            start = f"(setsid setsid bash -c 'exec -a {mark} sleep 600' >&- 2>&- <&- &)"
            await run(host, start)
            assert await becomes(left)
            await run(host, "kill -9 $PPID")
            await here.reports_log.wait_for_report("a-0", "failed", 0)
            assert await becomes(lambda: not left())

    asyncio.run(story())
