"""One function an action: it is done once, and what came of it is events."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tpuherd.clock import Clock
from tpuherd.engine.desired import Desired
from tpuherd.engine.gang_client import Crew, Failure, sentence
from tpuherd.engine.host_watcher import place
from tpuherd.errors import HerdError, NotFound
from tpuherd.history.apply_zone_events import lived
from tpuherd.model.node_spec import LaunchOrder
from tpuherd.model.slot_history import Bid, Trails
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    Event,
    Launch,
    Prepare,
    Record,
    Slot,
    Stop,
    Withdraw,
)
from tpuherd.planner.bid_status import mark
from tpuherd.ports import CloudPort, Refused, Survey
from tpuherd.store.log_store import JOB_BYTES_MAX, About, Shelf
from tpuherd.sweeps.trial_env import of_trial

CARD_VERSION = 1
ATTEMPT = "attempt"
LINES_MAX = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What is at hand when something is done."""

    cloud: CloudPort
    crew: Crew
    shelf: Shelf
    clock: Clock
    desired: Desired
    survey: Survey
    secrets: Callable[[str], Mapping[str, str]]  #: by job
    owner: str
    outputs: Path
    trails: Trails = field(default_factory=Trails)

    def event(self, kind: str, slot: str, **facts: Any) -> Event:
        """Something that has happened just now."""
        job = slot.rpartition("-")[0]
        return Event(at=self.clock.now(), kind=kind, job=job, slot=slot, facts=facts)

    def slot(self, name: str) -> Slot:
        """As it is wished now."""
        slot = self.desired.wishes.slots.get(name)
        if slot is None:
            raise NotFound(f"nobody wishes {name} any more")
        return slot

    def order(self, name: str) -> LaunchOrder:
        """What runs there."""
        return self.desired.launch(self.slot(name))


async def ask(bench: Bench, ask: Ask, why: str) -> list[Event]:
    """A node, or a request for one."""
    slot = bench.slot(ask.slot)
    order = replace(bench.desired.order(slot), card=card(bench, ask, slot))
    try:
        await bench.cloud.ask(ask, order)
    except Refused as no:
        hint = {"hint": no.hint} if no.hint else {}
        facts = {"bid": ask.bid, "refusal": no.refusal.value, "sentence": no.sentence, **hint}
        return [bench.event("bid.refused", ask.slot, **facts, why=no.sentence)]
    return [bench.event("bid.answered", ask.slot, bid=ask.bid)]


def card(bench: Bench, ask: Ask, slot: Slot) -> Mapping[str, Any]:
    """By which a lost store is rebuilt."""
    row = bench.desired.rows.get(slot.job)
    return {
        "v": CARD_VERSION,
        "slot": slot.name,
        "job": dict(row.document) if row else {},
        "goal": slot.goal.value,
        "generation": ask.generation,
        "owner": bench.owner,
        "node_digest": ask.node_digest,
        "code_digest": slot.code_digest,
        "snapshot": row.snapshot if row else "",
        "offer": asdict(ask.offer),
        "made_at": row.made_at if row else 0.0,
        "asked_at": bench.clock.now(),
    }


async def withdraw(bench: Bench, withdraw: Withdraw, why: str) -> list[Event]:
    """Its request and its nodes. That it is gone the next survey tells."""
    await bench.cloud.withdraw(withdraw, bench.survey.sights.get(withdraw.bid))
    return []


async def prepare(bench: Bench, prepare: Prepare, why: str) -> list[Event]:
    """The code on all hosts, and the user's setup."""
    try:
        failures = await prepared(bench, prepare)
    except (HerdError, OSError) as error:
        failures = [Failure(host=prepare.bid, sentence=str(error))]
    words = bench.crew.words().get(prepare.bid, ())
    if failures:
        hosts = [
            {"host": one.host, "exit": one.exit, "tail": list(one.tail[-LINES_MAX:])}
            for one in failures
        ]
        said = sentence(failures)
        missing = {"missing": True} if all(one.missing for one in failures) else {}
        facts = {"bid": prepare.bid, "sentence": said, "hosts": hosts, "why": said, **missing}
        return [bench.event("slot.unprepared", prepare.slot, **facts)]
    on = [mark(word) for word in words]
    facts = {"bid": prepare.bid, "code_digest": prepare.code_digest, "on": on}
    return [bench.event("slot.prepared", prepare.slot, **facts, why=why)]


async def prepared(bench: Bench, prepare: Prepare) -> list[Failure]:
    """What went wrong, by host."""
    slot = bench.slot(prepare.slot)
    order = bench.order(prepare.slot)
    row = bench.desired.rows.get(slot.job)
    known = bench.secrets(slot.job)
    missing = [name for name in order.secrets if name not in known]
    if missing:
        said = f"there is no value for the secret {', '.join(missing)}: say it by herd run again"
        return [Failure(host=prepare.bid, sentence=said, missing=True)]
    secrets = {name: known[name] for name in order.secrets}
    return await bench.crew.prepare(prepare.bid, row.snapshot if row else "", order, secrets)


