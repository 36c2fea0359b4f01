"""What everybody who wishes has before him: a place, its store, its cloud, and somebody to ask."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tpuherd.clock import Clock
from tpuherd.errors import NotFound
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.near_names import near_names
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.targets import fold_names

if TYPE_CHECKING:  # it loads what is heavy, and who only reads reaches no cloud
    from tpuherd.cloud.nodes_api import Cloud
    from tpuherd.jobfile.job_diff import JobDiff


class Prompter(Protocol):
    """Who wishes."""

    @property
    def environ(self) -> Mapping[str, str]:
        """His environment."""
        ...

    async def show_message(self, sentence: str) -> None:
        """Something he should know."""
        ...

    async def ask_confirmation(self, question: str, details: str = "") -> bool:
        """Whether he wants that. Unfit where nobody can be asked."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """Open as long as one thing is done."""

    place: project_access.ProjectAccess
    store: Database
    clock: Clock
    talk: Prompter
    cloud: Callable[[], "Awaitable[Cloud]"]  #: reached when it is first needed

    @property
    def config_folder(self) -> Path:
        """Where contexts and grants are."""
        return self.place.folders.config

    def get_job(self, job: str, *, hint: str = "") -> StoredJob:
        """The one of this name, and of no other."""
        wishes = self.store.stored_jobs()
        if job in wishes:
            return wishes[job]
        raise NotFound(no_job_message(job, wishes), hint=hint)


def no_job_message(job: str, wishes: Mapping[str, StoredJob]) -> str:
    """The sentence for a name that no job has."""
    near = near_names(job, wishes)
    if near:
        return f"there is no job {job}: did you mean {' or '.join(near)}?"
    others = f": there is {fold_names(wishes)}" if wishes else ", nor any other"
    return f"there is no job {job}{others}"


def user_at_machine() -> str:
    """user@machine"""
    return f"{project_access.local_user()}@{socket.gethostname()}"


def job_event(
    kind: str, wish: StoredJob, why: str, change: "JobDiff | None" = None
) -> HistoryEvent:
    """A wish's line in the log, at the time of its change."""
    told: dict[str, Any] = {
        "who": user_at_machine(),
        "why": f"{user_at_machine()} {why}",
        "goal": wish.goal.value,
    }
    if change is not None:
        told["difference"] = list(change.lines)
    return HistoryEvent(at=wish.changed_at, kind=kind, job=wish.job, facts=told)
