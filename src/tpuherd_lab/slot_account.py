"""Books every second of a run of our engine, from what really happened to its nodes and script."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd_lab import policy_run
from tpuherd_lab.capacity import Capacity
from tpuherd_lab.policy_run import Recovery
from tpuherd_lab.trace_cloud import TraceNode
from tpuherd_lab.training_gang import GangRun
from tpuherd_lab.training_progress import TrainingProgress

#: The engine's events that show that it knows of an end.
NOTICED = frozenset(("bid.lost", "bid.notice_received", "attempt.ended", "attempt.stopping"))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """What happened in one run, by the traces' time."""

    length_s: float
    runs: Sequence[GangRun]  #: all attempts, in order
    nodes: Mapping[str, TraceNode]
    progress: TrainingProgress
    any_zone: Capacity  #: of the allowed ones
    events: Sequence[HistoryEvent]
    began_at: float  #: when the traces begin, by the events' clock


def book_time(facts: RunFacts) -> tuple[float, dict[str, float], tuple[Recovery, ...], float]:
    """Return the productive seconds, the others by bucket, the recoveries and the work lost."""
    badput = dict.fromkeys(policy_run.BUCKETS, 0.0)
    losses: list[Recovery] = []
    noticed = [one.at - facts.began_at for one in facts.events if one.kind in NOTICED]
    last: GangRun | None = None
    gap_at, spans = 0.0, facts.progress.spans
    stepping = [run for run in facts.runs if run.stepped_at < inf]
    for run, span in zip(stepping, spans, strict=True):
        book_gap(facts, badput, gap_at, last, run)
        if last is not None and last.node != run.node:
            losses.append(recovery_of(facts, noticed, gap_at, run))
        badput[policy_run.SAVE] += span.blocked_s
        gap_at, last = span.end, run
    if gap_at < facts.length_s:
        book_gap(facts, badput, gap_at, last, None)
    lost_s = 0.0
    for before, after in pairwise(spans):
        lost_s += before.reached_s - after.resumed_s
    badput[policy_run.WASTED] = lost_s
    productive_s = spans[-1].reached_s if spans else 0.0
    return productive_s, badput, tuple(losses), lost_s


def book_gap(
    facts: RunFacts,
    badput: dict[str, float],
    start: float,
    last: GangRun | None,
    run: GangRun | None,
) -> None:
    """Book the time without steps from `start` to the first step of `run`."""
    end = facts.length_s if run is None else run.stepped_at
    begun = end if run is None else min(end, run.started_at)
    if run is not None and last is not None and run.node == last.node:
        badput[policy_run.HUNG if last.hung_at < inf else policy_run.DOWN] += begun - start
        badput[policy_run.RESTART] += end - begun
        return
    ready = end
    if run is not None:
        ready = min(max(start, facts.nodes[run.node].ready_at or start), begun)
    there_s = facts.any_zone.up_between(start, ready)
    if last is None:
        badput[policy_run.QUEUE] += ready - start
    else:
        badput[policy_run.CONTROLLER] += there_s
        badput[policy_run.CAPACITY] += ready - start - there_s
    badput[policy_run.SETUP] += begun - ready
    badput[policy_run.RESTART] += end - begun


def recovery_of(facts: RunFacts, noticed: list[float], lost_at: float, run: GangRun) -> Recovery:
    ready_at = max(lost_at, facts.nodes[run.node].ready_at or lost_at)
    index = bisect_left(noticed, lost_at)
    return Recovery(
        lost_at=lost_at,
        detected_at=noticed[index] if index < len(noticed) else None,
        replaced_at=ready_at,
        first_step_at=run.stepped_at,
        without_capacity_s=ready_at - lost_at - facts.any_zone.up_between(lost_at, ready_at),
    )
