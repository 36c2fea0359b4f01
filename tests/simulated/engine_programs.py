"""Training programs of virtual hosts: gangs that step together, save, crash, hang, or continue."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

SIBLINGS_S = 4.0  #: how long the others take to notice that one of the gang is gone
MEET_S = 240.0  #: how long a program waits for its gang
KILL, TERM = 9, 15


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """At which step of an attempt a worker's program crashes, and how."""

    step: int = 2
    worker: int = 0
    exit: int = 1
    line: str = "ValueError: the loss is not a number"


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """What the command of a job does on the hosts of its slots."""

    steps: int = 12
    step_s: float = 5.0
    save_every: int = 3
    save_s: float = 2.0  #: until a checkpoint is durable
    block_s: float = 0.0  #: in which it stands still for one
    init_s: float = 8.0  #: until the first step
    later_init_s: float | None = None  #: the same from the second attempt on
    startup: Mapping[str, float] = field(default_factory=dict)  #: what it reports of its start
    tells_saves: bool = False  #: it reports what its checkpoints cost
    setup_s: float = 5.0
    setup_fails: int = 0  #: so many times on every slot
    on_term: str = "save"  #: save (JAX's sync point: all exit 0), die, or ignore
    crashes: Mapping[int, Crash] = field(default_factory=dict)  #: by number of the attempt
    hangs: Mapping[int, int] = field(default_factory=dict)  #: number to step
    chips_s: float = 0.0  #: how long the chips stay in use after the end
    daemons: int = 0  #: processes left behind that only KILL ends
    says_complete: bool = True
    chips_busy_on: tuple[str, ...] = ()  #: nodes whose chips never come up, by pattern
    reports: bool = True  #: it tells its steps
    tells_total: bool = False  #: and how many there are in all
    metric: str = ""  #: and how well it does: by its HERD_PARAM_LR, and better with each step


@dataclass(kw_only=True)
class Bucket:
    """What is durable whatever becomes of hosts: by run, the last step that was saved."""

    saved: dict[str, int] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)  #: when a slot's run was complete
    worked: dict[str, int] = field(default_factory=dict)  #: steps in all, repeated ones too
    live: dict[str, str] = field(default_factory=dict)  #: the attempt of each run that began last
    faults: list[str] = field(default_factory=list)  #: what must never have happened


class ProgramHost(Protocol):
    """What a process stands on: its host."""

    @property
    def name(self) -> str: ...

    @property
    def runs(self) -> bool:
        """Power, and not frozen."""
        ...

    def told(self, process: "Process", text: str) -> None: ...

    def report(self, content: dict[str, Any]) -> None: ...

    def over(self, process: "Process", exit: int | None, signal: int | None) -> None: ...


@dataclass(eq=False, kw_only=True)
class Process:
    """One leader on one host, with what it leaves behind."""

    host: ProgramHost
    work: str
    pid: int
    env: Mapping[str, str]
    script: Script
    alive: bool = True
    left: int = 0  #: daemons of it
    gang: "Gang | None" = None
    termed: bool = False

    def signal(self, number: int) -> None:
        """What the kernel does with it."""
        if not self.alive:
            return
        if number == KILL:
            self.end(None, KILL)
        elif number == TERM:
            self.termed = True
            if self.gang is not None:
                self.gang.termed(self)
            else:
                self.end(None, TERM)

    def kill_all(self) -> None:
        """KILL to all of it."""
        self.left = 0
        self.signal(KILL)

    def end(self, exit: int | None, signal: int | None = None) -> None:
        """The leader is gone."""
        if self.alive:
            self.alive = False
            self.left = self.script.daemons if self.gang is not None else 0
            self.host.over(self, exit, signal)
            if self.gang is not None:
                self.gang.missed(self)

    def vanish(self) -> None:
        """The power is off: its end is not recorded."""
        self.alive, self.left = False, 0
        if self.gang is not None:
            self.gang.missed(self)


def worker_of(process: Process) -> int:
    return int(process.env.get("HERD_WORKER", "0"))


