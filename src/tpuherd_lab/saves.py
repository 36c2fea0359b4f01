"""What a loss leaves of the work, where saves come at a fixed interval."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedWork:
    """How the time since the first step was spent; the three make up all of it."""

    kept_s: float  #: in a durable checkpoint
    unsaved_s: float  #: done, and lost with the node
    blocked_s: float  #: the script waited for its saves


def saved_work(
    elapsed_s: float, *, interval_s: float, block_s: float, durable_s: float
) -> SavedWork:
    """Return what is left of `elapsed_s` of training that ends without a last save."""
    cycle = interval_s + block_s
    saves, rest = divmod(elapsed_s, cycle)
    blocked = saves * block_s + max(0.0, rest - interval_s)
    durable = max(0.0, (elapsed_s - durable_s) // cycle)
    kept = durable * interval_s
    return SavedWork(kept_s=kept, unsaved_s=elapsed_s - blocked - kept, blocked_s=blocked)
