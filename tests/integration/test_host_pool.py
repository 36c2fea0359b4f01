"""The host pool keeps hosts as their views say, and reports what happens to them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.running_hosts import WALLED, becomes, host_rig, need, run, trouble, view
from tpuherd_sim.hosts import channel
from tpuherd_sim.hosts.host_protocols import Host, WorldApi
from tpuherd_sim.hosts.syscalls import child_processes, process_family

pytestmark = pytest.mark.real
EVERY = (*WALLED, "processes")
REBOOT_CALL = "python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x1234567)'"


@pytest.fixture(params=EVERY)
def mode(request: pytest.FixtureRequest) -> str:
    kind = str(request.param)
    need(kind)
    return kind


@pytest.fixture(params=WALLED)
def walled(request: pytest.FixtureRequest) -> str:
    kind = str(request.param)
    need(kind)
    return kind


def test_the_best_mode_is_used_and_missing_features_are_named() -> None:
    possible = [kind for kind in EVERY if trouble(kind) is None]

    async def story() -> None:
        async with host_rig(None) as here:
            assert here.pool.mode == possible[0]
            assert here.pool.missing == []

    asyncio.run(story())


def test_an_unchanged_request_changes_nothing(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            first = await here.apply(view(0), view(1))
            assert await here.apply(view(0), view(1)) == first
            assert sorted(here.reports_log.reports) == [("a-0", "up", 0), ("a-1", "up", 0)]

    asyncio.run(story())


def test_power_off_ends_everything_at_once_and_is_not_reported(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            stubborn = "trap '' TERM HUP INT; (setsid setsid nohup sleep 60 >&- 2>&- &) ; sleep 60"
            working = asyncio.create_task(run(host, stubborn))
            room = here.pool.entries["a-0"].running
            assert room is not None and await becomes(lambda: bool(room.jobs))
            assert await here.change("a-0", on=False) is None
            assert host.gone.is_set() and (await working).code == -signal.SIGKILL
            with pytest.raises(OSError):  # whichever
                await host.ensure_account("alice")
            assert here.reports_log.reports == [("a-0", "up", 0)]
            assert await here.change("a-0", on=True, boot=1) is not None
            assert here.reports_log.reports[1:] == [("a-0", "up", 1)]

    asyncio.run(story())


def test_a_host_says_that_it_shuts_down(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            ask, jobs = "systemctl is-system-running", "systemctl list-jobs"
            assert (await run(host, ask)).text == "running"
            for reboot, target in ((False, "poweroff.target"), (True, "reboot.target")):
                await host.terminate_all(reboot=reboot)
                assert (await run(host, ask)).text == "stopping"
                assert (await run(host, jobs)).text == target
            await here.change("a-0", on=False)
            again = await here.change("a-0", on=True, boot=1)
            assert again is not None and (await run(again, ask)).text == "running"

    asyncio.run(story())


@pytest.mark.parametrize("how", ["sudo reboot", "sudo shutdown -r now", "sudo systemctl reboot"])
def test_a_reboot_from_inside_is_reported_and_keeps_the_disk(walled: str, how: str) -> None:
    async def story() -> None:
        async with host_rig(walled) as here:
            (host,) = await here.apply(view())
            await host.ensure_account("alice")
            boot_id = "cat /proc/sys/kernel/random/boot_id"
            before = (await run(host, boot_id)).text
            assert (await run(host, boot_id)).text == before
            folders = "stat -c '%n %i' ~/a ~/b ~/c"
            numbers = await run(host, f"mkdir ~/c ~/b ~/a; {folders}", "alice")
            await run(host, "echo kept > ~/kept; touch /tmp/lost /run/lost; reboot", "alice")
            if walled == "namespaces-root":
                assert (await run(host, "true")).code == 0, "only root may reboot"
                await run(host, how, "alice")
            await here.reports_log.wait_for_report("a-0", "rebooted", 0)
            assert host.gone.is_set()
            again = await here.change("a-0", boot=1)
            assert again is not None
            assert (await run(again, boot_id)).text not in ("", before)
            assert (await run(again, "cat ~/kept; ls /tmp; ls /run/lost", "alice")).text[
                :4
            ] == "kept"
            assert (await run(again, "test -e /tmp/lost -o -e /run/lost")).code == 1
            assert await run(again, folders, "alice") == numbers, "a disk keeps its inodes"

    asyncio.run(story())


@pytest.mark.needs("python3")
def test_other_ends_are_reported_as_what_they_are(walled: str) -> None:
    async def story() -> None:
        async with host_rig(walled) as here:
            one, two = await here.apply(view(0), view(1))
            await run(one, REBOOT_CALL)
            await here.reports_log.wait_for_report("a-0", "rebooted", 0)
            await run(two, "poweroff")
            await here.reports_log.wait_for_report("a-1", "off", 0)
            await here.pool.apply_views(dict(here.views))
            assert not here.pool.hosts, "neither starts again before the world says so"
            assert here.pool.zygote is not None

    asyncio.run(story())


def test_a_host_that_dies_by_accident_is_reported_as_failed(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            assert here.pool.zygote is not None
            (init,) = child_processes(here.pool.zygote.pid)
            os.kill(init, signal.SIGKILL)
            await here.reports_log.wait_for_report("a-0", "failed", 0)
            assert host.gone.is_set()

    asyncio.run(story())


def test_a_hung_host_does_not_answer_but_can_be_killed(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            host, other = await here.apply(view(0), view(1))
            monkeypatch.setattr(channel, "ANSWER_S", 1.0)
            await here.change("a-0", hung=True)
            with pytest.raises(TimeoutError, match="no response"):
                await host.ensure_account("alice")
            assert (await other.ensure_account("alice")).name == "alice"
            await here.change("a-0", hung=False)
            assert (await host.ensure_account("bob")).name == "bob"
            await here.change("a-0", hung=True)
            await here.change("a-0", on=False)
            assert host.gone.is_set()

    asyncio.run(story())


def test_the_network_goes_down_slow_and_up(walled: str) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with host_rig(walled) as here:
            one, other = await here.apply(view(0), view(1))
            with await other.open_listener("0.0.0.0", 7000) as listener:

                async def megabyte() -> float:
                    """How long a megabyte takes from one host to the other."""
                    with await one.connect("10.128.0.3", 7000) as end:
                        met, _ = await loop.sock_accept(listener)
                        with met:
                            start = loop.time()
                            sending = asyncio.create_task(loop.sock_sendall(end, bytes(1 << 20)))
                            left = 1 << 20
                            while left:
                                left -= len(await loop.sock_recv(met, 1 << 16))
                            await sending
                            return loop.time() - start

                assert await megabyte() < 0.5
                await here.change("a-1", network="slow")
                assert await megabyte() > 0.5
                await here.change("a-1", network="down")
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await megabyte()
                await here.change("a-1", network="up")
                async with asyncio.timeout(15):
                    assert await megabyte() < 0.5

    asyncio.run(story())


def test_a_deleted_node_loses_its_disks(walled: str) -> None:
    async def story() -> None:
        async with host_rig(walled) as here:
            (host,) = await here.apply(view())
            await run(host, "echo mine > /root/mine")
            await here.pool.apply_views({"a-0": None})
            assert host.gone.is_set() and not here.pool.entries
            (fresh,) = await here.apply(view())
            assert (await run(fresh, "cat /root/mine")).code == 1

    asyncio.run(story())


def test_services_live_as_long_as_their_host(mode: str) -> None:
    lives: list[tuple[str, str]] = []

    @asynccontextmanager
    async def services(host: Host, _: WorldApi) -> AsyncIterator[None]:
        lives.append(("begin", host.view.key))
        with await host.open_listener("127.0.0.1", 8431):
            yield
        lives.append(("end", host.view.key))

    async def story() -> None:
        async with host_rig(mode, services=services) as here:
            await here.apply(view(0), view(1))
            assert sorted(lives) == [("begin", "a-0"), ("begin", "a-1")]
            await here.change("a-0", on=False)
            assert await becomes(lambda: lives[-1] == ("end", "a-0"))
        assert lives[-1] == ("end", "a-1")

    asyncio.run(story())


def test_the_death_of_the_zygote_is_survived(mode: str) -> None:
    async def story() -> None:
        async with host_rig(mode) as here:
            (host,) = await here.apply(view())
            busy = asyncio.create_task(run(host, "trap '' TERM HUP; sleep 60"))
            room = here.pool.entries["a-0"].running
            assert room is not None and await becomes(lambda: bool(room.jobs))
            assert here.pool.zygote is not None
            everybody = process_family(here.pool.zygote.pid)
            assert len(everybody) >= 3
            here.pool.zygote.kill()
            await here.reports_log.wait_for_report("a-0", "failed", 0)
            assert host.gone.is_set() and (await busy).code == -signal.SIGKILL
            assert await becomes(
                lambda: not any(Path(f"/proc/{pid}").exists() for pid in everybody)
            )
            assert await here.change("a-0", boot=1) is not None

    asyncio.run(story())


def test_a_slow_machine_still_ends_all_hosts(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that was not answered in time ended the world, or was never given again."""
    monkeypatch.setattr(channel, "ANSWER_S", 0.2)

    async def story() -> None:
        async with host_rig(mode) as here:
            await here.apply(view(0), view(1))
            assert here.pool.zygote is not None
            os.kill(here.pool.zygote.pid, signal.SIGSTOP)
            try:
                ending = asyncio.create_task(here.pool.apply_views({"a-0": None, "a-1": None}))
                assert await becomes(lambda: len(here.pool.missing) > 0)
            finally:
                os.kill(here.pool.zygote.pid, signal.SIGCONT)
            async with asyncio.timeout(20):
                await ending
            assert here.pool.hosts == {} and here.pool.entries == {}
            assert "no response to kill within 0.2 s" in " ".join(here.pool.missing)

    asyncio.run(story())


