"""Services of a host as programs inside see them: metadata, guest agent, packages, metrics."""

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.world import client
from tests.integration.plain_host import PlainWorld
from tests.integration.running_hosts import Ran, becomes, need, run, view
from tpuherd_sim.host_services.all_services import ServiceSettings, run_host_services
from tpuherd_sim.host_services.packages import PackageSources
from tpuherd_sim.hosts.host_pool import HostPool, PoolSettings
from tpuherd_sim.hosts.host_protocols import Host
from tpuherd_sim.model.host_view import HostView

pytestmark = [pytest.mark.real, pytest.mark.needs("curl")]

ASK = "curl -sS -H 'Metadata-Flavor: Google' http://metadata.google.internal/computeMetadata/v1"


@dataclass(frozen=True, kw_only=True)
class Served:
    """A host with all that serves it."""

    host: Host
    world: PlainWorld
    pool: HostPool

    async def run(self, script: str, user: str = "root") -> Ran:
        return await run(self.host, script, user)

    def told(self, path: str) -> list[Any]:
        return [json.loads(one.body) for one in self.world.told if one.path.endswith(path)]


@asynccontextmanager
async def served(
    mode: str,
    folder: Path,
    view: HostView,
    *,
    offers: tuple[Path, ...] = (),
    **around: Any,
) -> AsyncIterator[Served]:
    world = PlainWorld(view, {"alice": (), "bob": ()})
    world.tree = {
        "instance": {"attributes": {"tpu-env": "A: 'b'\n"}, "name": view.name, "preempted": "FALSE"}
    }
    surroundings = ServiceSettings(keys_folder=folder / "keys", **around)
    make = PoolSettings(
        mode=mode, offers=offers, services=partial(run_host_services, settings=surroundings)
    )
    with tempfile.TemporaryDirectory(prefix="hosts-") as ground:
        Path(ground).chmod(0o755)
        pool = HostPool(world, Path(ground), make)
        await pool.start()
        try:
            await pool.apply_views({view.key: view})
            yield Served(host=pool.hosts[view.key], world=world, pool=pool)
        finally:
            await pool.close()


def story(mode: str, folder: Path, work: Callable[[Served], Awaitable[None]], **more: Any) -> None:
    async def whole() -> None:
        seen = more.pop("view", view())
        async with served(mode, folder, seen, **more) as here:
            await work(here)

    asyncio.run(whole())


def test_metadata(mode: str, tmp_path: Path) -> None:
    async def work(here: Served) -> None:
        assert (await here.run(f"{ASK}/instance/name")).text == view().name
        assert (await here.run(f"{ASK}/instance/attributes/tpu-env")).text == "A: 'b'"
        bare = ASK.replace("-H 'Metadata-Flavor: Google'", "-o /dev/null -w '%{http_code}'")
        assert (await here.run(f"{bare}/instance/name")).text == "403"
        several = await here.run(f"{ASK}/instance/{{name,preempted}} -w ' %{{num_connects}};'")
        assert several.text == f"{view().name} 1;FALSE 0;"
        put = f"{ASK}/instance/guest-attributes/mine/state -X PUT --data-binary 'a b'"
        assert (await here.run(f"{put} -w '%{{http_code}}'")).text == "200"
        assert here.told("guest-attributes/mine/state") == [{"value": "a b"}]
        date = "-o /dev/null -D - | grep Date"
        before = parsedate_to_datetime((await here.run(f"{ASK}/ {date}")).text[6:])
        here.world.change(clock_skew_s=-86_400.0)
        after = parsedate_to_datetime((await here.run(f"{ASK}/ {date}")).text[6:])
        assert 86_000 < (before - after).total_seconds() < 86_401

    story(mode, tmp_path, work)


def test_a_change_is_delivered_at_once(mode: str, tmp_path: Path) -> None:
    async def work(here: Served) -> None:
        wait = f"{ASK}/instance/preempted?wait_for_change=true"
        waiting = asyncio.create_task(
            here.run(
                f"curl --max-time 60 {wait[4:]!r}".replace("'", "")
                if False
                else f"{ASK}'/instance/preempted?wait_for_change=true'"
            )
        )
        await becomes(lambda: len(here.world.waiting) > 1)  # the agent waits, too
        assert not waiting.done()
        here.world.tree["instance"]["name"] = "something else"
        here.world.touch()
        await becomes(lambda: len(here.world.waiting) > 1)
        here.world.tree["instance"]["preempted"] = "TRUE"
        here.world.touch()
        assert (await waiting).text == "TRUE"
        stale = await here.run(f"{ASK}'/instance/preempted?wait_for_change=true&last_etag=0'")
        assert stale.text == "TRUE"
        late = await here.run(f"{ASK}'/instance/preempted?wait_for_change=true&timeout_sec=1'")
        assert late.text == "TRUE"

    story(mode, tmp_path, work)