class Gang:
    """The processes of one attempt, which step together or not at all."""

    def __init__(self, bucket: Bucket, env: Mapping[str, str], script: Script) -> None:
        self.bucket = bucket
        self.script = script
        self.run = env.get("RUN_ID") or f"{env.get('HERD_JOB')}-{env.get('HERD_SLOT')}"
        self.slot = f"{env.get('HERD_JOB')}-{env.get('HERD_SLOT')}"
        self.attempt = env.get("HERD_WORK", "")
        self.number = int(env.get("HERD_ATTEMPT", "0"))
        self.start = float(env.get("HERD_PARAM_LR", "0"))
        self.workers = int(env.get("HERD_WORKERS", "1"))
        self.members: dict[int, Process] = {}
        self.step = -1  #: not started
        self.first = 0
        self.saved = bucket.saved.get(self.run, 0)
        self.saves = 0  #: durable ones of this attempt
        self.stopping = False  #: all save at the next step and end
        self.completed = False  #: it came to its own end
        self.crashed = False  #: by its script
        self.disturbed = False  #: a TERM came before its end: then only its own word counts
        self.stepped: list[float] = []  #: when it came to its steps, by the loop's clock
        self.began = asyncio.get_running_loop().time()
        bucket.live[self.run] = self.attempt
        self._later(MEET_S, self.met)

    @property
    def alive(self) -> bool:
        """Whether any of it runs."""
        return any(one.alive for one in self.members.values())

    def is_elsewhere(self, process: Process) -> bool:
        """Whether this process has a name of its gang, and its place is on another host."""
        mine = self.members.get(worker_of(process))
        return mine is not None and mine.host is not process.host

    def join(self, process: Process) -> None:
        """One more worker is there."""
        process.gang = self
        self.members[worker_of(process)] = process
        if len(self.members) == self.workers:
            again = self.number > 1 and self.script.later_init_s is not None
            init_s = self.script.later_init_s if again else self.script.init_s
            self._later(init_s or 0.0, self.begin)

    def met(self) -> None:
        """A program that waits too long for others gives up."""
        if self.step < 0 and len(self.members) < self.workers:
            self.fall("DEADLINE_EXCEEDED: not all workers joined the coordination service")

    def begin(self) -> None:
        """All are there: load the checkpoint, and go."""
        if self.step >= 0 or not self.whole():
            return
        for one in self.members.values():
            if any(one.host.name.startswith(node) for node in self.script.chips_busy_on):
                one.host.told(one, "The TPU is already in use by another process: vfio busy")
                one.end(1)
                return
        self.saved = self.bucket.saved.get(self.run, 0)
        self.step = self.first = self.saved
        self.say(f"resumed from step {self.saved}" if self.saved else "begins at step 0")
        self._later(self.script.step_s, self.tick)

    def whole(self) -> bool:
        """Whether all its processes are alive."""
        return len(self.members) == self.workers and all(o.alive for o in self.members.values())

    @property
    def frozen(self) -> bool:
        """Whether a host of it stands still."""
        return not all(one.host.runs for one in self.members.values())

    def tick(self) -> None:
        """One step, if no worker is missing, frozen or hung."""
        if not self.whole():
            return
        script = self.script
        hang = script.hangs.get(self.number)
        if self.frozen or (hang is not None and self.step >= hang and not self.stopping):
            self._later(script.step_s, self.tick)
            return
        self.step += 1
        self.stepped.append(asyncio.get_running_loop().time())
        self.bucket.worked[self.run] = self.bucket.worked.get(self.run, 0) + 1
        self.say(f"step {self.step}")
        over = self.step >= script.steps
        blocked_s = 0.0
        if over or self.stopping or self.step % script.save_every == 0:
            self._later(script.save_s, self.durable, self.step)
            blocked_s = script.block_s
        first = self.step == self.first + 1
        self.report({"resumed": self.first, **script.startup} if first else {})
        crash = script.crashes.get(self.number)
        if crash is not None and self.step - self.first >= crash.step:
            one = self.members[min(crash.worker, self.workers - 1)]
            one.host.told(one, crash.line)
            self.crashed = True
            one.end(crash.exit)
        elif over or self.stopping:
            self._later(script.save_s + 0.1, self.leave, over)
        else:
            self._later(script.step_s + blocked_s, self.tick)

    def durable(self, step: int) -> None:
        """A checkpoint is in the bucket, if its writers lived to see it; frozen ones write on once
        they thaw, and by then no other attempt may have begun.
        """
        if self.whole() and self.frozen:
            self._later(self.script.step_s, self.durable, step)
        elif self.whole():
            if (live := self.bucket.live[self.run]) != self.attempt:
                self.bucket.faults.append(f"{self.attempt} saves step {step}, and {live} has begun")
            self.saved = step
            self.saves += 1
            self.bucket.saved[self.run] = max(step, self.bucket.saved.get(self.run, 0))
            self.report({})

    def leave(self, over: bool) -> None:
        """All end with 0: at their end, and at the sync point after a TERM."""
        if not self.whole():
            return
        if over:
            self.completed = True
            self.bucket.finished[self.slot] = asyncio.get_running_loop().time()
            if self.script.says_complete:
                self.report({"complete": True})
        for one in list(self.members.values()):
            one.end(0)

    def termed(self, process: Process) -> None:
        """A TERM came to one of it."""
        self.disturbed = True
        how = self.script.on_term
        if how == "die" or self.step < 0 < len(self.members):
            if how != "ignore":
                process.end(None, TERM)
        elif how == "save":
            self.stopping = True

    def missed(self, process: Process) -> None:
        """One is gone: the others notice."""
        if not self.completed:
            self._later(SIBLINGS_S, self.fall, "Gloo: connection closed by peer, Socket closed")

    def fall(self, line: str) -> None:
        """All that are left end badly, but those that are frozen."""
        if self.completed or (self.whole() and self.step >= 0):
            return
        for one in list(self.members.values()):
            if one.alive and one.host.runs:
                one.host.told(one, line)
                one.end(1)

    def say(self, text: str) -> None:
        """Into every log."""
        for one in self.members.values():
            one.host.told(one, text)

    def report(self, more: dict[str, Any]) -> None:
        """The first worker tells how far it is."""
        if self.script.reports and 0 in self.members and self.members[0].host.runs:
            told = {"attempt": self.attempt, "step": self.step, "step_s": self.script.step_s}
            if self.saved:
                told["saved"] = self.saved
            if self.script.tells_saves and self.saves:
                told["saves"] = self.saves
                told["save_blocked_s"] = self.saves * self.script.block_s
                told["save_took_s"] = self.script.save_s
            if self.script.tells_total:
                told["total"] = self.script.steps
            if self.script.metric:
                told[self.script.metric] = self.start + 1.0 / (1 + self.step)
            self.members[0].host.report({**told, **more})

    def _later(self, seconds: float, work: Callable[..., None], *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, work, *arguments)
