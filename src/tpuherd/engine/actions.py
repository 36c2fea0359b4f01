"""Carry out each planned action once, and return the outcome as events."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tpuherd.catalogue import accelerators
from tpuherd.clock import Clock
from tpuherd.diagnosis.explain import name_failure
from tpuherd.engine.desired import DesiredState
from tpuherd.engine.gang_client import GangClient
from tpuherd.engine.host_failures import HostFailure, failure_message
from tpuherd.errors import HerdError, NotFound
from tpuherd.files import make_private_folder
from tpuherd.history.apply_zone_events import lifetime_env
from tpuherd.model.node_spec import LaunchSpec
from tpuherd.model.slot_history import FULL, BidRecord, History, SlotHistory
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    HistoryEvent,
    Launch,
    Prepare,
    RecordEvent,
    Slot,
    Stop,
    Withdraw,
)
from tpuherd.model.stored_job import StoredJob
from tpuherd.model.sweep_trials import Sweep
from tpuherd.planner.bid_status import host_fingerprint
from tpuherd.ports import BidRefused, CloudPort, FetchedFiles, Survey
from tpuherd.store.log_store import JOB_BYTES_MAX, JOB_LOGS_MAX, LogInfo, LogStore, log_host
from tpuherd.sweeps.trial_env import launch_spec_for_item, launch_spec_for_trial

CARD_VERSION = 1
ATTEMPT = "attempt"
LINES_MAX = 20
PATHS_MAX, PATHS_SHOWN = 100, 4  #: of fetched files, in facts and in sentences
TRIM_EVERY = 100  #: items of a map: looking at the sizes of all its logs takes long


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionContext:
    """What the actions need."""

    cloud: CloudPort
    gang_client: GangClient
    shelf: LogStore
    clock: Clock
    desired: DesiredState
    survey: Survey
    secrets: Callable[[str], Mapping[str, str]]  #: by job
    owner: str
    outputs: Path
    account: str = ""  #: ours, if others have the store, too
    history: History = field(default_factory=History)

    def new_event(self, kind: str, slot: str, **facts: Any) -> HistoryEvent:
        job = slot.rpartition("-")[0]
        return HistoryEvent(at=self.clock.now(), kind=kind, job=job, slot=slot, facts=facts)

    def desired_slot(self, name: str) -> Slot:
        """The slot as its job now describes it; raises NotFound if the job was removed."""
        slot = self.desired.desired_slots.slots.get(name)
        if slot is None:
            raise NotFound(f"the job of {name} was removed")
        return slot

    def launch_spec(self, name: str) -> LaunchSpec:
        return self.desired.launch(self.desired_slot(name))


async def ask_for_node(bench: ActionContext, ask: Ask, why: str) -> list[HistoryEvent]:
    """Ask the cloud for a node, directly or as a queued resource."""
    slot = bench.desired_slot(ask.slot)
    order = replace(bench.desired.order(slot), card=build_card(bench, ask, slot))
    try:
        await bench.cloud.submit_bid(ask, order)
    except BidRefused as no:
        hint = {"hint": no.hint} if no.hint else {}
        facts = {"bid": ask.bid, "refusal": no.refusal.value, "message": no.sentence, **hint}
        return [bench.new_event("bid.refused", ask.slot, **facts, why=no.sentence)]
    return [bench.new_event("bid.accepted", ask.slot, bid=ask.bid)]


def build_card(bench: ActionContext, ask: Ask, slot: Slot) -> Mapping[str, Any]:
    """What the resource carries so that a lost store can be rebuilt."""
    row = bench.desired.rows.get(slot.job)
    return bid_card(ask, slot, row, owner=bench.owner, now=bench.clock.now())


def bid_card(
    ask: Ask, slot: Slot, row: StoredJob | None, *, owner: str, now: float
) -> Mapping[str, Any]:
    return {
        "v": CARD_VERSION,
        "slot": slot.name,
        "job": dict(row.document) if row else {},
        "goal": slot.goal.value,
        "generation": ask.generation,
        "owner": owner,
        "node_digest": ask.node_digest,
        "code_digest": slot.code_digest,
        "snapshot": row.snapshot if row else "",
        "offer": asdict(ask.offer),
        "made_at": row.made_at if row else 0.0,
        "asked_at": now,
        **({"user": row.user} if row and row.user else {}),
    }


async def withdraw_bid(bench: ActionContext, withdraw: Withdraw, why: str) -> list[HistoryEvent]:
    """Delete its request and its nodes; the next survey shows whether they are gone."""
    await bench.cloud.withdraw_bid(withdraw, bench.survey.observations.get(withdraw.bid))
    return []


async def prepare_hosts(bench: ActionContext, prepare: Prepare, why: str) -> list[HistoryEvent]:
    """Ship the code to all hosts and run the user's setup there."""
    begun_at = bench.clock.now()
    shared: list[str] = []
    try:
        failures = await try_prepare(bench, prepare)
        if not failures:
            failures, shared = await keep_setup(bench, prepare)
    except (HerdError, OSError) as error:
        failures = [HostFailure(host=prepare.bid, sentence=str(error))]
    statuses = bench.gang_client.host_statuses().get(prepare.bid, ())
    if failures:
        hosts = [
            {"host": one.host, "exit": one.exit, "tail": list(one.tail[-LINES_MAX:])}
            for one in failures
        ]
        message = failure_message(failures)
        words = {
            "missing": all(one.missing for one in failures),
            "unfit": any(one.unfit for one in failures),
            "early": not is_ready(bench, prepare),
        }
        facts: dict[str, Any] = {"bid": prepare.bid, "message": message, "hosts": hosts}
        facts["finding"] = name_failure((one.tail, one.exit) for one in failures)
        facts |= {"why": message, **{word: True for word, holds in words.items() if holds}}
        return [bench.new_event("slot.setup_failed", prepare.slot, **facts)]
    on = [host_fingerprint(status) for status in statuses]
    took_s = round(bench.clock.now() - begun_at, 3)
    facts = {"bid": prepare.bid, "code_digest": prepare.code_digest, "hosts": on, "took_s": took_s}
    why = "all hosts have the code and are set up"
    if shared:
        names = ", ".join(shared)
        why += f"; the agent of {names} is of an earlier version: trials share what the setup made"
    return [bench.new_event("slot.prepared", prepare.slot, **facts, why=why)]


