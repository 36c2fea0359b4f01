"""What everybody who wishes has before him: a place, its store, its cloud, and somebody to ask."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tpuherd.clock import Clock
from tpuherd.errors import NotFound
from tpuherd.model.slots_and_plan import Event
from tpuherd.model.stored_job import Wish
from tpuherd.near_names import near_names
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.targets import fold

if TYPE_CHECKING:  # it loads what is heavy, and who only reads reaches no cloud
    from tpuherd.cloud.nodes_api import Cloud
    from tpuherd.jobfile.job_diff import Change


class Talk(Protocol):
    """Who wishes."""

    @property
    def environ(self) -> Mapping[str, str]:
        """His environment."""
        ...

    async def tell(self, sentence: str) -> None:
        """Something he should know."""
        ...

    async def agree(self, question: str, details: str = "") -> bool:
        """Whether he wants that. Unfit where nobody can be asked."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """Open as long as one thing is done."""

    place: project_access.Place
    store: Database
    clock: Clock
    talk: Talk
    cloud: Callable[[], "Awaitable[Cloud]"]  #: reached when it is first needed

    @property
    def config(self) -> Path:
        """Where contexts and grants are."""
        return self.place.folders.config

    def wish(self, job: str, *, hint: str = "") -> Wish:
        """The one of this name, and of no other."""
        wishes = self.store.wishes()
        if job in wishes:
            return wishes[job]
        raise NotFound(no_job(job, wishes), hint=hint)


def no_job(job: str, wishes: Mapping[str, Wish]) -> str:
    """The sentence for a name that no job has."""
    near = near_names(job, wishes)
    if near:
        return f"there is no job {job}: did you mean {' or '.join(near)}?"
    return f"there is no job {job}{': there is ' + fold(wishes) if wishes else ', nor any other'}"


def who() -> str:
    """user@machine"""
    return f"{project_access.local_user()}@{socket.gethostname()}"


def event(kind: str, wish: Wish, why: str, change: "Change | None" = None) -> Event:
    """A wish's line in the log, at the time of its change."""
    told: dict[str, Any] = {"who": who(), "why": f"{who()} {why}", "goal": wish.goal.value}
    if change is not None:
        told["difference"] = list(change.lines)
    return Event(at=wish.changed_at, kind=kind, job=wish.job, facts=told)
