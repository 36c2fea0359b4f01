"""Jobs, nodes and hosts as metrics, in Prometheus' text format."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol

from tpuherd._version import __version__
from tpuherd.accounting.goodput import GoodputState, SlotAccount, combined_goodput
from tpuherd.model.slot_history import BidRecord, Verdict
from tpuherd.model.slots_and_plan import Goal
from tpuherd.views.job_rows import (
    StoreView,
    bid_stage,
    job_slot_names,
    slot_phase,
    total_money,
    wanted_slots,
)
from tpuherd.views.metric_table import METRICS

HOSTS_MAX = 200  #: hosts with values of their own; the others are summed
STALE_S = 900.0  #: values of a host that has been silent for longer are left out
OTHER = "other"
WAITING = frozenset({GoodputState.QUEUE_FIRST, GoodputState.CAPACITY_WAIT})
ENDED = frozenset({GoodputState.DONE, GoodputState.GAVE_UP, GoodputState.STOPPED})

Sample = tuple[str, Mapping[str, str], float]  #: the metric, its labels, its value


class ChipValues(Protocol):
    """The latest values of a chip; None: not known."""

    @property
    def hbm_used(self) -> float | None: ...
    @property
    def hbm_total(self) -> float | None: ...
    @property
    def duty_percent(self) -> float | None: ...


class HostValues(Protocol):
    """The latest values of a host; None: not known."""

    @property
    def host(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def cpu_percent(self) -> float | None: ...
    @property
    def ram_used(self) -> float | None: ...
    @property
    def disk_free(self) -> float | None: ...
    @property
    def chips(self) -> Sequence[ChipValues]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverCounts:
    """What became of the messages to one receiver."""

    sent: int = 0
    failures: int = 0
    waiting: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerFacts:
    """What the metrics say of the engine beside the jobs."""

    led_since: float | None = None  #: when the running engine took its lease
    orphans: int = 0
    receivers: Mapping[str, ReceiverCounts] = field(default_factory=dict)


def metrics_text(
    scene: StoreView,
    samples: Mapping[str, HostValues],
    now: float,
    engine: ControllerFacts = ControllerFacts(),
) -> str:
    """Return all metrics; `samples` are the latest values of each host."""
    found: dict[str, list[Sample]] = {name: [] for name in METRICS}
    for sample in (
        *engine_samples(scene, engine, now),
        *job_samples(scene, now),
        *host_samples(samples, now),
        *receiver_samples(engine),
    ):
        found[sample[0]].append(sample)
    return "".join(line for name, rows in found.items() for line in metric_lines(name, rows))


def engine_samples(scene: StoreView, engine: ControllerFacts, now: float) -> Iterator[Sample]:
    yield "tpuherd_info", {"version": __version__}, 1
    yield "tpuherd_engine_up", {}, scene.engine
    yield "tpuherd_engine_wanted", {}, needs_engine(scene)
    if scene.engine and engine.led_since is not None:
        yield "tpuherd_engine_lease_age_seconds", {}, max(0.0, now - engine.led_since)
    for trouble in scene.troubles:
        yield "tpuherd_problems", {"source": trouble.source}, 1
    yield "tpuherd_orphans", {}, engine.orphans


def needs_engine(scene: StoreView) -> bool:
    """Whether a job is to run or has nodes: without an engine, nobody looks after it."""
    if any(account.bids for account in scene.accounts.values()):
        return True
    return any(
        (account := scene.accounts.get(name)) is None or account.state not in ENDED
        for stored_job in scene.stored_jobs.values()
        if stored_job.goal is not Goal.GONE
        for name in wanted_slots(stored_job)
    )


def job_samples(scene: StoreView, now: float) -> Iterator[Sample]:
    left = {account.job for account in scene.accounts.values() if account.bids}
    for job in sorted({*scene.stored_jobs, *left}):
        names = job_slot_names(scene, job)
        accounts = [scene.accounts[name] for name in names if name in scene.accounts]
        stored_job = scene.stored_jobs.get(job)
        wanted = wanted_slots(stored_job) if stored_job else ()
        label = {"job": job}
        phases = Counter(slot_phase(scene.accounts.get(name)) for name in names)
        for phase, many in phases.items():
            yield "tpuherd_job_slots", label | {"phase": phase}, many
        yield "tpuherd_job_slots_wanted", label, len(wanted)
        limit = stored_job.document.get("max_cost") if stored_job else None
        if isinstance(limit, int | float):
            yield "tpuherd_job_cost_limit_dollars", label, limit
        yield from account_samples(label, accounts, now)


def account_samples(
    label: Mapping[str, str], accounts: Sequence[SlotAccount], now: float
) -> Iterator[Sample]:
    """What the accounts of a job's slots add up to."""
    goodput = combined_goodput(accounts)
    if goodput is not None:
        yield "tpuherd_job_goodput_ratio", label, goodput
    seconds: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for account in accounts:
        for state, time in account.seconds.items():
            seconds[str(state)] += time  # type: ignore[assignment]
        ends = (run.attempt.verdict for run in account.runs)
        verdicts.update(str(verdict) for verdict in ends if verdict is not None)
    for state_name, time in seconds.items():
        yield "tpuherd_job_state_seconds", {**label, "state": state_name}, time
    money = total_money(accounts)
    yield "tpuherd_job_cost_dollars_total", label, money["cost"]
    yield "tpuherd_job_cost_dollars_per_hour", label, money["per_hour"]
    yield from step_samples(label, accounts, now)
    for verdict, many in verdicts.items():
        yield "tpuherd_job_attempts_total", {**label, "verdict": verdict}, many
    yield "tpuherd_job_preemptions_total", label, verdicts[Verdict.PREEMPTED]
    waits = [now - since for account in accounts if (since := waiting_since(account)) is not None]
    yield "tpuherd_job_queue_wait_seconds", label, max(0.0, *waits, 0.0)
    stages = Counter(stage_word(bid) for account in accounts for bid in account.bids)
    for stage, many in stages.items():
        yield "tpuherd_nodes", {**label, "stage": stage}, many