def is_ready(bench: ActionContext, prepare: Prepare) -> bool:
    """Whether the cloud has said READY of its node."""
    slot_history = bench.history.slots.get(prepare.slot, SlotHistory())
    bid = slot_history.bids.get(prepare.bid)
    return bid is None or bid.ready_at is not None


async def try_prepare(bench: ActionContext, prepare: Prepare) -> list[HostFailure]:
    """Return what failed, by host."""
    slot = bench.desired_slot(prepare.slot)
    order = bench.launch_spec(prepare.slot)
    row = bench.desired.rows.get(slot.job)
    known = bench.secrets(slot.job)
    missing = [name for name in order.secrets if name not in known]
    if missing:
        where = f" in the account of {bench.account}, whose engine leads" if bench.account else ""
        there = " there" if bench.account else ""
        names = ", ".join(missing)
        message = f"there is no value for the secret {names}{where}"
        message += f": provide it with herd run{there}"
        return [HostFailure(host=prepare.bid, sentence=message, missing=True)]
    secrets = {name: known[name] for name in order.secrets}
    last = bench.history.slots.get(prepare.slot, SlotHistory()).attempt
    if order.dest and (slot.trials or (last is not None and last.trial is not None)):
        await bench.gang_client.begin_trial(prepare.bid, prepare.slot, order.dest)
    return await bench.gang_client.prepare_hosts(
        prepare.bid, row.snapshot if row else "", order, secrets
    )


async def keep_setup(bench: ActionContext, prepare: Prepare) -> tuple[list[HostFailure], list[str]]:
    """Have each trial find what the setup made; return what failed, and which hosts cannot."""
    slot, order = bench.desired_slot(prepare.slot), bench.launch_spec(prepare.slot)
    if not slot.trials or not order.dest:
        return [], []
    return await bench.gang_client.keep_setup(prepare.bid, order.dest)


async def launch_attempt(bench: ActionContext, launch: Launch, why: str) -> list[HistoryEvent]:
    """Start the command on all hosts, or on none."""
    order, job = bench.launch_spec(launch.slot), launch.slot.rpartition("-")[0]
    life = lifetime_env(bench.history, launch.slot, launch.bid)
    # By this, what an attempt saves after its successor began is told from the run's line.
    launched = {"HERD_LAUNCHED": str(int(bench.clock.now() * 1000))}
    shape = topology_env(bench.history, launch)
    order = replace(order, env={**life, **launched, **shape, **order.env})
    sweep = bench.history.sweeps.get(job, Sweep())
    if launch.trial is not None:
        order = launch_spec_of_trial(order, sweep, launch)
    values = bench.secrets(job)
    secrets = {name: values[name] for name in order.secrets if name in values}
    write_attempt_info(bench, launch.slot, launch.attempt, launch.number, launch.bid)
    removed: list[str] = []
    if not sweep.items or (launch.trial or 0) % TRIM_EVERY == 0:
        removed = bench.shelf.trim_job(job, newest=launch.attempt)
    moved = await begin_trial(bench, launch, order)
    ended = await bench.gang_client.launch_attempt(launch, order, secrets)
    facts = {"attempt": launch.attempt, "bid": launch.bid}
    if ended:
        facts["why"] = f"ended what was left on the chips: {'; '.join(ended)}"
    started = bench.new_event("attempt.started", launch.slot, **facts)
    return [*moved, *log_removed_events(bench, job, removed), started]