def test_the_guest_agent(mode: str, tmp_path: Path) -> None:
    begin = "#!/bin/sh\necho started as $(id -u)\nsetsid sleep 300 &\n"
    end = "echo ending; touch /var/tmp/ending\n"

    async def work(here: Served) -> None:
        (key,) = here.told("guest-attributes/hostkeys/ssh-ed25519")
        assert re.fullmatch(r"AAAAC3NzaC1lZDI1NTE5[\w+/]+=*", key["value"])
        assert here.told("guest-attributes/hostkeys/hostname") == [{"value": view().name}]
        await here.run("until pgrep -x sleep; do sleep 0.05; done")
        assert (await here.run("cat /var/log/startup-script.log")).text == "started as 0"
        assert (await here.run("until id alice && id bob; do sleep 0.05; done")).code == 0
        trap = "trap 'echo asked; exit 5' TERM; while :; do sleep 0.05; done"
        mine = asyncio.create_task(here.run(trap, "alice"))
        await here.run("until pgrep -u alice bash; do sleep 0.05; done")
        here.world.change(soft_off=1)
        asked = await mine
        assert (asked.code, asked.text.split()[-1]) == (5, "asked")
        assert (await here.run("ls /var/tmp/ending; cat /var/log/shutdown-script.log")).text == (
            "/var/tmp/ending\nending"
        )
        assert not (await here.run("pgrep -x sleep")).text

    story(mode, tmp_path, work, view=view(startup_script=begin, shutdown_script=end, soft_off=0))


@asynccontextmanager
async def mirror() -> AsyncIterator[int]:
    """A web server of this machine."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = head.split(b"\r\n")[0] + b"\n" + b"x" * (1 << 20)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def test_packages_can_be_downloaded(tmp_path: Path) -> None:
    need("namespaces-user")

    async def whole() -> None:
        async with mirror() as port:
            packages = PackageSources(index_url=f"http://127.0.0.1:{port}/simple")
            async with served("namespaces-user", tmp_path, view(), packages=packages) as here:
                fetch = "curl -sS -x http://169.254.169.254:3128"
                url = f"http://127.0.0.1:{port}/simple/x"
                got = await here.run(f"{fetch} {url} 2>&- | head -1")
                assert got.text == "GET /simple/x HTTP/1.1"
                assert (await here.run(f"{fetch} -p {url} | wc -c")).text == str((1 << 20) + 23)
                for other in (
                    "http://127.0.0.1:80/",
                    "http://169.254.169.254/",
                    "http://10.0.0.1/",
                ):
                    said = await here.run(f"{fetch} -i {other}")
                    assert "403" in said.text and "private network" in said.text
                said = await here.run(f"{fetch} -i http://93.184.216.34:25/")
                assert "only ports 80 and 443" in said.text
                said = await here.run(f"curl -sS --max-time 5 {url}")
                assert said.code == 7  # but through the proxy there is no way out
                conf = (await here.run("cat /etc/pip.conf; git config --system http.proxy")).text
                assert conf.count("http://169.254.169.254:3128") == 2

    asyncio.run(whole())


def test_no_internet(mode: str, tmp_path: Path) -> None:
    async def work(here: Served) -> None:
        said = await here.run("curl -sSi -x http://169.254.169.254:3128 https://packages.example/")
        assert "--no-internet" in said.text

    story(mode, tmp_path, work, internet=False)


SHAPES = {
    "v6e-8": ("vfio", "0x006f", 8, 8, "31.25 GiB"),
    "v5litepod-4": ("vfio", "0x0063", 4, 4, "16.00 GiB"),
    "v4-8": ("accel", "0x005e", 4, 4, "32.00 GiB"),
    "v3-8": ("accel", "0x0027", 4, 8, "16.00 GiB"),
}


@pytest.mark.heavy
@pytest.mark.parametrize("kind", SHAPES)
def test_tpu_info(kind: str, tmp_path: Path) -> None:
    need("namespaces-user")
    device, pci, chips, devices, total = SHAPES[kind]
    program = client("inside").with_name("tpu-info")

    async def work(here: Served) -> None:
        idle = (await here.run(f"COLUMNS=160 {program}")).text
        assert "Libtpu metrics unavailable" in idle, idle
        node = "/dev/vfio/0" if device == "vfio" else "/dev/accel0"
        hog = f"exec 9<{node}; a=$(head -c 99000000 /dev/zero | tr '\\0' x); while :; do :; done"
        busy = asyncio.create_task(here.run(hog))
        await becomes(lambda: not busy.done())
        await here.run(f"until ls -l /proc/[0-9]*/fd | grep -q {node}; do sleep 0.1; done; sleep 1")
        table = (await here.run(f"COLUMNS=160 {program}")).text
        rows = re.findall(rf"(\d+\.\d+) GiB / {total} *[|│] *(\d+\.\d+)%", table)
        assert len(rows) == devices, table
        assert float(rows[0][0]) >= 0.05, table
        assert float(rows[0][1]) > 10, table
        for metric in ("hlo_queue_size", "hlo_exec_timing", "tensorcore_idle_duration"):
            said = (await here.run(f"COLUMNS=160 {program} --metric {metric}")).text
            assert "rror" not in said and "unavailable" not in said, said
        busy.cancel()

    what = view(accelerator=kind, chips=chips, device=device, pci=pci)
    story("namespaces-user", tmp_path, work, view=what, offers=(program.parents[1],))
