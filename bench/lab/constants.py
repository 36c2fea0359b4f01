"""The assumptions under which policies are compared, the same for all of them."""

from dataclasses import dataclass, replace

#: From the least to the most; each draw is uniform between them.
Spread = tuple[float, float]


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
    boot_s: float = 115  #: what every start costs the omniscient bound


FAST = Constants()
#: What other people's scripts do: apt, pip and git clone on a fresh host, a save that blocks.
NAIVE = replace(FAST, setup_s=240, restart_s=75, save_block_s=20, save_durable_s=0)
#: A user whose start is slow, whatever starts it.
SLOW = NAIVE
