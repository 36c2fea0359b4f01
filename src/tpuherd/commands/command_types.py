"""The types of running a command on hosts: the request and the outcome on each host."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuherd.exit_status import SIGNALLED, TRANSPORT, Declined
from tpuherd.ports import Host, host_labels
from tpuherd.targets import fold_names

if TYPE_CHECKING:
    from tpuherd.jobs.open_project import Prompter
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings import project_access

CURRENT = "current"  #: as agents call it
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  #: no two of them look alike
ID_LENGTH = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecRequest:
    target: str
    argv: tuple[str, ...] = ()
    shell: str | None = None
    output: str | None = None
    into: Path | None = None
    timeout_s: float | None = None
    stdin: bool | None = None  #: None: only if it is not a terminal
    yes: bool = False  #: also on nodes of other herd users
    script: bytes = b""  #: the standard input of all hosts, instead of the user's
    environment: bool = False  #: fail where there is no Python environment
    in_code: bool = True  #: begin in the job's code, with its environment, where there are such

    @property
    def title(self) -> str:
        return self.shell if self.shell is not None else " ".join(self.argv)

    @property
    def agent_arguments(self) -> Mapping[str, Any]:
        more = {"environment": CURRENT} if self.environment else {}
        what = {"argv": list(self.argv)} if self.shell is None else {"shell": self.shell}
        return {**what, **more}


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOutcome:
    """How a command ended on one host."""

    label: str
    status: int
    why: str = ""  #: a sentence, if the status alone does not tell
    tail: bytes = b""  #: its last output


def new_command_id() -> str:
    """Return a short id that is easy to type."""
    return "".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH))


async def resolve_hosts(
    target: str, place: "project_access.ProjectAccess", reach: "RemoteSession"
) -> list[Host]:
    """Return the hosts of a target; the error explains why a job has no nodes."""

    def without_nodes() -> Mapping[str, str]:
        from tpuherd.jobs.job_queries import no_node_messages
        from tpuherd.store.open_database import open_database

        store = open_database(place, reach.clock.now())
        try:
            return no_node_messages(store, reach.clock.now())
        finally:
            store.close()

    return await reach.resolve_hosts(target, without_nodes)


async def confirm_foreign_hosts(hosts: Sequence[Host], prompter: "Prompter") -> None:
    """Ask before changing nodes of another herd owner; raise Declined if the user says no.

    A node whose name has no owner id is the user's own.
    """
    theirs = {host.node for host in hosts if host.foreign}
    if theirs:
        whose = "belongs" if len(theirs) == 1 else "belong"
        if not await prompter.ask_confirmation(
            f"{fold_names(theirs)} {whose} to another herd user"
        ):
            raise Declined


def label_hosts(hosts: Sequence[Host]) -> dict[Host, str]:
    """Return the names of these hosts for users."""
    return dict(zip(hosts, host_labels(hosts), strict=True))


def parse_outcome(label: str, work: Mapping[str, Any], tail: bytes = b"") -> HostOutcome:
    """Return how it ended: with an exit, a signal, or unseen."""
    why = str(work.get("why") or "")
    if work.get("exit") is not None:
        return HostOutcome(label=label, status=int(work["exit"]) & 0xFF, why=why, tail=tail)
    if work.get("signal") is not None:
        return HostOutcome(label=label, status=SIGNALLED + int(work["signal"]), why=why, tail=tail)
    return HostOutcome(
        label=label, status=TRANSPORT, why=why or "its end was not observed", tail=tail
    )


def worst_status(outcomes: Sequence[HostOutcome]) -> int:
    return max((outcome.status for outcome in outcomes), default=0)
