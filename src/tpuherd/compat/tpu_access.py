"""What TPU Care's functions need: nodes by their exact names, each kept by a job of its own."""

import asyncio
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuherd.async_api import AsyncHerd
from tpuherd.clock import WallClock
from tpuherd.cloud.parse import Node
from tpuherd.commands.command_types import resolve_hosts
from tpuherd.compat.kept_contexts import context_file, forget_context
from tpuherd.compat.levanter import job_name_for_node
from tpuherd.errors import InvalidInput, NotConfirmed, NotReached, OperationFailed
from tpuherd.job import Job
from tpuherd.jobs.engine_control import ensure_engine
from tpuherd.jobs.remove import wait_until_gone
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.results import CommandResult
from tpuherd.settings import project_access
from tpuherd.sync.copy_files import copy_to
from tpuherd.targets import split_bid_name

#: States of nodes that will not come back: nothing on them can be lost.
OVER = frozenset({"PREEMPTED", "TERMINATED"})
ENDING = frozenset({*OVER, "DELETING"})
LOOK_S = 2.0
#: Fields of a job that say which node is asked for.
COMPARED = {
    "accelerator": "a {}",
    "zones": "in {}",
    "tier": "{}",
    "service_account": "with the service account {}",
}
BILLED_HINT = "declare your free TPUs with `herd context grant`, or run `herd up --yes` once"


