"""Collects what hosts and scripts do over time, and hands it on every ten seconds.

Hosts push samples, and scripts report steps; the last of each in a few seconds is kept, whatever a
host sends. The store works in a thread: the loop only fills dictionaries. Samples are no facts that
a plan depends on: when they can't be kept, they are lost, and people are told.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from tpuherd.clock import Clock
from tpuherd.engine.host_messages import InvalidMessage, SampleMessage, parse_message
from tpuherd.errors import HerdError
from tpuherd.model.observed import HostRun, HostStatus, RunState
from tpuherd.model.samples import STEP, STEP_RATE, ChipSample, HostSample, SeriesName

WRITE_S = 10.0
SAMPLE_S_MIN = 5.0  #: between two samples of a host; agents leave at least 10 s
REPORT_S_MIN = 1.0  #: between two kept reports of a slot, as long as few slots report
FEW_SLOTS = 50
OLDER_MAX = 20_000  #: values that wait for the next write
RATE_S = 5.0  #: a step rate is measured over at least this time
LEADER_S = 60.0  #: another host's reports count after a silence of the first one
NAMES_MAX = 200  #: remembered for a slot
SAME_S = 60.0  #: between two points of a value that does not change
FORGET_S = 3600.0  #: hosts and slots that are silent for this long

Json = Mapping[str, Any]
Value = tuple[SeriesName, float, float]


class SampleKeeper(Protocol):
    """Keeps samples; may take its time, and may raise HerdError."""

    async def put_samples(
        self, hosts: Collection[HostSample], values: Collection[Value]
    ) -> None: ...

    async def forget_jobs(self, jobs: Collection[str]) -> None: ...


class BlockingKeeper(Protocol):
    """The same as calls that block: store/sample_store.py."""

    def put_samples(self, hosts: Iterable[HostSample], values: Iterable[Value]) -> None: ...

    def forget_jobs(self, jobs: Collection[str]) -> None: ...


class ThreadedKeeper:
    """Calls a blocking keeper in a thread."""

    def __init__(self, keeper: BlockingKeeper) -> None:
        self.keeper = keeper

    async def put_samples(self, hosts: Collection[HostSample], values: Collection[Value]) -> None:
        await asyncio.to_thread(self.keeper.put_samples, hosts, values)

    async def forget_jobs(self, jobs: Collection[str]) -> None:
        await asyncio.to_thread(self.keeper.forget_jobs, jobs)


class SampleSink(Protocol):
    """Takes what a watcher of a host hears."""

    def begin_link(self, host: str) -> None: ...

    def take_sample(self, status: HostStatus, slot: str, event: Json) -> None: ...

    def take_report(self, status: HostStatus, slot: str, run: HostRun) -> None: ...


class IgnoreSamples:
    """Takes nothing."""

    def begin_link(self, host: str) -> None:
        return

    def take_sample(self, status: HostStatus, slot: str, event: Json) -> None:
        return

    def take_report(self, status: HostStatus, slot: str, run: HostRun) -> None:
        return


IGNORE_SAMPLES = IgnoreSamples()


class NoKeeper:
    """Keeps nothing."""

    async def put_samples(self, hosts: Collection[HostSample], values: Collection[Value]) -> None:
        return

    async def forget_jobs(self, jobs: Collection[str]) -> None:
        return


@dataclass(kw_only=True, slots=True)
class SlotReports:
    """What is known of a slot's reports."""

    leader: tuple[str, int]  #: the first host that reports: all hosts of a gang report the same
    heard_at: float
    kept_at: float = -inf
    attempt: str = ""
    step: int = 0  #: the first of those over which the rate is measured, with its time
    step_at: float = 0.0
    last_step: int = -1
    values: dict[str, tuple[float, float]] = field(default_factory=dict)

    def note_value(self, name: str, value: float, now: float) -> bool:
        """Whether to keep a value: reports repeat those that a script sends more rarely."""
        kept = self.values.get(name)
        if kept is not None and kept[0] == value and now < kept[1] + SAME_S:
            return False
        if len(self.values) >= NAMES_MAX:
            self.values.clear()
        self.values[name] = (value, now)
        return True

    def is_news(self, run: HostRun) -> bool:
        """Whether the attempt that was followed has a later step now."""
        return run.attempt == self.attempt and run.step is not None and run.step > self.last_step