async def launch(bench: Bench, launch: Launch, why: str) -> list[Event]:
    """The command on all hosts, or on none."""
    order, job = bench.order(launch.slot), launch.slot.rpartition("-")[0]
    order = replace(order, env={**lived(bench.trails, launch.slot, launch.bid), **order.env})
    if launch.trial is not None:
        order = of_trial(order, bench.trails.sweeps[job].trials[launch.trial])
    values = bench.secrets(job)
    secrets = {name: values[name] for name in order.secrets if name in values}
    describe(bench, launch.slot, launch.attempt, launch.number, launch.bid)
    removed = bench.shelf.trim(job, newest=launch.attempt)
    await bench.crew.launch(launch, order, secrets)
    started = bench.event("attempt.started", launch.slot, attempt=launch.attempt, bid=launch.bid)
    return [*removals(bench, job, removed), started]


def removals(bench: Bench, job: str, removed: list[str]) -> Iterator[Event]:
    """Logs that were removed here since those of their job were too much."""
    why = f"the logs of {job} are more than the {JOB_BYTES_MAX >> 30} GiB that are kept here"
    for log in removed:
        slot = f"{job}-{log.removeprefix(f'{job}-').partition('-')[0]}"
        yield bench.event("log.removed", slot, log=log, why=f"{why}: the oldest are removed")


def describe(bench: Bench, slot: str, attempt: str, number: int, bid: str) -> None:
    """Write down beside its log what an attempt is, unless that is there."""
    known, places = bench.shelf.of(attempt), tuple(place(host) for host in bench.cloud.hosts(bid))
    if known is not None and set(places) <= set(known.places):
        return  # on other hosts it is another attempt: a lost store counts from 1 again
    about = About(
        id=attempt,
        kind=ATTEMPT,
        title=slot,
        target=slot,
        started=bench.clock.now(),
        places=places,
        number=number,
    )
    write_down(bench, about)


def write_down(bench: Bench, about: About) -> None:
    """For those who look for logs; where the disk is full the log says enough by itself."""
    try:
        bench.shelf.put(about)
    except OSError:
        return


async def stop(bench: Bench, stop: Stop, why: str) -> list[Event]:
    """TERM, grace, KILL, chips free; its stacks before, if they are wanted."""
    events = await stacks(bench, stop, why) if stop.stacks else []
    await bench.crew.halt(stop.bid, stop.attempt, stop.grace_s, why)
    return events


async def stacks(bench: Bench, stop: Stop, why: str) -> list[Event]:
    """What its processes were doing, as a file."""
    found = await bench.crew.stacks(stop.bid, stop.attempt)
    file = bench.outputs / stop.slot / f"{stop.attempt}.stacks.txt"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text("\n".join(f"== {host}\n{text}" for host, text in found.items()))
    except OSError:
        return []  # the disk is full; it is stopped all the same
    facts = {"attempt": stop.attempt, "file": str(file), "why": why}
    return [bench.event("attempt.stacks", stop.slot, **facts)]


async def collect(bench: Bench, collect: Collect, why: str) -> list[Event]:
    """Outputs and the rest of the logs."""
    into = bench.outputs / collect.slot / collect.attempt
    facts: dict[str, Any] = {"bid": collect.bid, "attempt": collect.attempt}
    wished = collect.slot in bench.desired.wishes.slots  # of a dropped job only logs are wanted
    order = bench.order(collect.slot) if wished else None
    try:
        failures = await bench.crew.collect(collect.bid, order, into)
    except OSError as error:
        said = f"{into} can't be written ({error.strerror})"
        failures = [Failure(host=collect.bid, sentence=said)]
    if failures:
        said = sentence(failures)
        return [bench.event("slot.uncollected", collect.slot, **facts, sentence=said, why=said)]
    return [bench.event("slot.collected", collect.slot, **facts, into=str(into), why=why)]


def record(bench: Bench, record: Record) -> None:
    """It is written down already; what begins and ends attempts also stands beside their logs."""
    event, facts = record.event, record.event.facts
    if event.kind == "attempt.launched":  # it was found running: the store had been lost
        describe(bench, event.slot, facts[ATTEMPT], facts["number"], facts["bid"])
    elif event.kind == "attempt.ended":
        about = bench.shelf.of(facts[ATTEMPT])
        if about is not None:
            write_down(bench, replace(about, ended=event.at, status=facts.get("exit")))


Deed = Callable[[Bench, Any, str], Coroutine[Any, Any, list[Event]]]
DEEDS: Mapping[type[Any], Deed] = {
    Ask: ask,
    Withdraw: withdraw,
    Prepare: prepare,
    Launch: launch,
    Stop: stop,
    Collect: collect,
}


async def outcome(bench: Bench, bid: Bid) -> list[Event]:
    """Of a creation that shows nothing: the refusal stands in its operation."""
    no = await bench.cloud.outcome(bid.name, bid.offer)
    if no is None:
        return []
    facts = {"refusal": no.refusal.value, "sentence": no.sentence, "why": no.sentence}
    return [bench.event("bid.refused", bid.slot, bid=bid.name, **facts)]