def test_a_lying_init_is_not_believed(walled: str) -> None:
    """Root of a host can do as its init likes: what comes from there is checked."""

    async def story() -> None:
        async with host_rig(walled) as here:
            host, other = await here.apply(view(0), view(1))
            room = here.pool.entries["a-0"].running
            assert room is not None
            lies: list[dict[str, object]] = [
                {"event": "exit", "pid": "x"},
                {"id": 9},
                {"event": []},
                {},
            ]
            for lie in lies:
                room.channel.handle_message(dict(lie), [os.open(os.devnull, os.O_RDONLY)])
            assert (await run(host, "echo still here")).text == "still here"
            room.channel.close()
            await here.reports_log.wait_for_report("a-0", "failed", 0)
            assert (await run(other, "echo here too")).text == "here too"

    asyncio.run(story())


def test_many_requests_at_once(walled: str) -> None:
    async def story() -> None:
        async with host_rig(walled) as here:
            views = [
                replace(view(index % 4, f"s{index // 4}"), key=f"k-{index}") for index in range(24)
            ]
            assert len(await here.apply(*views)) == 24
            assert len(here.reports_log.reports) == 24
            await here.pool.apply_views({each.key: replace(each, on=False) for each in views})
            assert not here.pool.hosts

    asyncio.run(story())


def test_an_unusable_folder_is_an_error(tmp_path: Path) -> None:
    if trouble("namespaces-user") is not None:
        pytest.skip("no namespaces here")
    nowhere = tmp_path / "file"
    nowhere.touch()

    async def story() -> None:
        with pytest.raises(OSError, match="exists"):
            async with host_rig("namespaces-user") as here:
                here.pool.folder = nowhere
                await here.pool.end_zygote()
                await here.pool.ensure_zygote()

    asyncio.run(story())
