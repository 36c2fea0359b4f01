"""The assumptions under which policies are compared, the same for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

#: From the least to the most; each draw is uniform between them.
Spread = tuple[float, float]

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, kw_only=True, slots=True)
class Constants:
    """What the cloud, the hosts and the script need, in seconds."""

    create_s: Spread = (40, 100)  #: from the request to READY, where there is capacity
    stockout_s: Spread = (10, 40)  #: until the cloud answers that there is none
    delete_s: Spread = (20, 60)
    visible_s: Spread = (5, 30)  #: from a loss until the API shows PREEMPTED
    signal_s: float = 2  #: from a loss until tpuherd hears of it from the host's agent
    grant_lag_s: Spread = (5, 30)  #: from free capacity until a queued request notices
    setup_s: float = 30  #: of the hosts: code and packages
    restart_s: float = 45  #: from the start of Python to the first step
    save_block_s: float = 2  #: how long a save keeps the script from stepping
    save_durable_s: float = 20  #: from then until the checkpoint survives a loss
    fixed_interval_s: float = 900  #: between saves, for policies that do not adapt
    notice_s: float = 0  #: how long before a loss the host hears of it
    crash_every_s: float | None = None  #: mean time between crashes of the script; None: never
    hang_every_s: float | None = None  #: the same for hangs
    human_look_s: float = 12 * HOUR  #: how often somebody looks, where nothing else notices
    boot_s: float = 115  #: what every start costs the omniscient bound
    checkpoint_gb: float = 10  #: what a hop to another region reads from the bucket
    egress_per_gb: float = 0.02  #: dollars, between two regions of a continent
    spot_per_hour: float = 0.97  #: dollars for a node
    on_demand_per_hour: float = 3.06


FAST = Constants()
#: What other people's scripts do: apt, pip and git clone on a fresh host, a save that blocks.
NAIVE = replace(FAST, setup_s=240, restart_s=75, save_block_s=20, save_durable_s=0)
#: A user whose start is slow, whatever starts it.
SLOW = NAIVE


def own_constants(policy: str) -> Constants:
    """Return what a policy has where each has its own: a fast set-up is part of tpuherd."""
    return FAST if policy.startswith("tpuherd") else NAIVE


def add_faults(constants: Constants) -> Constants:
    """Return the same with a crash a day and a hang every four days."""
    return replace(constants, crash_every_s=DAY, hang_every_s=4 * DAY)


#: How a reader sees them; those that are not here have no line of their own.
TITLES: Mapping[str, str] = {
    "create_s": "create a node",
    "stockout_s": "answer without capacity",
    "delete_s": "delete a node",
    "visible_s": "a loss shows in the API",
    "signal_s": "an agent of tpuherd tells of a loss after",
    "grant_lag_s": "a queued request notices capacity",
    "setup_s": "set up the hosts",
    "restart_s": "start the script",
    "save_block_s": "a save blocks",
    "save_durable_s": "then it is durable after",
    "fixed_interval_s": "between saves, if fixed",
    "notice_s": "notice before a loss",
    "crash_every_s": "between crashes",
    "hang_every_s": "between hangs",
    "human_look_s": "somebody looks every",
    "boot_s": "a start, for the bound",
}


def constant_lines(ours: Constants, theirs: Constants | None = None) -> list[tuple[str, str]]:
    """Return a title and a value for each constant, and both values where the two differ."""
    lines = []
    for field in fields(Constants):
        if field.name not in TITLES:
            continue
        text = constant_text(getattr(ours, field.name))
        other = constant_text(getattr(theirs, field.name)) if theirs else text
        lines.append((TITLES[field.name], text if text == other else f"{text} (others {other})"))
    return lines


def constant_text(value: float | Spread | None) -> str:
    if value is None:
        return "never"
    if isinstance(value, tuple):
        return f"{value[0]:g}–{value[1]:g} s"
    return f"{value / HOUR:g} h" if value >= HOUR else f"{value:g} s"
