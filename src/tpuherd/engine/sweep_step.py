"""Run each sweep's step before the planner runs."""

from collections.abc import Callable, Mapping
from functools import partial
from math import inf

from tpuherd.engine.dependencies import EngineDeps
from tpuherd.engine.desired import DesiredState
from tpuherd.engine.event_log import EventLog
from tpuherd.errors import HerdError, NotFound
from tpuherd.model.observed import ObservedState
from tpuherd.model.search import Search
from tpuherd.model.sweep_trials import Sweep, Value
from tpuherd.ports import Store
from tpuherd.sweeps.map_items import ITEM, join_items
from tpuherd.sweeps.scheduler import SweepAdvisor, SweepStep, run_step, sweeps_with_slots


def run_sweep_steps(
    parts: EngineDeps,
    desired: DesiredState,
    past: EventLog,
    observed: ObservedState,
    items: "ItemTexts",
    shout: Callable[..., None],
) -> float:
    """Run and record each sweep's step; return when to run again at the latest."""
    wake_at = inf
    if not desired.sweeps:
        return wake_at
    for job, search, slots in sweeps_with_slots(desired.sweeps, desired.desired_slots.slots):
        one = SweepStep(
            job=job,
            search=search,
            slots=slots,
            observed=observed,
            history=past.history,
            now=parts.clock.now(),
            advice=parts.advice,
        )
        try:
            if search.items:
                one.advice = SweepAdvisor(suggest=partial(suggest_item, items, job))
                check_items(one)
            run_step(one)
        except HerdError as error:  # no advice is available: keep what was decided before
            shout(f"{job}: {error.sentence}", hint=error.hint)
        past.write(one.events)
        wake_at = min(wake_at, one.wake_at)
    return wake_at


def check_items(step: SweepStep) -> None:
    """Raise if the log does not know the items of this map: then the store was lost."""
    if step.sweep.items != step.search.items:
        raise NotFound(
            "its items were lost with the store", hint="submit them again with `herd map`"
        )


def suggest_item(items: "ItemTexts", job: str, search: Search, sweep: Sweep) -> Mapping[str, Value]:
    """Return the next item of a map: the text that replaces {} in its command."""
    number = next(iter(sweep.again), sweep.made)
    return {ITEM: items.find_text(job, search.items, number)}


class ItemTexts:
    """The items of maps, read from the event log at their first use."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], dict[int, str]] = {}

    def find_text(self, job: str, digest: str, number: int) -> str:
        """Return an item; NotFound if the log does not have it."""
        key = (job, digest)
        if key not in self._known:
            others = {one: texts for one, texts in self._known.items() if one[0] != job}
            self._known = {**others, key: self._read_items(job, digest)}
        if number not in self._known[key]:
            raise NotFound(f"item {number} of {job} was lost", hint="submit it with `herd map`")
        return self._known[key][number]

    def _read_items(self, job: str, digest: str) -> dict[int, str]:
        found = self._store.read_events(job=job, kinds=("map.items",))
        return join_items((event for _, event in found), digest)
