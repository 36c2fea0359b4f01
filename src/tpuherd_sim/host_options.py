"""What hosts a world has: as they were asked for, and as there are."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.request_guard import AccessGuard
from tpuherd_sim.state_dir import WorldInfo

NONE = "none"
PROCESSES = "processes"
STARTING = "starting"  #: not known yet


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOptions:
    """What a user can say about hosts."""

    hosts: str = "auto"  #: auto, namespaces, processes or none
    internet: bool = True
    offer: Path | None = None  #: a folder of this machine that hosts can read


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSetup:
    """What hosts are here."""

    mode: str = NONE
    missing: Sequence[str] = ()  #: what this machine does not give; grows with what goes wrong


@dataclass(frozen=True, kw_only=True, slots=True)
class HostEnvironment:
    """Where hosts are put."""

    desk: LiveWorld
    folder: Path
    ssh_port: int
    tell: Callable[[str], None]  #: of what goes wrong
    doorkeeper: AccessGuard


@dataclass(kw_only=True, slots=True)
class WorldStatus:
    """What the world says of itself just now."""

    facts: WorldInfo  #: without the hosts
    lodging: HostSetup

    def current_info(self) -> WorldInfo:
        """All of it."""
        found = self.lodging
        missing = (*self.facts.missing, *found.missing)
        return replace(self.facts, hosts=found.mode, missing=missing)


#: Has hosts running as long as its context lasts.
HostsRunner = Callable[[HostOptions, HostEnvironment], AbstractAsyncContextManager[HostSetup]]
