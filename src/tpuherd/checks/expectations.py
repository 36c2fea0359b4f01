"""What the cloud, the catalogue, the store and ssh say of hosts, before they are asked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuherd import catalogue
from tpuherd.accounting.goodput import GoodputState
from tpuherd.checks.judgement import Expectation
from tpuherd.checks.known_hosts import find_other_keys
from tpuherd.cloud.parse import Node
from tpuherd.jobs.job_queries import load_scene
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import Host
from tpuherd.settings.project_access import ProjectAccess, read_world_facts
from tpuherd.store.open_database import open_database
from tpuherd.targets import CODE_ROOT, natural_key, split_bid_name

WANDB_KEY = "WANDB_API_KEY"
PROCESSES = "processes"  #: as a world calls them
OVER = (GoodputState.DONE, GoodputState.GAVE_UP)
KNOWN_HOSTS_MAX = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class HostedJob:
    """What a check needs to know of a job."""

    name: str
    wants_chips: bool  #: the engine may start its command at any time
    pythons: tuple[str, ...] = ()  #: that its command names, and those in its folder
    has_wandb_key: bool = False


def shares_machine(place: ProjectAccess) -> bool:
    """Whether the hosts are processes of this machine, as in worlds without namespaces."""
    return place.world is not None and read_world_facts(place.world).get("hosts") == PROCESSES


def load_jobs(place: ProjectAccess, hosts: Sequence[Host], now: float) -> Mapping[str, HostedJob]:
    """Return the jobs of the hosts' slots, by the slot."""
    slots = {bid.slot: bid.job for host in hosts if (bid := split_bid_name(host.bid)) is not None}
    if not slots or all(host.foreign for host in hosts if host.bid):
        return {}
    store = open_database(place, now)
    try:
        scene = load_scene(store, now)
    finally:
        store.close()
    found = {}
    for slot, job in slots.items():
        stored = scene.stored_jobs.get(job)
        if stored is not None:
            account = scene.accounts.get(slot)
            over = account is not None and account.state in OVER
            found[slot] = describe_job(stored, over=over)
    return found


def describe_job(stored: StoredJob, *, over: bool) -> HostedJob:
    fields = stored.document
    env, secrets = fields.get("env") or {}, fields.get("secrets") or {}
    command = fields.get("run")
    words = command.split() if isinstance(command, str) else list(command or ())
    folder = f"{CODE_ROOT}/{stored.job}/" if stored.snapshot else ""
    named = [word for word in words[:1] if "/" in word and "python" in word.rpartition("/")[2]]
    pythons = [word if word[0] in "/~" else folder + word for word in named]
    pythons += [f"{folder}{name}/bin/python" for name in (".venv", "venv") if folder]
    return HostedJob(
        name=stored.job,
        wants_chips=stored.goal is Goal.RUN and bool(words) and not over,
        pythons=tuple(dict.fromkeys(pythons)),
        has_wandb_key=WANDB_KEY in env or WANDB_KEY in secrets,
    )


def expect_of_host(
    node: Node | None, job: HostedJob | None, slices: int, known_keys: Mapping[str, str]
) -> Expectation:
    """Return what is expected of one host; little of a node whose type is not in the catalogue."""
    name = job.name if job is not None else ""
    has_key = job is not None and job.has_wandb_key
    if node is None:
        return Expectation(job=name, has_wandb_key=has_key, known_keys=known_keys)
    size = catalogue.accelerators().get(node.type)
    return Expectation(
        type=node.type,
        generation=size.generation if size is not None else "",
        chips=size.chips_per_host if size is not None else 0,
        runtime=node.runtime,
        gang=tuple(one.internal_ip for one in node.workers),
        slices=slices,
        job=name,
        has_wandb_key=has_key,
        known_keys=known_keys,
    )


def gang_key(node: Node) -> tuple[str, str]:
    """Return what the nodes of one run have in common: the bid, the request, or the node."""
    return node.zone, node.bid or node.request or node.name


def group_nodes(nodes: Iterable[Node]) -> Mapping[tuple[str, str], tuple[Node, ...]]:
    """Return the nodes of each gang in the order of its slices."""
    found: dict[tuple[str, str], list[Node]] = {}
    for node in sorted(nodes, key=lambda node: natural_key(node.name)):
        found.setdefault(gang_key(node), []).append(node)
    return {key: tuple(gang) for key, gang in found.items()}


def read_other_keys(hosts: Mapping[str, Sequence[str]], home: Path) -> Mapping[str, str]:
    """Return the addresses that ~/.ssh/known_hosts has with other machines' keys."""
    try:
        with (home / ".ssh/known_hosts").open(errors="replace") as file:
            return find_other_keys(file.read(KNOWN_HOSTS_MAX), hosts)
    except OSError:
        return {}