def step_samples(
    label: Mapping[str, str], accounts: Sequence[SlotAccount], now: float
) -> Iterator[Sample]:
    for name, values in (
        ("tpuherd_job_step", [account.step for account in accounts]),
        ("tpuherd_job_saved_step", [account.saved for account in accounts]),
    ):
        known = [value for value in values if value is not None]
        if known:
            yield name, label, max(known)
    ages = [
        now - account.runs[-1].points[-1][0]
        for account in accounts
        if account.state is GoodputState.PRODUCTIVE and account.runs and account.runs[-1].points
    ]
    if ages:
        yield "tpuherd_job_last_step_age_seconds", label, max(0.0, *ages)
    yield (
        "tpuherd_job_steps_lost_total",
        label,
        sum(account.steps_lost for account in accounts),
    )


def waiting_since(account: SlotAccount) -> float | None:
    """When the slot began to wait for capacity; None if it does not wait."""
    if account.state not in WAITING or not account.spans:
        return None
    since = account.end
    for span in reversed(account.spans):
        if span.state not in WAITING:
            break
        since = span.start
    return since


def stage_word(bid: BidRecord) -> str:
    """Return its stage as one of a few words, without the cloud's own words."""
    if bid.withdrawn_at is not None:
        return "leaving"
    if bid.lost_at is not None:
        return "lost"
    if bid.refusal is not None:
        return "refused"
    word = bid_stage(bid)[0]
    known = {"notice received": "doomed", "being created": "creating"}
    return known.get(word, word.partition(" (")[0])


def host_samples(samples: Mapping[str, HostValues], now: float) -> Iterator[Sample]:
    """The values of the first hosts by name; those of all others together, by job."""
    known = [one for _, one in sorted(samples.items()) if now - one.at <= STALE_S]
    for one in known[:HOSTS_MAX]:
        label = {"job": one.job, "host": one.host}
        for place, chip in enumerate(one.chips):
            yield from chip_samples(label | {"chip": str(place)}, [chip])
        yield from machine_samples(label, [one], now)
    others = known[HOSTS_MAX:]
    yield "tpuherd_hosts_summed", {}, len(others)
    for job in sorted({one.job for one in others}):
        group = [one for one in others if one.job == job]
        label = {"job": job, "host": OTHER}
        yield from chip_samples(
            label | {"chip": OTHER}, [chip for it in group for chip in it.chips]
        )
        yield from machine_samples(label, group, now)


def chip_samples(label: Mapping[str, str], chips: Sequence[ChipValues]) -> Iterator[Sample]:
    used, total = (
        known_values(chip.hbm_used for chip in chips),
        known_values(chip.hbm_total for chip in chips),
    )
    duty = known_values(chip.duty_percent for chip in chips)
    if used:
        yield "tpuherd_chip_hbm_used_bytes", label, sum(used)
    if total:
        yield "tpuherd_chip_hbm_total_bytes", label, sum(total)
    if duty:
        yield "tpuherd_chip_duty_ratio", label, sum(duty) / len(duty) / 100


def machine_samples(
    label: Mapping[str, str], hosts: Sequence[HostValues], now: float
) -> Iterator[Sample]:
    if cpu := known_values(one.cpu_percent for one in hosts):
        yield "tpuherd_host_cpu_ratio", label, sum(cpu) / len(cpu) / 100
    if memory := known_values(one.ram_used for one in hosts):
        yield "tpuherd_host_memory_used_bytes", label, sum(memory)
    if disk := known_values(one.disk_free for one in hosts):
        yield "tpuherd_host_disk_free_bytes", label, sum(disk)
    ages = [now - at for at in known_values(one.at for one in hosts)]
    if ages:
        yield "tpuherd_host_sample_age_seconds", label, max(0.0, *ages)


def known_values(values: Iterable[float | None]) -> list[float]:
    """Return those that are numbers; hosts may report anything."""
    return [value for value in values if value is not None and isfinite(value)]


def receiver_samples(engine: ControllerFacts) -> Iterator[Sample]:
    for receiver, counts in sorted(engine.receivers.items()):
        label = {"receiver": receiver}
        yield "tpuherd_notify_sent_total", label, counts.sent
        yield "tpuherd_notify_failures_total", label, counts.failures
        yield "tpuherd_notify_waiting", label, counts.waiting


def metric_lines(name: str, samples: Sequence[Sample]) -> Iterator[str]:
    """Write one metric; nothing if it has no values."""
    if not samples:
        return
    metric = METRICS[name]
    yield f"# HELP {name} {escape_text(metric.meaning)}.\n# TYPE {name} {metric.kind}\n"
    for _, labels, value in samples:
        assert tuple(labels) == metric.labels, f"{name} has the labels {metric.labels}"
        if isfinite(value):
            pairs = ",".join(f'{key}="{escape_label(it)}"' for key, it in labels.items())
            yield (
                f"{name}{{{pairs}}} {number_text(value)}\n"
                if pairs
                else (f"{name} {number_text(value)}\n")
            )


def escape_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def escape_label(text: str) -> str:
    return escape_text(text.encode("utf-8", "replace").decode()).replace('"', '\\"')


def number_text(value: float) -> str:
    """Return the shortest text that reads as the same number."""
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
