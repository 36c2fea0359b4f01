"""When the script of a run crashes or hangs: the same moments for every policy of a seed."""

import math

from tpuherd_lab.capacity import round_time
from tpuherd_sim.weather.storm import random_stream


def fault_times(seed: int, kind: str, every_s: float | None, length_s: float) -> tuple[float, ...]:
    """Return the moments of a kind of fault, which strike what then runs."""
    if every_s is None:
        return ()
    dice = random_stream(seed, "fault", kind)
    times: list[float] = []
    at = 0.0
    while (at := at - every_s * math.log(1.0 - dice.random_fraction())) < length_s:
        times.append(round_time(at))
    return tuple(times)
