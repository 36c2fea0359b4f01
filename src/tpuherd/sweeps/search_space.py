"""Parameters of trials that do not depend on other trials: grid and seeded random search."""

from collections.abc import Mapping
from hashlib import sha256
from math import exp, log

from tpuherd.model.search import Parameter, Search, count_grid_values
from tpuherd.model.sweep_trials import Value


def grid_value(one: Parameter, place: int) -> Value:
    """Return the value at a position of the parameter's grid."""
    if one.values:
        return one.values[place]
    return round_value(one, one.min + place * (one.step or 1.0))


def round_value(one: Parameter, value: float) -> Value:
    """Round integers, and drop the long decimals of summed steps."""
    return round(value) if one.int else float(f"{value:.12g}")


def grid_point(search: Search, number: int) -> Mapping[str, Value]:
    """Return the grid point with that number; the last parameter varies fastest."""
    found: dict[str, Value] = {}
    for name, one in reversed(list(search.parameters.items())):
        number, place = divmod(number, count_grid_values(one) or 1)
        found[name] = grid_value(one, place)
    return {name: found[name] for name in search.parameters}


def seeded_fraction(seed: int, number: int, name: str) -> float:
    """Return a fraction of [0, 1) that depends only on its arguments, so a restart changes
    nothing.
    """
    word = sha256(f"{seed} {number} {name}".encode()).digest()
    return int.from_bytes(word[:7], "big") / 2**56


def random_point(search: Search, number: int) -> Mapping[str, Value]:
    """Choose each parameter independently."""
    return {
        name: value_at_fraction(one, seeded_fraction(search.seed, number, name))
        for name, one in search.parameters.items()
    }


def value_at_fraction(one: Parameter, share: float) -> Value:
    """Return the value at this fraction of the parameter's range."""
    places = count_grid_values(one)
    if places is not None:
        return grid_value(one, min(places - 1, int(share * places)))
    if one.log:
        low, high = log(one.min), log(one.max + (1.0 if one.int else 0.0))
        value = exp(low + share * (high - low))
        return min(int(value), int(one.max)) if one.int else round_value(one, value)
    return round_value(one, one.min + share * (one.max - one.min))


def suggest_point(search: Search, number: int) -> Mapping[str, Value]:
    """Return the parameters of a grid or random trial."""
    return grid_point(search, number) if search.method == "grid" else random_point(search, number)
