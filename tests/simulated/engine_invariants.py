"""What must hold at every moment of every history, and at its end."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulated.engine_hosts import Machine
from tests.simulated.engine_jobs import slot_name
from tests.simulated.engine_world import ApiRequest, SimulatedCloud, ours
from tpuherd.model.slot_history import SILENT, Verdict
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, Slot
from tpuherd.model.sweep_trials import Sweep
from tpuherd.model.trouble import STORE
from tpuherd.store.set_aside import SET_ASIDE
from tpuherd_sim.model.records import HOLDING

CREATES_PER_MIN = 60
READS_PER_MIN = 60
SPARE_S = 420.0  #: how long a slot may have more than it needs: a delete takes up to 120 s, and
#: a queued resource that suspends can't be deleted for 90 s
THAWED_S = 45.0  #: until an engine hears again of a host that was frozen
USER_CHANGES = ("job.changed", "job.stopped", "job.removed")
PENDING = frozenset({"CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES"})


@dataclass(kw_only=True)
class Watch:
    """Looks on, and writes down what must not be."""

    sim: SimulatedCloud
    slots: Mapping[str, Slot] = field(default_factory=dict)  #: of the submitted jobs
    spare_s: float = SPARE_S
    bystanders: frozenset[str] = frozenset()  #: nodes of other owners
    faults: list[str] = field(default_factory=list)
    spare_since: dict[str, float] = field(default_factory=dict)
    creates: deque[float] = field(default_factory=deque)
    reads: deque[float] = field(default_factory=deque)

    def asked(self, asked: ApiRequest) -> None:
        """An engine asks something of the world."""
        if asked.creates:
            self.count(self.creates, asked.at, CREATES_PER_MIN, "creates")
            slot = slot_name(asked.name)
            if not ours(asked.name) or slot not in self.slots:
                self.say(f"{asked.name} is created, and no job wants it")
        elif asked.reads:
            self.count(self.reads, asked.at, READS_PER_MIN, "reads")
        elif asked.method == "DELETE":
            self.deleted(asked)

    def count(self, times: deque[float], now: float, most: int, what: str) -> None:
        """At most this many a minute."""
        times.append(now)
        while times[0] <= now - 60.0:
            times.popleft()
        if len(times) > most:
            self.say(f"{len(times)} {what} in a minute")

    def deleted(self, asked: ApiRequest) -> None:
        """Is something deleted that is wanted and works?"""
        if not ours(asked.name):
            self.say(f"{asked.name} is deleted, and is not ours")
            return
        slot = self.slots.get(slot_name(asked.name))
        if slot is None or slot.goal is Goal.GONE or slot.name in self.sim.fleet.bucket.finished:
            return
        members = self.members(asked.name)
        gangs = {
            process.gang
            for machine in members
            for process in machine.processes.values()
            if process.alive and process.gang is not None and not process.termed
        }
        well = members and all(machine.answers and not warned(machine) for machine in members)
        well = well and all(asked.at > machine.thawed_at + THAWED_S for machine in members)
        if gangs and well and self.healthy(asked.name):
            self.say(f"{asked.name} is deleted while {[g.attempt for g in gangs if g]} works on it")

    def members(self, name: str) -> list[Machine]:
        """The hosts of a bid, or of a node."""
        return [
            machine
            for machine in self.sim.machines()
            if machine.view.node == name or machine.view.node.startswith(f"{name}-")
        ]

    def healthy(self, name: str) -> bool:
        """Whether the cloud itself finds nothing wrong with it."""
        nodes = [n for n in self.sim.world.nodes.values() if n.id.startswith(name)]
        return all(node.state == "READY" and node.health == "HEALTHY" for node in nodes)

    def look(self) -> None:
        """Every few seconds."""
        now = self.sim.clock.now()
        held: dict[str, int] = {}
        for node in self.sim.world.nodes.values():
            if ours(node.id) and node.state in HOLDING and node.state != "DELETING":
                slot = slot_name(node.id)
                held[slot] = held.get(slot, 0) + 1
        for slot, many in held.items():
            one = self.slots.get(slot)
            wanted = one.nodes if one is not None and one.goal is not Goal.GONE else 0
            if many <= wanted:
                self.spare_since.pop(slot, None)
            elif now - self.spare_since.setdefault(slot, now) > self.spare_s:
                self.say(f"{slot} has {many} nodes and wants {wanted}, for {self.spare_s:.0f} s")
                self.spare_since[slot] = now
        for slot in set(self.spare_since) - set(held):
            del self.spare_since[slot]
        for fault in self.sim.fleet.bucket.faults:
            self.say(fault)
        self.sim.fleet.bucket.faults.clear()

    def say(self, fault: str) -> None:
        """It must not be."""
        self.faults.append(f"{self.sim.now():.1f} s: {fault}")


def warned(machine: Machine) -> bool:
    """Whether the host knows that it will go."""
    deadly = machine.news.get("preempted") == "TRUE"
    maintained = machine.news.get("maintenance-event") not in (None, "NONE", "")
    return deadly or maintained or machine.view.soft_off > 0


# ---- at the end ----------------------------------------------------------------------------------


def unmet_jobs(
    sim: SimulatedCloud, slots: Mapping[str, Slot], history: Mapping[str, Any]
) -> Iterator[str]:
    """What differs from the submitted jobs."""
    for slot in slots.values():
        nodes, requests = sim.nodes(slot.name), sim.requests(slot.name)
        slot_history = history.get(slot.name)
        finished = slot.trials or slot.name in sim.fleet.bucket.finished
        if slot.goal is Goal.RUN:
            if not finished:
                yield f"{slot.name} has not run to its end"
            if slot_history is None or slot_history.done_at is None:
                yield f"{slot.name} is not told to be done"
            if (nodes or requests) and not slot.limits.done_keep_s:
                yield f"{slot.name} is done and has {nodes} {requests}"
        elif slot.goal is Goal.IDLE:
            ready = [name for name, state in nodes.items() if state == "READY"]
            if len(ready) != slot.nodes or len(nodes) != slot.nodes:
                yield f"{slot.name} should have a node, and has {nodes}"
            elif len(requests) > 1:
                yield f"{slot.name} should have a node, and has {requests}"
        elif nodes or requests:
            yield f"{slot.name} should be gone, and has {nodes} {requests}"


def missing_trials(slots: Iterable[Slot], sweeps: Mapping[str, Sweep]) -> Iterator[str]:
    """Unfinished trials of submitted sweeps, and items of maps."""
    wanted = {slot.job: slot for slot in slots if slot.trials and slot.goal is not Goal.GONE}
    for job, slot in wanted.items():
        sweep = sweeps.get(job, Sweep())
        yield from (f"trial {one.number} of {job} {one.status_word}" for one in sweep.unfinished)
        if slot.items and not sweep.is_over:
            yield f"the map {job} has items left"
        if not sweep.made:
            yield f"{job} has no trials"


def wrong_trials(events: list[HistoryEvent]) -> Iterator[str]:
    """Trials that ended twice, or were given to a slot while another had them."""
    at: dict[tuple[str, int], str] = {}
    for event in events:
        if event.kind in ("job.submitted", "map.started"):
            at = {key: where for key, where in at.items() if key[0] != event.job}
        elif event.kind == SET_ASIDE:
            at = {}  # trials whose lines were lost are tried again
        elif event.kind in ("trial.assigned", "trial.waiting", "trial.ended"):
            key = (event.job, int(event.facts["trial"]))
            before, now = at.get(key, "waiting"), event.kind.removeprefix("trial.")
            if before == "ended" or (before == "assigned" and now == "assigned"):
                yield f"trial {key[1]} of {key[0]} is {now} after it was {before}"
            at[key] = now


def wrong_choices(events: list[HistoryEvent]) -> Iterator[str]:
    """A node that is set up and sound is given back, and one whose hosts are silent is kept."""
    prepared, silent = set[tuple[str, str]](), set[tuple[str, str]]()
    told = {event.job for event in events if event.kind in USER_CHANGES}
    for event in events:
        kind, node = event.kind, (event.slot, str(event.facts.get("bid")))
        if kind == "slot.prepared":
            prepared.add(node)
        elif kind == "bid.unhealthy":
            prepared.discard(node)
            silent |= {node} if event.facts.get("code") == SILENT else set()
        elif kind == "bid.healthy" and event.facts.get("code") == SILENT:
            silent.discard(node)
        elif kind in ("bid.lost", "bid.notice_received", "bid.withdrawn"):
            silent.discard(node)
            kept = [bid for slot, bid in silent if slot == event.slot]
            if kind == "bid.withdrawn" and node in prepared and kept and event.job not in told:
                yield f"{node[1]} is given back, and {kept} is kept, which is silent"
            prepared.discard(node)
        elif kind in ("slot.done", "slot.gave_up"):
            prepared = {one for one in prepared if one[0] != event.slot}


def written_late(event: HistoryEvent) -> bool:
    """What the log holds later than it happened: stacks until all is stopped, and that the disk
    was full or the store could not be used until the engine can write it; a user may be quicker.
    """
    failed = event.kind == "engine.problem" and event.facts.get("code") == STORE
    return failed or event.kind == "attempt.stacks"


def wrong_verdicts(sim: SimulatedCloud, events: list[HistoryEvent]) -> Iterator[str]:
    """Verdicts that are not what happened."""
    numbers: dict[str, list[int]] = {}
    lost = False
    shared = {event.job for event in events if event.kind.startswith(("trial.", "map."))}
    for event in events:
        if event.kind == SET_ASIDE:  # what hosts still know of is told once more
            numbers, lost = {}, True
        if event.kind == "attempt.launched":
            number = int(event.facts["number"])
            known = numbers.setdefault(event.slot, [number - 1 if lost else 0])
            if number not in (known[-1], known[-1] + 1):  # the same again is a retry
                yield f"attempt {number} of {event.slot} follows {known[-1]}"
            known.append(number)
        idle = event.job in shared  # a sweep or map has no more for it
        finished = idle or event.slot in sim.fleet.bucket.finished
        if event.kind == "slot.done" and not finished:
            yield f"{event.slot} is said to be done, and never finished"
        if event.kind != "attempt.ended":
            continue
        attempt, verdict = str(event.facts["attempt"]), event.facts["verdict"]
        gangs = sim.fleet.gangs_called(attempt)
        if verdict == Verdict.SUCCESS and not any(gang.completed for gang in gangs):
            yield f"{attempt} is called a success, and never came to its end"
        if verdict == Verdict.FAILURE and not any(gang.crashed for gang in gangs):
            yield f"{attempt} is called a failure, and its script has none there"
        over = [gang for gang in gangs if gang.completed and not gang.disturbed]
        if verdict == Verdict.STALLED and over and over == gangs:
            yield f"{attempt} is called stalled, and came to its end by itself"


def wrong_accounts(events: list[HistoryEvent], *, clock_was_set: bool) -> Iterator[str]:
    """Lines of the log that don't go together; a user's clock may have been set back."""
    asked: dict[str, object] = {}
    last = 0.0
    for event in events:
        bid = event.facts.get("bid")
        if event.kind in ("bid.requested", "bid.adopted"):
            before, asked[str(bid)] = asked.get(str(bid)), event.facts["offer"]
            if before not in (None, event.facts["offer"]):
                yield f"{bid} is asked for as something else than before"
        elif event.kind == SET_ASIDE:  # a number that was lost with its bid may come again
            asked = dict.fromkeys(asked)
            last = 0.0 if clock_was_set else last  # no one knows the times that were lost
        elif event.kind.startswith("bid.") and bid not in asked:
            yield f"{event.kind} of {bid}, which nobody asked for"
        if clock_was_set and event.kind.startswith(("job.", "attempt.launched")):
            continue  # a launch has the time at which its tick began, before the clock was set
        if event.at < last - 1.0 and not written_late(event):
            yield f"{event.kind} is {last - event.at:.1f} s older than the line before it"
        last = max(last, event.at)
