"""The SSH servers of all hosts: an address for each."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from tpuherd.clock import Clock, WallClock
from tpuherd_sim.hosts.host_protocols import Host, WorldApi
from tpuherd_sim.model.host_view import HostView
from tpuherd_sim.ssh.host_keys import delete_host_key, host_key
from tpuherd_sim.ssh.host_listener import HostListener, ListenState, listen_state


class SshServer:
    """All listeners of a world. Call `apply_views` whenever views or running hosts changed."""

    def __init__(
        self,
        world_api: WorldApi,
        port: int,
        hosts: Callable[[str], Host | None],
        keys_folder: Path,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.world_api = world_api
        self.port = port
        self.hosts = hosts
        self.keys_folder = keys_folder
        self.clock = clock or WallClock()
        self.listeners: dict[str, HostListener] = {}

    async def apply_views(self, views: Mapping[str, HostView | None]) -> None:
        """Make the addresses of these hosts match their views; None means the node is deleted."""
        failed = []

        async def match_one(key: str, view: HostView | None) -> None:
            try:
                await self.apply_view(key, view)
            except OSError as error:
                failed.append(f"{view.name if view else key}: {error.strerror or error}")

        await asyncio.gather(*(match_one(key, view) for key, view in views.items()))
        if failed:
            raise OSError(
                f"can't listen for SSH to some hosts on port {self.port} ({'; '.join(failed)});"
                " choose another port with --ssh-port"
            )

    async def apply_view(self, key: str, view: HostView | None) -> None:
        host = self.hosts(key)
        wanted = listen_state(view, host)
        listener = self.listeners.get(key)
        if listener is not None and (wanted is ListenState.SHUT or listener.host is not host):
            del self.listeners[key]
            await listener.close()
            listener = None
        if view is None:
            delete_host_key(self.keys_folder, key)
        if wanted is ListenState.SHUT or view is None or host is None:
            return
        address = (view.external_ip, self.port) if view.external_ip else None
        if listener is not None:
            listener.set_state(wanted, address)
            return
        listener = self.listeners[key] = HostListener(self.world_api, key, host, self.clock)
        await listener.open(host_key(self.keys_folder, key))
        try:
            listener.set_state(wanted, address)
        finally:
            await listener.open_inside()

    async def close(self) -> None:
        listeners, self.listeners = list(self.listeners.values()), {}
        await asyncio.gather(*(listener.close() for listener in listeners))
