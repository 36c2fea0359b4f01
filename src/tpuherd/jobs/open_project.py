"""What every operation on jobs needs: a project, its store, its cloud, and a user to ask."""

import shlex
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tpuherd.clock import Clock
from tpuherd.errors import InvalidInput, NotFound
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.near_names import near_names
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.targets import fold_names

if TYPE_CHECKING:  # heavy to load, and reading needs no cloud
    from tpuherd.cloud.nodes_api import Cloud
    from tpuherd.jobfile.job_diff import JobDiff


class Prompter(Protocol):
    """The user, or a program that answers for the user."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of the caller."""
        ...

    async def show_message(self, sentence: str) -> None: ...

    async def ask_confirmation(
        self, question: str, details: str = "", *, instead: str = ""
    ) -> bool:
        """Whether the user agrees. Raises InvalidInput if there is no one to ask.

        `instead`: what else to type. It is asked of what herd guessed, which no --yes confirms.
        """
        ...


def user_option(user: str) -> str:
    """How a command names another user."""
    return f"add --user {shlex.quote(user)}"


@dataclass(frozen=True, kw_only=True)  # without slots: the user's name is read once
class Session:
    """One open project, for the duration of one operation."""

    place: project_access.ProjectAccess
    store: Database
    clock: Clock
    prompter: Prompter
    cloud: Callable[[], "Awaitable[Cloud]"]  #: connects at the first use
    acting_for: str = ""  #: another user, on whose jobs this command acts on purpose
    naming_user: Callable[[str], str] = user_option  #: how the caller names one

    @property
    def config_folder(self) -> Path:
        """The folder of contexts and grants."""
        return self.place.folders.config

    @cached_property
    def user(self) -> str:
        """The name under which this user's jobs are kept."""
        return project_access.get_user_name(self.config_folder, self.prompter.environ)

    def is_ours(self, stored: StoredJob) -> bool:
        """Whether this command may act on it: it is the user's own, or of whom they named."""
        if self.acting_for:
            return stored.user == self.acting_for
        return stored.user in ("", self.user)

    def check_user(self, stored: StoredJob, *, hint: str = "") -> None:
        """Refuse another user's job. `hint`: what to do if nobody can be named."""
        if stored.user not in ("", self.user, self.acting_for):
            told = hint or f"to act on it all the same, {self.naming_user(stored.user)}"
            raise InvalidInput(f"{stored.job} is {stored.user}'s job", hint=told)

    def name_other_user(self, stored: StoredJob) -> str:
        """What an event adds about the user of a job that is another's; "" for one's own."""
        other = self.acting_for and stored.user == self.acting_for != self.user
        return f", {stored.user}'s job" if other else ""

    def get_own_job(self, job: str, *, hint: str = "") -> StoredJob:
        """Return the job with exactly this name, which this command may change."""
        stored = self.get_job(job)
        self.check_user(stored, hint=hint)
        return stored

    def get_job(self, job: str, *, hint: str = "") -> StoredJob:
        """Return the job with exactly this name."""
        jobs = self.store.stored_jobs()
        if job in jobs:
            return jobs[job]
        raise NotFound(no_job_message(job, jobs), hint=hint)


def no_job_message(job: str, jobs: Mapping[str, StoredJob]) -> str:
    """Return the sentence for an unknown job, with similar names."""
    near = near_names(job, jobs)
    if near:
        return f"there is no job {job}: did you mean {' or '.join(near)}?"
    others = f"the jobs are {fold_names(jobs)}" if jobs else "no jobs exist"
    return f"there is no job {job}: {others}"


def user_at_machine() -> str:
    """user@machine"""
    return f"{project_access.local_user()}@{socket.gethostname()}"


def job_event(
    kind: str, stored: StoredJob, why: str, change: "JobDiff | None" = None
) -> HistoryEvent:
    """Return the event for a change of a job, at the time of that change."""
    facts: dict[str, Any] = {
        "who": user_at_machine(),
        "why": f"{user_at_machine()} {why}",
        "goal": stored.goal.value,
    }
    if stored.user:
        facts["user"] = stored.user
    if change is not None:
        facts["difference"] = list(change.lines)
    return HistoryEvent(at=stored.changed_at, kind=kind, job=stored.job, facts=facts)
