"""A host looks like a TPU VM to the programs inside and to the services outside."""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.running_hosts import becomes, host_rig, run, view
from tpuherd_sim.hosts.host_protocols import Program

pytestmark = pytest.mark.real


def test_users_have_homes_and_may_use_sudo(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            account = await host.ensure_account("alice")
            assert account == await host.ensure_account("alice")
            assert account.home == "/home/alice"
            assert (await run(host, "whoami; pwd; echo $HOME", "alice")).text.split() == [
                "alice",
                "/home/alice",
                "/home/alice",
            ]
            done = await run(
                host,
                "sudo touch /root/mine && sudo -n -E -u root cat /root/mine && sudo id -u",
                "alice",
            )
            assert done.text == "0"
            assert "FOO=bar baz" in (await run(host, "sudo FOO='bar baz' env", "alice")).text
            assert "JAX_PLATFORMS=cpu" in (await run(host, "sudo env", "alice")).text
            assert (await run(host, "sudo sh -c 'exit 7'", "alice")).code == 7
            assert "unknown user" in (await run(host, "sudo -u nobody-here id", "alice")).text
            with pytest.raises(OSError, match="not a valid user name"):
                await host.ensure_account("../etc")
            if mode == "namespaces-root":
                assert account.uid == 1001 and (await host.ensure_account("bob")).uid == 1002
                assert (await run(host, "touch /root/x || cat /etc/shadow", "alice")).code == 1
                assert "google-sudoers" in (await run(host, "id", "alice")).text
                assert (await run(host, "cat /home/bob/.bashrc", "alice")).code == 1

    asyncio.run(story())


def test_names_and_settings(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            host, other = await here.apply(view(0), view(1, accelerator="v3-32", device="accel"))
            asked = "hostname; getent hosts t1v-n-a-w-3 metadata.google.internal; cat /etc/hostname"
            assert (await run(host, asked)).text.split() == [
                "t1v-n-a-w-0",
                *("10.128.0.5", "t1v-n-a-w-3"),
                *("169.254.169.254", "metadata.google.internal", "metadata"),
                "t1v-n-a-w-0",
            ]
            settings = "echo $JAX_PLATFORMS $JAX_NUM_CPU_DEVICES; test -f $TPU_LIBRARY_PATH"
            assert (await run(host, settings)).text == "cpu 4"
            assert (await run(other, settings)).text == "cpu 8"
            ids = [(await run(each, "cat /etc/machine-id")).text for each in (host, other)]
            assert len(set(ids)) == 2 and all(re.fullmatch("[0-9a-f]{32}", one) for one in ids)

    asyncio.run(story())


def test_chips_are_on_the_bus_and_in_dev(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            new, old = await here.apply(
                view(0), view(1, accelerator="v2-32", device="accel", pci="0x0027")
            )
            bus = "/sys/bus/pci/devices"
            assert (await run(new, f"cat {bus}/*/vendor | uniq -c")).text == "4 0x1ae0"
            assert (await run(new, f"cat {bus}/*/device | uniq -c")).text == "4 0x0063"
            assert (await run(new, "cd /dev/vfio && echo *")).text == "0 1 2 3 vfio"
            groups = await run(new, f"basename -a $(readlink {bus}/*/iommu_group)")
            assert groups.text.split() == ["0", "1", "2", "3"]
            for name, value in {"device": "0x0027", "subsystem_device": "0x004e"}.items():
                assert (await run(old, f"cat {bus}/*/{name} | uniq -c")).text == f"4 {value}"
            assert (await run(old, "cat /sys/bus/pci/devices/*/class | uniq")).text == "0x120000"
            assert (await run(old, "ls -d /dev/accel*")).text.split() == [
                f"/dev/accel{chip}" for chip in range(4)
            ]

    asyncio.run(story())


def test_the_user_of_a_chip_is_shown(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            await host.ensure_account("alice")
            assert await host.chip_holders() == []
            with open(os.devnull, "r+b") as nothing:
                program = Program(
                    argv=["bash", "-c", "exec 5<>/dev/vfio/2; exec sleep 60"],
                    executable="/bin/bash",
                    user="alice",
                )
                process = await host.spawn_program(program, [nothing.fileno()] * 3)
            async with asyncio.timeout(10):
                while not (found := await host.chip_holders()):
                    await asyncio.sleep(0.01)
            assert [(each.device, each.pid) for each in found] == [("/dev/vfio/2", process.pid)]
            assert found[0].resident_bytes > 0
            await host.send_signal(process.pid, 15, whole_session=True)
            assert await process.wait() == 15
            assert await host.chip_holders() == []

    asyncio.run(story())


def test_a_terminal(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            await host.ensure_account("alice")
            script = "tty; stty size; test -O $SSH_TTY && read word && echo got $word"
            program = Program(argv=["bash", "-c", script], executable="/bin/bash", user="alice")
            process, master = await host.spawn_on_terminal(program, (33, 101, 0, 0))
            os.write(master, b"treasure\n")
            assert await process.wait() == 0
            said = heard(master).split()
            assert said[-1] == "treasure" and {"/dev/pts/0", "33", "101"} <= set(said)

    asyncio.run(story())


def heard(master: int) -> str:
    """All that a terminal showed until the last program on it ended."""
    shown = b""
    try:
        while part := os.read(master, 4096):
            shown += part
    except OSError:
        pass  # so ends a terminal
    finally:
        os.close(master)
    return shown.decode()


def test_connections_out_of_and_into_a_host(mode: str) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with host_rig(mode) as here:
            one, other = await here.apply(view(0), view(1))
            for host in (
                one,
                other,
            ):  # every host has its own loopback and its own metadata address
                for place in (("127.0.0.1", 8431), ("169.254.169.254", 80)):
                    with (
                        await host.open_listener(*place) as listener,
                        await host.connect(*place) as end,
                    ):
                        met, _ = await loop.sock_accept(listener)
                        with met:
                            await loop.sock_sendall(met, b"hello")
                            assert await loop.sock_recv(end, 9) == b"hello"
            with pytest.raises(OSError, match="resolve www"):
                await one.connect("www.example.org", 80)

    asyncio.run(story())


def test_socket_files_obey_their_owner(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            await host.ensure_account("alice")
            with await host.open_listener("/root/private.sock", 0):
                (await host.connect_unix("/root/private.sock", "root")).close()
                if mode == "namespaces-root":
                    await run(host, "chmod 700 /root /root/private.sock")
                    with pytest.raises(PermissionError):
                        await host.connect_unix("/root/private.sock", "alice")
            with pytest.raises(FileNotFoundError):
                await host.connect_unix("/run/none.sock", "root")

    asyncio.run(story())


def test_files_are_written_and_read_as_root(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            content = os.urandom(300_000)
            await host.write("/etc/deep/file", content, 0o600)
            assert await host.read("/etc/deep/file") == content
            assert (await run(host, "stat -c '%a %u' /etc/deep/file")).text == "600 0"
            with pytest.raises(FileNotFoundError):
                await host.read("/etc/none")
            with pytest.raises(OSError, match="not the requested file"):
                await host.read("/dev/zero")

    asyncio.run(story())


def test_a_command_that_cannot_start_says_so(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            with open(os.devnull, "r+b") as nothing:
                process = await host.spawn_program(
                    Program(argv=["/no/such"]), [nothing.fileno()] * 3
                )
                assert os.waitstatus_to_exitcode(await process.wait()) == 127
                with pytest.raises(FileNotFoundError, match="no user"):
                    await host.spawn_program(
                        Program(argv=["true"], user="eve"), [nothing.fileno()] * 3
                    )

    asyncio.run(story())


def test_a_shutdown_reaches_every_process(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            script = "trap 'echo told; exit 3' TERM; echo ready > /run/ready; sleep 60 & wait"
            waiting = asyncio.create_task(run(host, script))
            async with asyncio.timeout(10):
                while (await run(host, "test -s /run/ready")).code:
                    pass
            await host.terminate_all()
            done = await waiting
            assert (done.code, done.text) == (3, "told")

    asyncio.run(story())


@pytest.mark.needs("dpkg-deb", "apt-get")
def test_packages_can_be_installed_and_removed(mode: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/games").mkdir(parents=True)
    (tree / "usr/games/herd-says").write_text("#!/bin/sh\necho moo\n")
    (tree / "usr/games/herd-says").chmod(0o755)
    facts = {"Package": "herd-says", "Version": "1", "Architecture": "all",
             "Maintainer": "nobody <nobody@example.org>", "Description": "says it"}  # fmt: skip
    control = "".join(f"{name}: {value}\n" for name, value in facts.items())
    (tree / "DEBIAN/control").write_text(control)
    (tree / "DEBIAN/postinst").write_text("#!/bin/sh\nset -e\nchown root:mail /usr/games\n")
    (tree / "DEBIAN/postinst").chmod(0o755)
    tool = shutil.which("dpkg-deb")
    assert tool is not None
    package = tmp_path / "herd-says.deb"
    subprocess.run([tool, "--build", tree, package], check=True, capture_output=True)

    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            await host.ensure_account("alice")
            await host.write("/home/alice/herd-says.deb", package.read_bytes(), 0o644)
            done = await run(host, "sudo apt-get install -y ./herd-says.deb 2>&1", "alice")
            assert done.code == 0, done.text
            assert (await run(host, "herd-says", "alice")).text == "moo"
            done = await run(host, "sudo apt-get remove -y herd-says 2>&1", "alice")
            assert done.code == 0, done.text
            assert (await run(host, "command -v herd-says", "alice")).code == 1

    asyncio.run(story())
    assert not Path("/usr/games/herd-says").exists()


def test_a_host_still_answers_after_a_hundred_programs(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            done = await asyncio.gather(*(run(host, f"echo {n}; exit {n}") for n in range(100)))
            assert [(each.code, each.text) for each in done] == [(n, str(n)) for n in range(100)]
            fds = f"/proc/{os.getpid()}/fd"
            before = len(list(Path(fds).iterdir()))
            await run(host, "true")
            assert await becomes(lambda: len(list(Path(fds).iterdir())) <= before)

    asyncio.run(story())
