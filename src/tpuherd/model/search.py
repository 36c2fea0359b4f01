"""The search space of a sweep: its parameters, and which of them form a grid."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, prod


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """The values of one parameter of a sweep: a list, or a range of numbers."""

    values: tuple[float | int | str | bool, ...] = ()
    min: float = 0.0
    max: float = 0.0
    step: float | None = None
    log: bool = False  #: every order of magnitude is equally likely
    int: bool = False  #: whole numbers only


@dataclass(frozen=True, kw_only=True, slots=True)
class Prune:
    """Which trials are ended early."""

    rule: str = "none"
    warm_up: int = 0  #: steps of a trial before it is judged
    after: int = 4  #: trials that must have reached the step first


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """How a sweep chooses its trials and compares them."""

    method: str  #: grid, random, bayes; items: a map
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    metric: str = ""
    goal: str = "minimize"
    trials: int | None = None
    seed: int = 0
    prune: Prune = field(default_factory=Prune)
    items: str = ""  #: of `herd map`: the digest of its items, which are its trials
    timeout: float = inf  #: seconds that one item may take
    keep: bool = False  #: the nodes stay after the last item: `herd up` requested them


GRID_MAX = 10_000  #: a larger grid is probably a mistake


def parameter_variable(name: str) -> str:
    """The environment variable of a parameter."""
    return "HERD_PARAM_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def count_grid_values(one: Parameter) -> int | None:
    """The number of its values in a grid; None if unlimited."""
    if one.values:
        return len(one.values)
    step = one.step or (1.0 if one.int and not one.log else None)
    return None if step is None else int((one.max - one.min) / step + 1e-9) + 1


def grid_size(search: Search) -> int:
    """The number of points of the whole grid."""
    return prod(count_grid_values(one) or 1 for one in search.parameters.values())


def count_trials(search: Search) -> int:
    """The number of trials in total."""
    if search.method != "grid":
        return search.trials or 0
    return min(grid_size(search), search.trials or grid_size(search))