def topology_env(history: History, launch: Launch) -> Mapping[str, str]:
    """How the chips of the node are connected, if its type is known: for programs that do not ask
    the host's metadata server."""
    bid = history.slots.get(launch.slot, SlotHistory()).bids.get(launch.bid)
    kind = accelerators().get(bid.offer.type) if bid is not None else None
    return {"HERD_TOPOLOGY": kind.topology} if kind is not None else {}


async def begin_trial(
    bench: ActionContext, launch: Launch, order: LaunchSpec
) -> list[HistoryEvent]:
    """Have no trial find what another one wrote; return the event of what was moved, if any."""
    if launch.trial is None or not order.dest:
        return []
    gang, run = bench.gang_client, order.trial["RUN_ID"]
    safe = gang.fetched.get(launch.bid, "")
    sweep = bench.history.sweeps.get(launch.slot.rpartition("-")[0], Sweep())
    if any(one.run == safe for one in sweep.unfinished):
        safe = ""  # it was stopped, and continues
    found = await gang.begin_trial(launch.bid, launch.slot, order.dest, run=run, safe=safe)
    gang.fetched.pop(launch.bid, None)
    if not found:
        return []
    first, count = found[0], sum(one.moved for one in found)
    facts = {"bid": launch.bid, "run_id": first.trial, "folder": first.folder, "count": count}
    why = f"what {first.trial} wrote in its folder was moved to {first.folder} on the host"
    return [bench.new_event("trial.files_moved", launch.slot, **facts, why=why)]


def launch_spec_of_trial(order: LaunchSpec, sweep: Sweep, launch: Launch) -> LaunchSpec:
    """The launch spec of a sweep's trial, or of a map's item."""
    trial = None if launch.trial is None else sweep.find_trial(launch.trial)
    if trial is None:
        raise NotFound(f"{launch.slot} works on trial {launch.trial}, which is over")
    fill = launch_spec_for_item if sweep.items else launch_spec_for_trial
    return fill(order, trial)


def log_removed_events(
    bench: ActionContext, job: str, removed: list[str]
) -> Iterator[HistoryEvent]:
    """An event for each log that was removed because the job's logs exceed their limit."""
    most = f"{JOB_BYTES_MAX >> 30} GiB of {JOB_LOGS_MAX:,} attempts"
    why = f"the logs of {job} exceed the {most} that are kept on this machine"
    for log in removed:
        slot = f"{job}-{log.removeprefix(f'{job}-').partition('-')[0]}"
        yield bench.new_event("log.removed", slot, log=log, why=f"{why}: the oldest are deleted")


def write_attempt_info(
    bench: ActionContext, slot: str, attempt: str, number: int, bid: str
) -> None:
    """Write the attempt's description beside its log, unless one is there."""
    known, places = (
        bench.shelf.find_log(attempt),
        tuple(log_host(host) for host in bench.cloud.bid_hosts(bid)),
    )
    if known is not None and set(places) <= set(known.places):
        return  # on other hosts it is another attempt: a lost store numbers attempts from 1 again
    about = LogInfo(
        id=attempt,
        kind=ATTEMPT,
        title=slot,
        target=slot,
        started=bench.clock.now(),
        places=places,
        number=number,
    )
    write_log_info(bench, about)


def write_log_info(bench: ActionContext, about: LogInfo) -> None:
    """Write the description of a log; a full disk is ignored, because the log itself is enough."""
    try:
        bench.shelf.write_info(about)
    except OSError:
        return


async def stop_attempt(bench: ActionContext, stop: Stop, why: str) -> list[HistoryEvent]:
    """Stop with TERM, then KILL after the grace; save its stacks first if requested."""
    events = await save_stacks(bench, stop, why) if stop.stacks else []
    await bench.gang_client.halt_attempt(stop.bid, stop.attempt, stop.grace_s, why)
    return events