class SampleCollector:
    """Holds what came in since the last write."""

    def __init__(
        self, keeper: SampleKeeper, clock: Clock, raise_alarm: Callable[..., None]
    ) -> None:
        self._keeper = keeper
        self._clock = clock
        self._raise_alarm = raise_alarm
        self._hosts: dict[str, HostSample] = {}
        self._values: dict[SeriesName, Value] = {}
        self._older: list[Value] = []  #: of slots that report more often than we write
        self._sampled_at: dict[str, float] = {}
        self._slots: dict[str, SlotReports] = {}
        self._gone: frozenset[str] = frozenset()

    def begin_link(self, host: str) -> None:
        """Expect a sample at once: behind a new link may be a new agent."""
        self._sampled_at.pop(host, None)

    def take_sample(self, status: HostStatus, slot: str, event: Json) -> None:
        """Take what a host sent; InvalidMessage if it makes no sense or comes too often."""
        now = self._clock.now()
        if now < self._sampled_at.get(status.name, -inf) + SAMPLE_S_MIN:
            raise InvalidMessage(f"its samples come more often than every {SAMPLE_S_MIN:g} s")
        self._sampled_at[status.name] = now
        self._hosts[status.name] = parse_sample(event, status.name, slot, now)

    def take_report(self, status: HostStatus, slot: str, run: HostRun) -> None:
        """Take the latest that a script has reported; of an ended one, its last step once."""
        now = self._clock.now()
        who = (status.node, status.worker)
        known = self._slots.get(slot)
        has_ended = run.word in (RunState.ENDED, RunState.LOST)
        if has_ended and (known is None or not known.is_news(run)):
            return
        if known is None or now > known.heard_at + LEADER_S:
            known = self._slots[slot] = SlotReports(leader=who, heard_at=now)
        if who > known.leader:
            return
        known.leader, known.heard_at = who, now
        if not has_ended and now < known.kept_at + (
            REPORT_S_MIN if len(self._slots) <= FEW_SLOTS else RATE_S
        ):
            return
        job = slot.rpartition("-")[0]
        values = dict(run.metrics)
        rate = measure_rate(known, run, now)
        if run.step is not None:
            known.last_step = run.step
            values[STEP] = float(run.step)
        if rate is not None:
            values[STEP_RATE] = rate
        for name, value in values.items():
            if name != STEP_RATE and not known.note_value(name, value, now):
                continue
            known.kept_at = now  # a report without news does not delay the next one
            title = SeriesName(job=job, slot=slot, name=name)
            if title in self._values and len(self._older) < OLDER_MAX:
                self._older.append(self._values[title])
            self._values[title] = (title, now, value)

    def forget_jobs(self, jobs: Collection[str]) -> None:
        """Have the samples of jobs that were removed long ago deleted."""
        self._gone |= frozenset(jobs)

    async def write_periodically(self) -> None:
        while True:
            await self._clock.sleep(WRITE_S)
            hosts, values = list(self._hosts.values()), [*self._older, *self._values.values()]
            gone, self._gone = self._gone, frozenset()
            self._hosts, self._values, self._older = {}, {}, []
            self._drop_silent()
            try:
                if hosts or values:
                    await self._keeper.put_samples(hosts, values)
                if gone:
                    await self._keeper.forget_jobs(gone)
            except HerdError as error:
                self._raise_alarm(error.sentence, hint=error.hint)

    def _drop_silent(self) -> None:
        """Forget hosts and slots that are silent for long."""
        before = self._clock.now() - FORGET_S
        self._sampled_at = {host: at for host, at in self._sampled_at.items() if at > before}
        self._slots = {slot: one for slot, one in self._slots.items() if one.heard_at > before}


def parse_sample(event: Json, host: str, slot: str, now: float) -> HostSample:
    """Parse what a host sent. Its time is ours: a host's clock may be wrong."""
    found = parse_message(SampleMessage, event)
    pairs = [found.ram, *((used, total) for used, total, _ in found.chips)]
    for pair in pairs:
        if pair is not None and None not in pair and pair[0] > pair[1]:  # type: ignore[operator]
            raise InvalidMessage("a sample: more memory is used than there is")
    if found.disk is not None and found.disk[0] > found.disk[1]:
        raise InvalidMessage("a sample: more of the disk is free than there is")
    ram, disk, net = (
        found.ram or (None, None),
        found.disk or (None, None),
        found.net or (None, None),
    )
    return HostSample(
        host=host,
        job=slot.rpartition("-")[0],
        slot=slot,
        at=now,
        cpu_percent=found.cpu,
        ram_used=ram[0],
        ram_total=ram[1],
        disk_free=disk[0],
        disk_total=disk[1],
        net_in=net[0],
        net_out=net[1],
        chips=tuple(
            ChipSample(hbm_used=used, hbm_total=total, duty_percent=duty)
            for used, total, duty in found.chips
        ),
        why=found.why,
    )


def measure_rate(known: SlotReports, run: HostRun, now: float) -> float | None:
    """Return the steps per second since the last measurement; None if it is too early to say."""
    if run.step is None:
        return None
    if known.attempt != run.attempt or run.step < known.step:
        known.attempt, known.step, known.step_at = run.attempt, run.step, now
        return None
    passed_s = now - known.step_at
    if run.step == known.step or passed_s < RATE_S:
        return None
    rate = (run.step - known.step) / passed_s
    known.step, known.step_at = run.step, now
    return rate
