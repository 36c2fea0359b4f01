"""The names of hosts for ssh: gpt, gpt-0, gpt-0-w3, and gpt-0.1-w3 in a multislice run."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tpuherd.catalogue import accelerators
from tpuherd.model.stored_job import StoredJob
from tpuherd.targets import KnownNode, split_bid_name

NAME = re.compile(r"(?P<node>.+?)(?:\.(?P<part>[0-9]+))?(?:-w(?P<worker>[0-9]{1,9}))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class SshName:
    """A name's parts."""

    node: str  #: a job, a slot or a node
    part: int | None = None  #: which node of a multislice run
    worker: int | None = None  #: None: the first


def parse_ssh_name(name: str) -> SshName:
    """gpt-0.1-w3 → node gpt-0, part 1, worker 3"""
    found = NAME.fullmatch(name)
    if found is None:
        return SshName(node=name)
    part, worker = found["part"], found["worker"]
    return SshName(
        node=found["node"],
        part=None if part is None else int(part),
        worker=None if worker is None else int(worker),
    )


def write_ssh_name(slot: str, worker: int, *, part: int | None = None) -> str:
    """Return the name of one host."""
    return f"{slot}-w{worker}" if part is None else f"{slot}.{part}-w{worker}"


def list_job_names(jobs: Iterable[StoredJob]) -> tuple[str, ...]:
    """Return the names of all hosts that these jobs may have, whether they exist now or not."""
    found: dict[str, None] = {}
    for job in jobs:
        found[job.job] = None
        for slot in job.slot_names:
            found.update(dict.fromkeys(slot_host_names(slot, count_hosts(job), count_parts(job))))
    return tuple(found)


def list_node_names(nodes: Iterable[KnownNode], others: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the hosts of existing nodes that are the user's, and full names of those
    of no job, which anybody may have named. `others`: jobs of other users."""
    found: dict[str, None] = {}
    for node in nodes:
        bid = node.bid_name
        if node.foreign or not node.workers or (bid is not None and bid.job in others):
            continue
        if bid is not None:
            found[bid.job] = None
            found[bid.slot] = None
            for worker in range(node.workers):
                found[write_ssh_name(bid.slot, worker, part=bid.part)] = None
        if split_bid_name(node.name) is None:  # another tool's, or named by the job
            for worker in range(node.workers):
                found[write_ssh_name(node.name, worker)] = None
    return tuple(found)


def slot_host_names(slot: str, hosts: int, parts: int) -> Iterator[str]:
    yield slot
    for part in range(parts):
        for worker in range(hosts):
            yield write_ssh_name(slot, worker, part=part if parts > 1 else None)


def count_parts(job: StoredJob) -> int:
    """Return the number of nodes of a slot."""
    return int(job.document.get("slices") or 1)


def count_hosts(job: StoredJob) -> int:
    """Return the number of hosts of the largest TPU that the job accepts."""
    said = job.document.get("accelerator") or ()
    known = accelerators()
    types = [said] if isinstance(said, str) else said
    return max((known[one].hosts for one in types if one in known), default=1)
