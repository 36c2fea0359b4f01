"""Keeps the running hosts and their SSH addresses as the model wishes them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuherd.sim.desk import Desk
from tpuherd.sim.folder import Trouble
from tpuherd.sim.hosts.rack import Make, Rack
from tpuherd.sim.ssh.server import Door

NONE = "none"
PROCESSES = "processes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What a user can say about hosts."""

    hosts: str = "auto"  #: auto, namespaces, processes or none
    internet: bool = True
    offer: Path | None = None  #: a folder of this machine that hosts can read


@dataclass(frozen=True, kw_only=True, slots=True)
class Lodging:
    """What hosts are here."""

    mode: str = NONE
    missing: Sequence[str] = ()  #: what this machine does not give; grows with what goes wrong


@contextlib.asynccontextmanager
async def lodged(
    desk: Desk, wish: Wish, folder: Path, ssh_port: int, tell: Callable[[str], None]
) -> AsyncIterator[Lodging]:
    """Boot what is to run, end what is not, until the context does; then end all."""
    if wish.hosts == NONE:
        yield Lodging()
        return
    mode = PROCESSES if wish.hosts == PROCESSES else None
    rack = Rack(desk, folder / "hosts", Make(offer=wish.offer, mode=mode))
    try:
        await rack.start()
    except OSError as error:
        raise Trouble(f"Hosts can't run here ({error}): `--hosts none` does without") from error
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(rack.close)
        if wish.hosts == "namespaces" and rack.mode == PROCESSES:
            why = "; ".join(rack.missing)
            raise Trouble(f"Namespaces can't be had ({why}): `--hosts processes` does without them")
        door = Door(desk, ssh_port, rack.hosts.get, folder / "host_keys")
        stack.push_async_callback(door.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        keeper = group.create_task(keep(desk, rack, door, tell))
        yield Lodging(mode=rack.mode, missing=rack.missing)
        keeper.cancel()


async def keep(desk: Desk, rack: Rack, door: Door, tell: Callable[[str], None]) -> None:
    """Bring hosts and addresses in line whenever something of them changes."""

    async def match(keys: set[str]) -> None:
        """Booting takes its time; nobody else waits for it."""
        try:
            await rack.match({key: desk.view(key) for key in keys})
        except OSError as error:
            tell(f"a host did not do as it should ({error.strerror or error})")

    async with asyncio.TaskGroup() as group:
        keys = set(desk.views())
        while True:
            group.create_task(match(keys))
            try:
                await door.match({key: desk.view(key) for key in keys})
            except OSError as error:
                tell(str(error))
            keys = await desk.touched()
