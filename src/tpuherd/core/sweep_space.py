"""The parameters of a sweep's trials, where no other trial decides: grids, and chance by number."""

import re
from collections.abc import Mapping
from hashlib import sha256
from math import exp, log, prod

from tpuherd.core.spec_job import Parameter, Search
from tpuherd.core.sweep import Value

GRID_MAX = 10_000  #: so many trials nobody means by accident


def variable(name: str) -> str:
    """The variable by which a command finds a parameter."""
    return "HERD_PARAM_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def of_grid(one: Parameter) -> int | None:
    """So many values a grid has of it; None: without end."""
    if one.values:
        return len(one.values)
    step = one.step or (1.0 if one.int and not one.log else None)
    return None if step is None else int((one.max - one.min) / step + 1e-9) + 1


def nth(one: Parameter, place: int) -> Value:
    """The value at a place of its grid."""
    if one.values:
        return one.values[place]
    return settled(one, one.min + place * (one.step or 1.0))


def settled(one: Parameter, value: float) -> Value:
    """As a number of its kind; sums of steps have no long tails."""
    return round(value) if one.int else float(f"{value:.12g}")


def size(search: Search) -> int:
    """So many points the whole grid has."""
    return prod(of_grid(one) or 1 for one in search.parameters.values())


def many(search: Search) -> int:
    """So many trials it makes in all."""
    if search.method != "grid":
        return search.trials or 0
    return min(size(search), search.trials or size(search))


def gridded(search: Search, number: int) -> Mapping[str, Value]:
    """The point of that number: the parameter that is said last changes first."""
    found: dict[str, Value] = {}
    for name, one in reversed(list(search.parameters.items())):
        number, place = divmod(number, of_grid(one) or 1)
        found[name] = nth(one, place)
    return {name: found[name] for name in search.parameters}


def chance(seed: int, number: int, name: str) -> float:
    """From 0 to 1, the same for the same: no engine's life changes what is tried."""
    word = sha256(f"{seed} {number} {name}".encode()).digest()
    return int.from_bytes(word[:7], "big") / 2**56


def drawn(search: Search, number: int) -> Mapping[str, Value]:
    """By chance, each parameter for itself."""
    return {
        name: spread(one, chance(search.seed, number, name))
        for name, one in search.parameters.items()
    }


def spread(one: Parameter, share: float) -> Value:
    """The value that has so much of its range below it."""
    places = of_grid(one)
    if places is not None:
        return nth(one, min(places - 1, int(share * places)))
    if one.log:
        low, high = log(one.min), log(one.max + (1.0 if one.int else 0.0))
        value = exp(low + share * (high - low))
        return min(int(value), int(one.max)) if one.int else settled(one, value)
    return settled(one, one.min + share * (one.max - one.min))


def suggested(search: Search, number: int) -> Mapping[str, Value]:
    """The parameters of a trial that depends on no other."""
    return gridded(search, number) if search.method == "grid" else drawn(search, number)
