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


def host_check(id: str, looks_at: str, matters: str, fix: str = "") -> CheckKind:
    return CheckKind(id=id, place=CheckPlace.HOSTS, looks_at=looks_at, matters=matters, fix=fix)


PRIVATE = "makes it readable by you alone"
CLOSED = "takes from others the right to write it"
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
        "whether the folder of jobs and logs can be written, and not by everybody",
        "herd keeps your jobs, their secrets and their logs there",
        CLOSED,
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
        CLOSED,
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
        "external-addresses",
        "how many external addresses jobs need in a region, and how many it allows",
        "Each host takes one, and a region has eight at first: a larger node is refused",
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
        "whether the buckets of jobs exist, near the zones of these jobs",
        "Reading from another region is slow and billed by the GiB",
    ),
)
ENDS = "ends processes that ended tasks of herd left behind, as `herd clean` does"
HOST_CHECKS = (
    host_check(
        "reach",
        "whether each host answers, and tells all facts",
        "herd can do nothing on a host that does not answer",
    ),
    host_check(
        "chips",
        "the chips in /dev and on PCI against the node's type",
        "libtpu refuses to start, or uses fewer chips than are paid for",
    ),
    host_check(
        "chip-users",
        "which processes keep the chips, other than running tasks of herd",
        "A chip has one user at a time: the next program fails, or falls back to CPUs",
        ENDS,
    ),
    host_check(
        "tpu-lock",
        "libtpu's lock files, their owners and their true holders",
        "libtpu refuses to start while the file is locked, or belongs to another user",
        "removes files that no process holds, and "
        "ends processes that ended tasks of herd left behind",
    ),
    host_check(
        "leftovers",
        "processes that ended tasks of herd left behind",
        "They use memory and chips, and may answer in the name of the next run",
        ENDS,
    ),
    host_check(
        "ports",
        "who listens at the ports by which hosts of a run find each other",
        "A stale coordinator catches hosts of the next run, which then hangs or aborts",
        ENDS,
    ),
    host_check(
        "fork",
        "whether a process was forked while it had the chips open",
        "libtpu does not work after a fork: such programs hang",
    ),
    host_check(
        "host-disk",
        "free space and inodes of /, the home folder, /tmp and /dev/shm",
        "Programs, checkpoints and logs fail on a full disk, and a TPU VM's disk can't grow",
    ),
    host_check(
        "host-memory",
        "available memory, and which process has most",
        "The kernel kills the largest process when memory runs out",
    ),
    host_check(
        "limits",
        "threads and open files against their limits",
        "Data loaders fail when a limit is reached",
    ),
    host_check(
        "hugepages",
        "transparent huge pages, from v5e on",
        "libtpu starts and copies slowly without them",
    ),
    host_check(
        "preload",
        "whether the libraries in LD_PRELOAD exist",
        "Every program prints an error, and tcmalloc is not used",
    ),
    host_check(
        "tpu-logs",
        "whether libtpu can write to /tmp/tpu_logs",
        "libtpu complains with every line that it can't log",
        "makes it writable for all",
    ),
    host_check(
        "apt-lock",
        "who holds apt's lock, and for how long",
        "No package can be installed, so setup steps wait or fail",
    ),
    host_check(
        "multislice",
        "MEGASCALE_ variables of an earlier run in logins and profiles",
        "jax.distributed.initialize() waits for slices that don't exist",
    ),
    host_check(
        "variables",
        "variables in logins that take chips or hosts away from programs",
        "Programs see fewer chips or hosts than there are",
    ),
    host_check(
        "packages",
        "whether libtpu fits jax in each Python, and what JAX needs is installed",
        "JAX can't use the chips, or can't find the other hosts",
    ),
    host_check(
        "wandb",
        "whether a program that uses wandb finds a key on every host",
        "wandb asks for a key and, without a terminal, ends the program",
    ),
    host_check(
        "addresses",
        "the addresses of the cloud, the metadata server, the host and ssh against each other",
        "Programs and ssh look for hosts at addresses that other machines may have",
    ),
    host_check(
        "python",
        "the versions of Python, JAX and libtpu across hosts",
        "Hosts with different versions compile different programs, and the run hangs",
    ),
    host_check(
        "same-variables",
        "XLA_FLAGS, LIBTPU_INIT_ARGS and JAX_PLATFORMS across hosts",
        "Hosts with different flags compile different programs, and the run hangs",
    ),
    host_check(
        "image",
        "the runtime and the system across hosts, and against the cloud",
        "libtpu and its drivers belong to the runtime",
    ),
    host_check(
        "host-clock",
        "the clocks of hosts against each other",
        "Tokens are refused, and times in logs can't be compared",
    ),
    host_check(
        "collective",
        "a sum over all chips of all hosts at once, and how fast it is",
        "Training can't work where this does not",
    ),
)

CHECKS: Mapping[str, CheckKind] = {
    kind.id: kind for kind in (*MACHINE_CHECKS, *CLOUD_CHECKS, *HOST_CHECKS)
}


def add_reason(result: CheckResult) -> CheckResult:
    """Return a finding with the reason of the table, unless it states its own."""
    wrong = result.status in (CheckStatus.WARNING, CheckStatus.PROBLEM)
    if not wrong or result.matters:
        return result
    return replace(result, matters=CHECKS[result.check].matters)
