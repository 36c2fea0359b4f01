"""The guest agent of a host: host keys, accounts, startup and shutdown scripts."""

import asyncio
import json
import os
from pathlib import Path
from urllib.parse import quote

from tpuherd.clock import Clock
from tpuherd_sim.hosts.host_protocols import Host, Process, Program, WorldApi
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.ssh.authorized_keys import PATH, parse_environment
from tpuherd_sim.ssh.host_keys import public_host_key
from tpuherd_sim.ssh.session import read_text
from tpuherd_sim.tpu.metadata_replies import find_entry

ROOT_HOME = "/root"
SHUTDOWN_S = 20.0  #: the shutdown script's share of the 30 s that a preempted VM has
RETRY_S = 5.0  #: until the next call to a host that did not respond


class GuestAgent:
    """Does from outside what Google's guest agent does inside a VM."""

    def __init__(self, host: Host, world_api: WorldApi, keys_folder: Path, clock: Clock) -> None:
        self.host = host
        self.world_api = world_api
        self.keys_folder = keys_folder
        self.clock = clock
        self.key = host.view.key
        self.accounts: set[str] = set()
        self.soft_off = host.view.soft_off

    async def run(self) -> None:
        """Start at boot and apply every change until the host ends."""
        self.publish_host_key()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.run_startup_script())
            while True:
                if await self.apply_changes():
                    await self.world_api.wait_for_change(self.key)
                else:
                    await self.clock.sleep(RETRY_S)

    def publish_host_key(self) -> None:
        """Publish the host's name and key unless the world already knows them."""
        kind, public = public_host_key(self.keys_folder, self.key)
        known = find_entry(
            self.world_api.metadata_tree(self.key), ["instance", "guest-attributes", "hostkeys"]
        )
        for name, value in ((kind, public), ("hostname", self.host.view.name)):
            if known is not None and known.value.get(name) == value:
                continue
            self.world_api.handle_request(
                Request(
                    method="PUT",
                    path=f"/sim/v1/hosts/{self.key}/guest-attributes/hostkeys/{quote(name)}",
                    body=json.dumps({"value": value}).encode(),
                )
            )

    async def apply_changes(self) -> bool:
        """Apply the latest change; return False if the host did not respond."""
        try:
            view = self.world_api.host_view(self.key)
            if view is not None and view.soft_off > self.soft_off:
                self.soft_off = view.soft_off
                await self.shut_down(view.shutdown_script, reboot=view.restarting)
            for name in set(self.world_api.login_keys(self.key)) - self.accounts:
                await self.make_account(name)
        except OSError:
            return False
        return True

    async def make_account(self, name: str) -> None:
        """Create a login. A name that the host refuses is not tried again."""
        try:
            await self.host.ensure_account(name)
        except TimeoutError:
            raise
        except OSError:
            pass
        self.accounts.add(name)

    async def run_startup_script(self) -> None:
        """Run the user's startup script, as at every boot."""
        try:
            process = await self.start_script("startup-script", self.host.view.startup_script)
            if process is not None:
                await process.wait()
        except OSError:
            return  # the host ended, or its root user broke its files

    async def shut_down(self, script: str | None, *, reboot: bool) -> None:
        """Run the shutdown script, then send SIGTERM to all processes."""
        process = await self.start_script("shutdown-script", script)
        if process is not None:
            try:
                async with asyncio.timeout(SHUTDOWN_S):
                    await process.wait()
            except TimeoutError:
                pass
        await self.host.terminate_all(reboot=reboot)

    async def start_script(self, name: str, content: str | None) -> Process | None:
        """Start a script as root; its output goes to a log file."""
        if not content:
            return None
        file = f"/run/google-{name}"
        await self.host.write(file, content.encode(), 0o755)
        environment = parse_environment(await read_text(self.host, "/etc/environment"))
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            return await self.host.spawn_program(
                Program(
                    # A script without #! is taken for one of bash's, as Google's agent does.
                    argv=["bash", "-c", f"{file} >>/var/log/{name}.log 2>&1"],
                    executable="/bin/bash",
                    env={"PATH": PATH, "HOME": ROOT_HOME, "USER": "root", **environment},
                    directory="/",
                ),
                (nothing, nothing, nothing),
            )
        finally:
            os.close(nothing)
