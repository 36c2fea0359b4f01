"""The engine's part in sweeps: before each judgement, every sweep takes its turn."""

from collections.abc import Callable
from math import inf

from tpuherd.engine.dependencies import Parts
from tpuherd.engine.desired import Desired
from tpuherd.engine.event_log import Past
from tpuherd.errors import HerdError
from tpuherd.model.observed import Observed
from tpuherd.sweeps.scheduler import Turn, every, take


def turn(
    parts: Parts, desired: Desired, past: Past, observed: Observed, shout: Callable[..., None]
) -> float:
    """What was decided is written down; when to look again at the latest."""
    wake_at = inf
    for job, search, slots in every(desired.sweeps, desired.wishes.slots):
        one = Turn(
            job=job,
            search=search,
            slots=slots,
            observed=observed,
            trails=past.trails,
            now=parts.clock.now(),
            advice=parts.advice,
        )
        try:
            take(one)
        except HerdError as error:  # advice can't be had: what was found before it holds
            shout(f"{job}: {error.sentence}", hint=error.hint)
        past.write(one.events)
        wake_at = min(wake_at, one.wake_at)
    return wake_at
