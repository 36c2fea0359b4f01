"""Programs inside a host can neither see nor harm what is outside."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.running_hosts import WALLED, HostRig, becomes, host_rig, need, run, view

pytestmark = pytest.mark.real


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the machine that must survive."""
    program = "import sys; sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_users_and_processes_of_the_machine_are_invisible(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN_OF_THE_USER", "s3cret-of-the-user")
    secret = tmp_path / "credentials.json"
    secret.write_text("s3cret-of-the-user")

    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            tops = await run(host, "ls -A /home /root /tmp /srv /mnt /opt")
            assert tops.text.split() == "/home: /mnt: /opt: /root: /srv: /tmp:".split()
            assert (await run(host, f"cat {secret} /proc/1/root{secret}")).code != 0
            environ = await run(host, "cat /proc/[0-9]*/environ | tr '\\0' '\\n'")
            assert "s3cret" not in environ.text and "tpuherd" not in environ.text.replace(
                "/usr/lib/tpuherd", ""
            )
            shadow = (await run(host, "cat /etc/shadow")).text
            assert "$" not in shadow and "*" in shadow
            assert not (await run(host, "ls /etc/ssh/*key* /etc/netrc /etc/pip.conf 2>&-")).text
            mounts = await run(host, "cat /proc/self/mountinfo /proc/1/cmdline")
            assert str(here.folder) not in mounts.text and "python" not in mounts.text
            assert "pipe" not in (await run(host, "readlink /proc/1/fd/[0-2]")).text

    asyncio.run(story())


def test_killing_everything_ends_only_the_host(
    mode: str, bystander: "subprocess.Popen[bytes]"
) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            one, other = await here.apply(view(0), view(1))
            kept = asyncio.create_task(run(other, "exec -a python3 sleep 300"))
            await run(one, "pkill -9 python3; kill -9 1; kill -9 -1")
            assert (await run(one, "echo alive")).text == "alive"
            assert bystander.poll() is None and not kept.done()
            assert not (await run(one, f"kill -0 {bystander.pid} 2>&-")).text
            kept.cancel()

    asyncio.run(story())


def test_removing_everything_removes_only_the_host(mode: str) -> None:
    before = sorted(path.name for path in Path("/usr/bin").iterdir())

    async def story() -> None:
        async with host_rig(mode) as here:
            one, other = await here.apply(view(0), view(1))
            await run(one, "rm -rf --no-preserve-root / 2>&-")
            with pytest.raises(OSError):  # there is no /etc/passwd any more
                await run(one, "true")
            assert int((await run(other, "ls /usr/bin | wc -l")).text) >= len(before)

    asyncio.run(story())
    assert sorted(path.name for path in Path("/usr/bin").iterdir()) == before


def test_root_of_a_host_is_not_root_of_the_machine(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            for harm in (
                "date -s '2001-01-01'",
                "echo 1 > /proc/sys/vm/drop_caches",
                "echo b > /proc/sysrq-trigger; grep -q . /proc/sysrq-trigger",
                "dmesg",
                "mknod /tmp/disk b 254 0 && cat /tmp/disk",
                "mount -t ext4 /dev/vda /mnt",
                "mount -o remount,rw /sys && echo x > /sys/kernel/mm/ksm/run",
                "umount -l / && ls /old/root",
                "nsenter -t 1 --mount --root=/proc/1/root ls /lost+found",
            ):
                done = await run(host, f"({harm}) 2>&1")
                assert done.code != 0, f"{harm}: {done.text}"

    asyncio.run(story())


def test_a_full_disk_is_full_for_its_host_only(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode, disk_bytes=32 << 20) as here:
            one, other = await here.apply(view(0), view(1))
            full = await run(one, "dd if=/dev/zero of=/big bs=1M count=100 2>&1")
            assert full.code == 1 and "No space left" in full.text
            assert (await run(other, "dd if=/dev/zero of=/big bs=1M count=20")).code == 0
            await run(one, "rm /big")
            await here.change("a-0", disk_full=True)
            assert "No space left" in (await run(one, "echo hello > /root/hello")).text
            assert (await run(one, "df --output=pcent / | tail -1")).text == "100%"
            await here.change("a-0", disk_full=False)
            assert (await run(one, "echo hello > /root/hello && cat /root/hello")).text == "hello"

    asyncio.run(story())


def test_a_host_with_a_full_disk_still_reboots(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode, disk_bytes=32 << 20) as here:
            (before,) = await here.apply(view(0))
            await here.change("a-0", disk_full=True)
            await here.change("a-0", boot=view(0).boot + 1)
            after = here.pool.hosts["a-0"]
            assert after is not before
            assert "No space left" in (await run(after, "echo hello > /root/hello")).text

    asyncio.run(story())


def test_nodes_do_not_reach_each_other(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            mine, peer = await here.apply(view(0), view(1))
            (stranger,) = await here.apply(view(2, "b"))
            with await peer.open_listener("0.0.0.0", 7000):
                knock = "exec 3<>/dev/tcp/10.128.0.3/7000"
                assert (await run(mine, knock)).code == 0
                assert (await run(mine, "exec 3<>/dev/tcp/t1v-n-a-w-1/7000")).code == 0
                assert (await run(stranger, knock)).code != 0
            outside = await run(mine, "timeout 5 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'")
            assert outside.code != 0

    asyncio.run(story())


def test_two_pods_may_have_the_same_addresses(mode: str) -> None:
    async def story(here: HostRig) -> None:
        for segment in ("a", "b"):
            one, two = await here.apply(view(0, segment), view(1, segment))
            with await two.open_listener("10.128.0.3", 7000):
                found = await run(one, "exec 3<>/dev/tcp/10.128.0.3/7000 && hostname")
                assert found.text == f"t1v-n-{segment}-w-0"

    async def on_a_floor() -> None:
        async with host_rig(mode) as here:
            await story(here)

    asyncio.run(on_a_floor())


def links() -> set[str]:
    """The network's, but for those of towns, which another test may have meanwhile."""
    names = {path.name for path in Path("/sys/class/net").iterdir()}
    return {name for name in names if not name.startswith("hd")}


@pytest.mark.parametrize("kind", [*WALLED, "processes"])
def test_killing_the_world_leaves_nothing(kind: str, tmp_path: Path) -> None:
    """SIGKILL to the controller of eight hosts full of processes that do not want to die."""
    need(kind)
    tmp_path.chmod(0o755)
    before = links()
    words = [sys.executable, "-m", "tests.integration.killed_controller", kind, str(tmp_path / "w")]
    top = Path(__file__).parents[2]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=top) as controller:
        assert controller.stdout is not None
        pids = [int(word) for word in controller.stdout.readline().split()]
        assert len(pids) > 8, "the hosts are up and busy"
        controller.kill()
    mark = "--doomed-hosts-of-a-test"

    def none_left() -> bool:
        left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        lines = [command(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
        return not left and not any(mark.encode() in line for line in lines)

    assert asyncio.run(becomes(none_left))
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert links() == before


def command(path: Path) -> bytes:
    """What it says, nothing when it is gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
