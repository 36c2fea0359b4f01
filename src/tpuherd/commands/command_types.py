"""The nouns of running a command on hosts: what is wished, and what came of it on each."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuherd.exit_status import SIGNALLED, TRANSPORT, Declined
from tpuherd.ports import Host, host_labels
from tpuherd.store.log_store import LogHost
from tpuherd.targets import fold_names

if TYPE_CHECKING:
    from tpuherd.jobs.open_project import Prompter
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings import project_access

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  #: none that looks like another
ID_LENGTH = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecRequest:
    """What a user wants run."""

    target: str
    argv: tuple[str, ...] = ()
    shell: str | None = None
    output: str | None = None
    into: Path | None = None
    timeout_s: float | None = None
    stdin: bool | None = None  #: None: unless it is a terminal
    yes: bool = False  #: also on nodes of another herd user

    @property
    def title(self) -> str:
        """As a list shows it."""
        return self.shell if self.shell is not None else " ".join(self.argv)

    @property
    def agent_arguments(self) -> Mapping[str, Any]:
        """As the agent takes it."""
        return {"argv": list(self.argv)} if self.shell is None else {"shell": self.shell}


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOutcome:
    """How it ended on one host."""

    label: str
    status: int
    why: str = ""  #: a sentence, where the status does not say it
    tail: bytes = b""  #: its last output


def new_command_id() -> str:
    """One that can be typed."""
    return "".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH))


async def resolve_hosts(
    target: str, place: "project_access.ProjectAccess", reach: "RemoteSession"
) -> list[Host]:
    """The hosts that are meant; of a job that has none yet, or none any more, that is said."""

    def without_nodes() -> Mapping[str, str]:
        from tpuherd.jobs.job_queries import no_node_messages
        from tpuherd.store.database import Database

        store = Database(place.store_folder, reach.clock.now())
        try:
            return no_node_messages(store, reach.clock.now())
        finally:
            store.close()

    return await reach.resolve_hosts(target, without_nodes)


async def confirm_foreign_hosts(hosts: Sequence[Host], talk: "Prompter") -> None:
    """Ask before anything is changed on nodes of another herd owner; Declined if the user says no.

    A node whose name bears no owner's mark is the user's own.
    """
    theirs = {host.node for host in hosts if host.foreign}
    if theirs:
        whose = "belongs" if len(theirs) == 1 else "belong"
        if not await talk.ask_confirmation(f"{fold_names(theirs)} {whose} to another herd user"):
            raise Declined


def label_hosts(hosts: Sequence[Host]) -> dict[Host, str]:
    """What users call these hosts."""
    return dict(zip(hosts, host_labels(hosts), strict=True))


def log_place(host: Host) -> LogHost:
    """Where its log is kept."""
    return LogHost(zone=host.zone, node=host.node, worker=host.worker, incarnation=host.incarnation)


def parse_outcome(label: str, work: Mapping[str, Any], tail: bytes = b"") -> HostOutcome:
    """What the agent says of its end: an exit, a signal, or that nobody saw it."""
    why = str(work.get("why") or "")
    if work.get("exit") is not None:
        return HostOutcome(label=label, status=int(work["exit"]) & 0xFF, why=why, tail=tail)
    if work.get("signal") is not None:
        return HostOutcome(label=label, status=SIGNALLED + int(work["signal"]), why=why, tail=tail)
    return HostOutcome(
        label=label, status=TRANSPORT, why=why or "how it ended was not seen", tail=tail
    )


def worst_status(outcomes: Sequence[HostOutcome]) -> int:
    """The exit status of all together."""
    return max((outcome.status for outcome in outcomes), default=0)