async def save_stacks(bench: ActionContext, stop: Stop, why: str) -> list[HistoryEvent]:
    """Save the stacks of its processes in a file."""
    found = await bench.gang_client.collect_stacks(stop.bid, stop.attempt)
    file = bench.outputs / stop.slot / f"{stop.attempt}.stacks.txt"
    try:
        make_private_folder(file.parent)
        file.write_text("\n".join(f"== {host}\n{text}" for host, text in found.items()))
    except OSError:
        return []  # the disk is full; stop the attempt anyway
    facts = {"attempt": stop.attempt, "file": str(file), "why": why}
    return [bench.new_event("attempt.stacks", stop.slot, **facts)]


async def collect_outputs(bench: ActionContext, collect: Collect, why: str) -> list[HistoryEvent]:
    """Fetch the outputs and the rest of the logs; of a node that goes, what comes in time."""
    into = bench.outputs / collect.slot / collect.attempt
    facts: dict[str, Any] = {"bid": collect.bid, "attempt": collect.attempt}
    # of a removed job, fetch only the logs
    is_desired = collect.slot in bench.desired.desired_slots.slots
    order = bench.launch_spec(collect.slot) if is_desired else None
    fetched = FetchedFiles()
    try:
        fetched, failures = await bench.gang_client.collect_outputs(
            collect.bid, order, into, collect.within_s
        )
    except OSError as error:
        message = f"{into} cannot be written ({error.strerror})"
        failures = [HostFailure(host=collect.bid, sentence=message)]
    if failures and not (fetched.came and collect.within_s is not None):
        message = failure_message(failures)
        if any(one.full for one in failures):
            facts["code"] = FULL
        return [
            bench.new_event(
                "slot.collect_failed", collect.slot, **facts, message=message, why=message
            )
        ]
    if order is not None and order.outputs and not (fetched.cut_off or failures):
        note_fetched_trial(bench, collect)
    if collect.within_s is not None:
        why = describe_files(fetched, failures)
    facts |= {"folder": str(into), "files": len(fetched.came), "bytes": fetched.bytes}
    facts |= {"paths": fetched.came[:PATHS_MAX], "cut_off": fetched.cut_off[:PATHS_MAX]}
    return [bench.new_event("slot.collected", collect.slot, **facts, why=why)]


def describe_files(fetched: FetchedFiles, failures: list[HostFailure]) -> str:
    """What came from a node that goes away, and what was cut off."""
    many = len(fetched.came)
    said = f"{many} output{'s' if many != 1 else ''} came before the node went"
    if many:
        said += f": {list_paths(fetched.came)}"
    if fetched.cut_off:
        said += f"; cut off: {list_paths(fetched.cut_off)}"
    return f"{said}; {failure_message(failures)}" if failures else said


def list_paths(paths: list[str]) -> str:
    rest = len(paths) - PATHS_SHOWN
    return ", ".join(paths[:PATHS_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def note_fetched_trial(bench: ActionContext, collect: Collect) -> None:
    """Remember whose outputs have come: what else that trial wrote goes when another one begins.

    An engine that is restarted meanwhile leaves the files on the host."""
    attempt = bench.history.slots.get(collect.slot, SlotHistory()).attempt
    sweep = bench.history.sweeps.get(collect.slot.rpartition("-")[0], Sweep())
    if attempt is None or attempt.id != collect.attempt or attempt.trial is None:
        return
    trial = sweep.find_trial(attempt.trial)
    if trial is not None:
        bench.gang_client.fetched[collect.bid] = trial.run


def record_attempt(bench: ActionContext, record: RecordEvent) -> None:
    """Note the start or the end of an attempt beside its log."""
    event, facts = record.event, record.event.facts
    if event.kind == "attempt.launched":  # it was found running after the store was lost
        write_attempt_info(bench, event.slot, facts[ATTEMPT], facts["number"], facts["bid"])
    elif event.kind == "attempt.ended":
        about = bench.shelf.find_log(facts[ATTEMPT])
        if about is not None:
            write_log_info(bench, replace(about, ended=event.at, status=facts.get("exit")))


ActionFunction = Callable[[ActionContext, Any, str], Coroutine[Any, Any, list[HistoryEvent]]]
ACTION_FUNCTIONS: Mapping[type[Any], ActionFunction] = {
    Ask: ask_for_node,
    Withdraw: withdraw_bid,
    Prepare: prepare_hosts,
    Launch: launch_attempt,
    Stop: stop_attempt,
    Collect: collect_outputs,
}


async def check_creation(bench: ActionContext, bid: BidRecord) -> list[HistoryEvent]:
    """Look in the operation for a refusal of a creation that no list shows."""
    no = await bench.cloud.find_refusal(bid.name, bid.offer)
    if no is None:
        return []
    facts = {"refusal": no.refusal.value, "message": no.sentence, "why": no.sentence}
    return [bench.new_event("bid.refused", bid.slot, bid=bid.name, **facts)]