class CommandFailed(OperationFailed, ValueError):
    """A command on a TPU ended with another status than 0. (TPU Care raises ValueError.)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedTpu:
    """The TPU that a program asks for."""

    host: str
    zone: str
    tpu_version: int
    slices: int
    preemptible: bool
    service_account: str

    @property
    def fields(self) -> dict[str, Any]:
        """The job's fields that the program determines."""
        return {
            "accelerator": f"v{self.tpu_version}-{self.slices * 8}",
            "zones": self.zone,
            "tier": "preemptible" if self.preemptible else "on-demand",
            "service_account": self.service_account or None,
        }

    def build_job(self) -> Job:
        return Job(name=job_name_for_node(self.host), node_name=self.host, **self.fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class TpuView:
    """One TPU at one look."""

    node: Node | None  #: None: the cloud has none
    job: StoredJob | None  #: None: nothing keeps it
    message: str  #: what herd does or waits for
    holder: str = ""  #: whose node it is, if another job's or another user's of herd
    leaving: bool = False  #: the node will not come back, or its job was removed


class TpuAccess(AsyncHerd):
    """The nodes of a zone, and what is done with them."""

    clock = WallClock()
    _in_code = False  # TPU Care's programs expect the home

    @property
    def project(self) -> str:
        return project_access.resolve_access(self._environ).project

    @property
    def store_folder(self) -> Path:
        return project_access.resolve_scope(self._environ).store_folder

    async def list_nodes(self, zone: str) -> dict[str, Node]:
        """Return the nodes of a zone by name; NotReached if it does not answer."""
        async with self._open_session() as here:
            found = await (await here.cloud()).list_nodes()
            if zone in found.unknown:
                raise NotReached(f"{zone} did not answer")
            return {node.name: node for node in found.nodes if node.zone == zone}

    async def look_at(self, zone: str, hosts: Sequence[str]) -> Mapping[str, TpuView]:
        nodes = await self.list_nodes(zone)
        async with self._open_session() as here:
            jobs = here.store.stored_jobs()
            messages = here.store.slot_messages()
            owners = project_access.own_owner_ids(here.place)
            return {
                host: build_view(nodes.get(host), keeping_job(jobs, host), jobs, owners, messages)
                for host in hosts
            }

    async def check(self, wanted: Sequence[WantedTpu]) -> None:
        """Raise InvalidInput if one of them can't be had; nothing is created."""
        if not wanted:
            return
        for one in wanted:
            one.build_job()  # every mistake of its fields
        views = await self.look_at(wanted[0].zone, [one.host for one in wanted])
        for one in wanted:
            view = views[one.host]
            if view.job is not None:
                refuse_other_job(view.job, one)
            elif view.node is not None and not view.leaving:
                refuse_other_node(view.node, view.holder, one)

    async def request(self, one: WantedTpu) -> str:
        """Make sure that a job keeps this TPU, and say how; a node that lives is taken over."""
        view = (await self.look_at(one.zone, [one.host]))[one.host]
        if view.job is not None:
            refuse_other_job(view.job, one)
            if view.job.goal is Goal.GONE:
                await self.resume(view.job.job)
                return f"requested {one.host} again, after `herd stop`"
            return f"{one.host} is kept already"
        if view.node is not None and view.leaving:
            await self.remove(one.host, one.zone, wait=True)
        elif view.node is not None:
            refuse_other_node(view.node, view.holder, one)
            await self._take_over(one)
            return f"took over {one.host}, which lives"
        await self._submit(one)
        return f"requested {one.host}"

    async def _submit(self, one: WantedTpu) -> None:
        try:
            await self.up(one.build_job())
        except NotConfirmed as error:
            raise InvalidInput(error.sentence.splitlines()[-1], hint=BILLED_HINT) from None

    async def _take_over(self, one: WantedTpu) -> None:
        await self.wait_until_ready(one.host, one.zone)
        await self.adopt_nodes(f"{one.zone}/{one.host}", job=one.build_job(), yes=True)

    async def wait_until_ready(self, host: str, zone: str) -> None:
        while True:
            node = (await self.list_nodes(zone)).get(host)
            if node is not None and node.ready:
                return
            await self.clock.sleep(LOOK_S)

    async def replace_node(self, host: str, zone: str) -> None:
        """Withdraw the node's bid, so that the engine deletes the node and requests another."""
        node = (await self.list_nodes(zone)).get(host)
        named = split_bid_name(node.bid) if node is not None else None
        if node is None or named is None:
            return
        facts = {"bid": node.bid, "zone": zone, "why": "the program asked for another node"}
        async with self._open_session() as here:
            now = here.clock.now()
            event = HistoryEvent(
                at=now, kind="bid.withdrawn", job=named.job, slot=named.slot, facts=facts
            )
            here.store.append_events([event])

    async def remove(self, host: str, zone: str, *, wait: bool) -> None:
        """Delete a TPU with its job and its context; of others' nodes, the node alone."""
        view = (await self.look_at(zone, [host]))[host]
        if view.job is not None:
            await self.down(view.job.job, yes=True, wait=wait)
            forget_context(context_file(self.store_folder, view.job.job))
            return
        if view.node is not None:
            if view.holder:
                raise InvalidInput(f"{host} can't be deleted here: {view.holder}")
            if not view.node.bid:
                await self.delete_node(view.node)
        if wait:
            await self._wait_until_deleted(host, zone)

    async def _wait_until_deleted(self, host: str, zone: str) -> None:
        """Wait for the node, and for the queued resource of its job, which goes after it."""
        async with self._open_session() as here:
            async for _ in wait_until_gone([job_name_for_node(host)], here):
                ensure_engine(here.store, here.place, self._environ)
        while host in await self.list_nodes(zone):
            await self.clock.sleep(LOOK_S)

    async def delete_node(self, node: Node) -> None:
        """Delete a node that no job keeps, with the queued resource that created it."""
        async with self._open_session() as here:
            cloud = await here.cloud()
            await cloud.delete_node(node)

    async def known_hosts(self, zone: str) -> list[str]:
        """Return the names of the zone's nodes, and of those that jobs wait for."""
        nodes = await self.list_nodes(zone)
        async with self._open_session() as here:
            jobs = here.store.stored_jobs().values()
            awaited = [
                str(one.document["node_name"])
                for one in jobs
                if one.document.get("node_name") and one.document.get("zones") == zone
            ]
        return list(dict.fromkeys((*nodes, *awaited)))

    async def write_file(self, target: str, name: str, content: str) -> None:
        """Write a file on all hosts of a target, readable by its owner only."""
        with tempfile.TemporaryDirectory() as folder:  # only its owner can enter it
            file = Path(folder) / (Path(name).name or "file")
            file.write_text(content, encoding="utf-8")
            file.chmod(0o600)
            async with self._open_session() as here, AsyncExitStack() as stack:
                reach = await self._open_remote(here.place, stack)
                hosts = await resolve_hosts(target, here.place, reach)
                links = await asyncio.gather(*map(reach.pool.get_link, hosts))
                shipment = await copy_to([file], name, links)
        if shipment.failed:
            host, why = next(iter(shipment.failed.items()))
            raise NotReached(f"{name} was not written on {host}: {why}")

    async def run_text(self, target: str, command: str, title: str) -> CommandResult:
        """Run a shell line; CommandFailed names the first host where it failed."""
        result = await self.exec(target, shell=command)
        for host in result.hosts:
            if host.status:
                why = host.why or telling_line(host.stderr) or telling_line(host.stdout)
                what = "could not be run" if host.status == 255 else f"ended with {host.status}"
                raise CommandFailed(f"{title!r} {what} on {host.host}{f': {why}' if why else ''}")
        return result


def keeping_job(jobs: Mapping[str, StoredJob], host: str) -> StoredJob | None:
    """Return the job whose only node has this name."""
    for stored in jobs.values():
        if stored.document.get("node_name") == host and stored.document.get("copies", 1) == 1:
            return stored
    return None


def build_view(
    node: Node | None,
    job: StoredJob | None,
    jobs: Mapping[str, StoredJob],
    owners: Collection[str],
    messages: Mapping[str, str],
) -> TpuView:
    message = messages.get(f"{job.job}-0", "") if job is not None else ""
    named = split_bid_name(node.bid) if node is not None else None
    holder = ""
    if named is not None and named.owner not in owners:
        holder = "it belongs to another user of herd"
    elif named is not None and named.job in jobs and (job is None or named.job != job.job):
        holder = f"it is {named.slot} of the job {named.job}"
    removed = named is not None and not holder and job is None
    over = node is not None and node.state in ENDING
    return TpuView(node=node, job=job, message=message, holder=holder, leaving=removed or over)


def refuse_other_job(stored: StoredJob, one: WantedTpu) -> None:
    """Raise InvalidInput if the job keeps another TPU than the program asks for."""
    asked = one.build_job().document
    for name, words in COMPARED.items():
        has, wants = stored.document.get(name), asked.get(name)
        if has != wants:
            raise InvalidInput(
                f"{one.host} is {words.format(show(has))} already, and the program asks for"
                f" {words.format(show(wants))}",
                hint=f"delete it first with delete_one_tpu('', {one.host!r}, {one.zone!r})",
            )


def refuse_other_node(node: Node, holder: str, one: WantedTpu) -> None:
    """Raise InvalidInput if a node of this name can't be taken over."""
    if holder:
        raise InvalidInput(f"{one.host} can't be taken over: {holder}")
    wants = one.fields["accelerator"]
    if node.type != wants:
        raise InvalidInput(
            f"{one.host} is a {node.type} already, and the program asks for a {wants}",
            hint=f"delete it first with delete_one_tpu('', {one.host!r}, {one.zone!r})",
        )


def show(value: Any) -> str:
    if isinstance(value, list):
        return " or ".join(map(str, value))
    return "none" if value is None else str(value)


def telling_line(text: str) -> str:
    """Return the last line that speaks of an error, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error|fatal|not found", line, re.IGNORECASE)]
    return (errors or lines or [""])[-1]
