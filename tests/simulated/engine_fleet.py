"""What virtual hosts have: a disk each, and a bucket, programs and gangs in common."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.simulated.engine_links import VirtualLink
from tests.simulated.engine_programs import Bucket, Gang, Process, Script
from tpuherd.clock import Clock
from tpuherd_host.agent.state_machine.state import Task


@dataclass(kw_only=True)
class Disk:
    """What outlives the agent, and the power too if it was written early enough."""

    works: dict[str, tuple[Task, float]] = field(default_factory=dict)  #: and since when it is safe
    before: dict[str, Task] = field(default_factory=dict)  #: what a power cut falls back to
    pids: dict[str, int] = field(default_factory=dict)
    exits: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, bytearray] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    stamps: set[str] = field(default_factory=set)
    trees: dict[str, str] = field(default_factory=dict)  #: snapshots by where they are


@dataclass(kw_only=True)
class Fleet:
    """What all machines share."""

    clock: Clock
    bucket: Bucket = field(default_factory=Bucket)
    scripts: dict[str, Script] = field(default_factory=dict)  #: by job
    gangs: dict[str, Gang] = field(default_factory=dict)  #: by attempt, the last of each name
    earlier: list[Gang] = field(default_factory=list)  #: a lost store counts attempts from 1 again
    setups: dict[str, int] = field(default_factory=dict)  #: how often each slot's has failed
    pids: int = 100
    called: Callable[[VirtualLink, bytes], bool] = lambda line, piece: True  #: may do some mischief
    #: What comes of a frame that an agent sends.
    answered: Callable[[VirtualLink, bytes], Iterable[bytes]] = lambda line, piece: (piece,)

    def script(self, job: str) -> Script:
        """What a job's command does."""
        return self.scripts.get(job) or self.scripts.get("*") or Script()

    def gang(self, process: Process) -> Gang:
        """The gang that a process belongs to."""
        env = process.env
        gang = self.gangs.get(process.work)
        if gang is not None and gang.is_elsewhere(process):
            self.earlier.append(gang)
            gang = None
        if gang is None:
            gang = self.gangs[process.work] = Gang(self.bucket, env, process.script)
            known = [*self.gangs.values(), *self.earlier]
            shared = [o for o in known if o.slot == gang.slot or o.run == gang.run]
            others = [o for o in shared if o is not gang]
            for other in others:
                rivals = [o.host.name for o in other.members.values() if o.alive]
                if rivals:
                    self.bucket.faults.append(
                        f"{gang.attempt} begins while {other.attempt} runs on {rivals}"
                    )
        return gang

    def gangs_called(self, attempt: str) -> list[Gang]:
        """All that had this name."""
        last = [self.gangs[attempt]] if attempt in self.gangs else []
        return [*(gang for gang in self.earlier if gang.attempt == attempt), *last]
