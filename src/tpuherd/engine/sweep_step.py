"""Run each sweep's step before the planner runs."""

from collections.abc import Callable
from math import inf

from tpuherd.engine.dependencies import EngineDeps
from tpuherd.engine.desired import DesiredState
from tpuherd.engine.event_log import EventLog
from tpuherd.errors import HerdError
from tpuherd.model.observed import ObservedState
from tpuherd.sweeps.scheduler import SweepStep, run_step, sweeps_with_slots


def run_sweep_steps(
    parts: EngineDeps,
    desired: DesiredState,
    past: EventLog,
    observed: ObservedState,
    shout: Callable[..., None],
) -> float:
    """Run and record each sweep's step; return when to run again at the latest."""
    wake_at = inf
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
            run_step(one)
        except HerdError as error:  # no advice is available: keep what was decided before
            shout(f"{job}: {error.sentence}", hint=error.hint)
        past.write(one.events)
        wake_at = min(wake_at, one.wake_at)
    return wake_at
