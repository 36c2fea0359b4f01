"""The sign and color of each phase, and which phases need somebody's attention first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseSign:
    sign: str
    tint: str
    urgency: int  #: the most urgent first


WRONG = PhaseSign(sign="✗", tint="1;31", urgency=0)
WARNING = PhaseSign(sign="!", tint="1;33", urgency=1)
COMING = PhaseSign(sign="○", tint="33", urgency=2)
WORKING = PhaseSign(sign="●", tint="32", urgency=3)
DONE = PhaseSign(sign="✓", tint="32", urgency=4)
RESTING = PhaseSign(sign="–", tint="2", urgency=5)
NO_SIGN = PhaseSign(sign=" ", tint="", urgency=9)

#: By the words of phases that job_rows.py and sweep_table.py show.
PHASE_SIGNS: Mapping[str, PhaseSign] = {
    "failing": WRONG,
    "gave up": WRONG,
    "unhealthy": WRONG,
    "failed": WRONG,
    "silent": WRONG,
    "recovering": WARNING,
    "queued": COMING,
    "waiting": COMING,
    "booting": COMING,
    "setup": COMING,
    "starting": COMING,
    "running": WORKING,
    "idle": WORKING,
    "done": DONE,
    "complete": DONE,
    "stopping": RESTING,
    "stopped": RESTING,
    "leaving": RESTING,
    "pruned": RESTING,
}


def phase_sign(phase: str) -> PhaseSign:
    """Return the sign of a phase; that of an unknown one needs a look."""
    return PHASE_SIGNS.get(phase, WARNING)


def worst_sign(phases: Iterable[str]) -> PhaseSign:
    """Return the most urgent sign of several phases."""
    return min(map(phase_sign, phases), key=lambda sign: sign.urgency, default=RESTING)
