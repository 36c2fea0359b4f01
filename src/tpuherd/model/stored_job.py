"""A job as the store keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuherd.model.slots_and_plan import Goal


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredJob:
    """One row per job; its document contains the whole job, and slots are expanded from it."""

    job: str
    goal: Goal
    document: Mapping[str, Any]  #: the job, validated, without the values of secrets
    snapshot: str = ""  #: the code's id, or repo@commit; "" if it has no code
    made_at: float
    changed_at: float
    revision: int = 0  #: counts the changes; set by the store
    who: str = ""  #: user@machine of the last change
    user: str = ""  #: whose job it is; "": a job from before users were kept
    patient: bool = False  #: changed code waits for the next attempt; no attempt is stopped for it

    @property
    def slot_names(self) -> tuple[str, ...]:
        """The names of all its slots, filled or not."""
        return tuple(f"{self.job}-{at}" for at in range(int(self.document.get("copies", 1))))
