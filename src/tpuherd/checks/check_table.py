"""The table of all checks, from which `herd check` and its reference page are made."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tpuherd.checks.check_results import CheckResult, CheckStatus


class CheckPlace(StrEnum):
    MACHINE = "this machine"
    CLOUD = "the cloud"
    HOSTS = "the hosts of TARGET"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckKind:
    """One check: where it runs, what it looks at, and why."""

    id: str
    place: CheckPlace
    looks_at: str
    matters: str  #: why a finding matters, in a sentence
    fix: str = ""  #: what --fix does about it; empty: nothing


def machine_check(id: str, looks_at: str, matters: str, fix: str = "") -> CheckKind:
    return CheckKind(id=id, place=CheckPlace.MACHINE, looks_at=looks_at, matters=matters, fix=fix)


def cloud_check(id: str, looks_at: str, matters: str) -> CheckKind:
    return CheckKind(id=id, place=CheckPlace.CLOUD, looks_at=looks_at, matters=matters)


PRIVATE = "makes it readable by you alone"
MACHINE_CHECKS = (
    machine_check(
        "versions",
        "the versions of herd, Python and the operating system",
        "herd is tested with other versions",
    ),
    machine_check(
        "context",
        "which cloud and project the current context or the environment names",
        "Without it herd does not know which cloud to use",
    ),
    machine_check(
        "config-folder",
        "whether the folder of contexts and keys can be written, and by you alone",
        "It holds the key that logs in to your hosts",
        PRIVATE,
    ),
    machine_check(
        "state-folder",
        "whether the folder of jobs and logs can be written, and by you alone",
        "herd keeps your jobs, their secrets and their logs there",
        PRIVATE,
    ),
    machine_check(
        "disk",
        "the free space and the free inodes of both folders",
        "On a full disk herd can't record what it does, so the engine stops acting",
    ),
    machine_check(
        "store",
        "whether the jobs of this project can be read",
        "The engine can't keep jobs alive that it can't read",
    ),
    machine_check(
        "engine",
        "whether an engine runs if a job needs one, which version, and what troubles it",
        "Without an engine nothing replaces preempted nodes, and finished nodes are not deleted",
    ),
    machine_check(
        "daemon",
        "whether the daemon of commands answers, and runs the installed version",
        "Commands that reach hosts are slow without it",
        "replaces an idle daemon of another version, and removes the socket of a dead one",
    ),
    machine_check(
        "ssh-key",
        "whether herd's key pair can be used, and only by you",
        "Hosts let you in by this key",
        PRIVATE,
    ),
    machine_check(
        "ssh-client",
        "whether OpenSSH's client is installed, and its version",
        "herd itself does not need it, but `ssh`, editors, jump hosts and `via` do",
    ),
    machine_check(
        "ssh-config",
        "whether ssh accepts ~/.ssh/config",
        "With a broken file every ssh fails, and so does what builds on it",
        "takes from others the right to write it",
    ),
)
CLOUD_CHECKS = (
    cloud_check(
        "login",
        "which credentials are found, whether they give a token, and whether the cloud accepts it",
        "Without a login herd can neither request nor delete nodes",
    ),
    cloud_check(
        "clock",
        "this machine's clock against the cloud's",
        "Tokens are refused if the clock is wrong by minutes, and waiting times are miscounted",
    ),
    cloud_check(
        "project",
        "whether the project exists and the account may see it",
        "All nodes and buckets belong to a project",
    ),
    cloud_check(
        "apis",
        "whether the APIs that herd uses are enabled",
        "A disabled API refuses every call",
    ),
    cloud_check(
        "service-agent",
        "whether Cloud TPU's own service account exists in the project",
        "Without it Cloud TPU can't create the VMs of a node",
    ),
    cloud_check(
        "permissions",
        "whether the account has the permissions that herd needs",
        "The cloud refuses what the account may not do",
    ),
    cloud_check(
        "quota",
        "whether quotas allow what is granted and what jobs ask for, and what is left",
        "A request beyond the quota is refused",
    ),
    cloud_check(
        "ssh-login",
        "whether hosts accept keys in metadata, or OS Login decides",
        "With OS Login hosts ignore the keys that herd adds",
    ),
    cloud_check(
        "network",
        "whether the networks that jobs use exist",
        "Nodes can't be created in a network that does not exist",
    ),
    cloud_check(
        "firewall",
        "whether the rules of these networks let SSH in, and whether one is wide open",
        "herd reaches hosts by SSH on port 22",
    ),
    cloud_check(
        "bucket-region",
        "whether the buckets of jobs are near the zones of these jobs",
        "Reading from another region is slow and billed by the GiB",
    ),
)
HOST_CHECKS: tuple[CheckKind, ...] = ()

CHECKS: Mapping[str, CheckKind] = {
    kind.id: kind for kind in (*MACHINE_CHECKS, *CLOUD_CHECKS, *HOST_CHECKS)
}


def add_reason(result: CheckResult) -> CheckResult:
    """Return a finding with the reason of the table, unless it states its own."""
    wrong = result.status in (CheckStatus.WARNING, CheckStatus.PROBLEM)
    if not wrong or result.matters:
        return result
    return replace(result, matters=CHECKS[result.check].matters)
