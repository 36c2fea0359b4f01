"""What the judgements of hosts are made of: a host with its facts, and a finding. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpuherd.checks.check_results import CheckStatus
from tpuherd.checks.host_facts import HostFacts, HostProcess
from tpuherd.ports import Host
from tpuherd.views.format_text import shorten_command

SHARED = "hosts of this world share one machine, without chips and addresses of their own"
CLEAN = "clean"  #: the repair of fix_hosts: what `herd clean` does


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """What the cloud and the store say of a host; empty where they say nothing."""

    type: str = ""
    generation: str = ""
    chips: int = 0  #: on this host
    runtime: str = ""
    simulated: bool = False
    shared: bool = False  #: a simulated host that is processes of this machine, without chips
    gang: tuple[str, ...] = ()  #: the internal addresses of its node's hosts
    slices: int = 1
    job: str = ""
    has_wandb_key: bool = False  #: the job gives one to its processes
    known_keys: Mapping[str, str] | None = None  #: address → whose key ssh has for it


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedHost:
    """A host that answered."""

    label: str
    host: Host
    facts: HostFacts
    now: float
    expected: Expectation
    ahead_s: float = 0.0  #: its clock is ahead of ours by this
    ahead_error_s: float = 0.0

    @property
    def node(self) -> str:
        """Its node as users name it, so that hosts with the same remedy share a line."""
        return self.label.rpartition("/")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFinding:
    """One judgement, before it is known which check and place it belongs to."""

    status: CheckStatus
    found: str
    matters: str = ""
    remedy: str = ""
    fix: str = ""


def all_right(found: str) -> HostFinding:
    return HostFinding(status=CheckStatus.OK, found=found)


def not_looked(found: str) -> HostFinding:
    return HostFinding(status=CheckStatus.SKIPPED, found=found)


def warn_of(found: str, remedy: str, *, fix: str = "", matters: str = "") -> HostFinding:
    return HostFinding(
        status=CheckStatus.WARNING, found=found, remedy=remedy, fix=fix, matters=matters
    )


def report_problem(found: str, remedy: str, *, fix: str = "", matters: str = "") -> HostFinding:
    return HostFinding(
        status=CheckStatus.PROBLEM, found=found, remedy=remedy, fix=fix, matters=matters
    )


def describe_process(one: HostProcess) -> str:
    """python train.py (pid 412 of alice)"""
    if one.pid is None:
        return "a process that is hidden from this login"
    whose = f" of {one.user}" if one.user else ""
    return f"{shorten_command(one.command) or 'a process'} (pid {one.pid}{whose})"


def list_processes(some: Sequence[HostProcess], most: int = 3) -> str:
    """Return the first of them by name, and how many more there are."""
    named = ", ".join(describe_process(one) for one in some[:most])
    return named if len(some) <= most else f"{named} and {len(some) - most} more"


def live_tasks(one: CheckedHost) -> frozenset[str]:
    return frozenset(task.id for task in one.facts.tasks)


def clean_command(one: CheckedHost) -> str:
    """Return the commands that end leftovers; they name the node, so that hosts share a line."""
    return f"herd check {one.node} --fix, or herd clean {one.node}"


def ask_and_clean(one: CheckedHost) -> str:
    """Return what to do about the processes of others."""
    return f"herd clean {one.label} --all ends it; ask its owner first"
