"""Which hosts a world has: as requested and as available."""

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
    """A user's options for hosts."""

    hosts: str = "auto"  #: auto, namespaces, processes or none
    internet: bool = True
    offers: tuple[Path, ...] = ()  #: folders of this machine that hosts can read


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSetup:
    """The hosts that this machine can run."""

    mode: str = NONE
    missing: Sequence[str] = ()  #: features that this machine lacks, and later problems


@dataclass(frozen=True, kw_only=True, slots=True)
class HostEnvironment:
    """What hosts need from the world that runs them."""

    live_world: LiveWorld
    folder: Path
    ssh_port: int
    tell: Callable[[str], None]  #: called with each problem
    guard: AccessGuard


@dataclass(kw_only=True, slots=True)
class WorldStatus:
    """The world's current description of itself."""

    facts: WorldInfo  #: without the hosts
    setup: HostSetup

    def current_info(self) -> WorldInfo:
        """Return the description including hosts."""
        found = self.setup
        missing = (*self.facts.missing, *found.missing)
        return replace(self.facts, hosts=found.mode, missing=missing)


#: Runs hosts for the duration of its context.
HostsRunner = Callable[[HostOptions, HostEnvironment], AbstractAsyncContextManager[HostSetup]]
