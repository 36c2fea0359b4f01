"""Goodput as a product: of what scheduling, the runtime and the program achieve."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from tpuherd.accounting.goodput import (
    AttemptAccount,
    GoodputState,
    SlotAccount,
    choose_measured,
    combined_goodput,
)

#: The slot has no usable node in these states.
WITHOUT_NODE = frozenset({
    GoodputState.QUEUE_FIRST,
    GoodputState.CAPACITY_WAIT,
    GoodputState.CONTROLLER_GAP,
    GoodputState.PROVISION,
})  # fmt: skip
INTERVALS_MIN = 3  #: fewer say nothing of how regular steps are
DEVIATIONS = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GoodputProducts:
    """Shares; None where nothing is known."""

    goodput: float | None  #: the product of scheduling and runtime
    scheduling: float | None  #: the share of the time wanted in which there was a node
    runtime: float | None  #: the share of that in which work counted
    program: float | None  #: the time of usual steps compared with that of all


def goodput_products(accounts: Iterable[SlotAccount]) -> GoodputProducts:
    begun = [account for account in accounts if account.runs]
    measured = choose_measured(begun)
    counted = measured or begun  # whether they had a node is known in any case
    wanted = sum(account.known_s if measured else account.wanted_s for account in counted)
    held = wanted - sum(one.seconds.get(state, 0.0) for one in counted for state in WITHOUT_NODE)
    goodput = combined_goodput(measured)
    return GoodputProducts(
        goodput=goodput,
        scheduling=held / wanted if wanted else None,
        runtime=goodput * wanted / held if goodput is not None and held else None,
        program=program_goodput([run for account in begun for run in account.runs]),
    )


def program_goodput(runs: Iterable[AttemptAccount]) -> float | None:
    """The usual time of a step divided by the mean; None if too few were reported.

    Steps that take much longer than the median are not usual; trials of a sweep differ by nature.
    """
    gaps = [
        (at - before, step - earlier)
        for run in runs
        if run.attempt.trial is None
        for (before, earlier), (at, step) in pairwise(run.points)
        if at > before
    ]
    if len(gaps) < INTERVALS_MIN:
        return None
    paces = [seconds / steps for seconds, steps in gaps]
    middle = median(paces)
    limit = middle + DEVIATIONS * median(abs(pace - middle) for pace in paces)
    usual = [(seconds, steps) for seconds, steps in gaps if seconds / steps <= limit]
    return min(1.0, mean_pace(usual) / mean_pace(gaps))


def mean_pace(gaps: Iterable[tuple[float, int]]) -> float:
    """Seconds of a step."""
    known = list(gaps)
    return sum(seconds for seconds, _ in known) / sum(steps for _, steps in known)
