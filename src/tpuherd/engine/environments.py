"""Brings a job's Python environment to the hosts of a gang.

`provide_environment` asks every host what it has (`environment.look`). If some lack it, another
host of the job that has it passes it on; else this machine ships the job's copy; else the first
host installs it, as a setup step, or fetches the copy in the job's bucket, and passes it on. At
last every host takes it into use (`environment.use`). Nothing passes between jobs: whoever controls
a host of one could run its own code in the other. So the digest of what a host of the job installed
is noted, and a copy with other contents is not used.
The host's side is tpuherd_host/agent/environments.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from msgspec import Struct

from tpuherd.engine.agent_call import CALL_S, call_agent
from tpuherd.engine.desired import DesiredState
from tpuherd.engine.host_failures import HostFailure, own_lines
from tpuherd.engine.host_messages import Count, Digest, Duration, Short, Text, parse_message
from tpuherd.engine.host_watcher import HostWatcher, WatcherDeps
from tpuherd.errors import HerdError
from tpuherd.model.node_spec import EnvironmentNote, EnvironmentSpec, LaunchSpec
from tpuherd.ports import Host, HostsPort, Link
from tpuherd.targets import node_title
from tpuherd_host.agent.environments.environment_folders import environment_dest
from tpuherd_host.agent.environments.installer_output import UNFIT

NEIGHBOURS_MAX = 8  #: hosts of the job's other nodes that are asked for it
NEIGHBOUR_S = 10.0  #: for their answer: they may be about to go


class HostLook(Struct, frozen=True, kw_only=True):
    """What a host answers to `environment.look`."""

    platform: Short
    snapshot: Digest | None = None
    placed: bool = False
    uv: Text | None = None
    python: Short = ""
    tool: Text = ""
    packages: Count = 0
    size: Count = 0
    seconds: Duration = 0.0
    source: Text = ""  #: the bucket's object that it was fetched from
    kept: Text = ""  #: the bucket's object that has a copy
    refused: Text = ""  #: why the bucket's copy was not used


class GangCalls(Protocol):
    """What the hosts of all gangs are reached by: a GangClient."""

    means: WatcherDeps
    installing: defaultdict[str, asyncio.Lock]  #: one installation at a time, by job and key

    def linked_hosts(self) -> list[HostWatcher]: ...

    async def run_on_all(
        self,
        watches: Collection[HostWatcher],
        work: Callable[[HostWatcher], Coroutine[Any, Any, Any]],
    ) -> list[Any]: ...

    async def set_up_host(
        self, watch: HostWatcher, name: str, what: Mapping[str, Any]
    ) -> HostFailure | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A host of the gang, and what it has."""

    watch: HostWatcher
    look: HostLook


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where the hosts get it from."""

    snapshot: str
    link: Link | None  #: None: this machine has it
    made: Member | None = None  #: the host that installed or fetched it, if no other has it yet
    fresh: bool = False  #: that was just now
    lent: bool = False  #: with this machine's uv


def snapshots_of_jobs(desired: DesiredState, hosts: HostsPort) -> Mapping[str, list[str]]:
    """The code of each job, and its environment: what this machine keeps to ship it again."""
    found = {job: [row.snapshot] for job, row in desired.rows.items() if row.snapshot}
    for job, row in desired.rows.items():
        slot = desired.desired_slots.slots.get(f"{job}-0")
        if slot is not None and (row.document.get("python") or row.document.get("requirements")):
            spec = desired.launch(slot).environment
            if spec is not None and spec.key:
                notes = hosts.known_environments(spec.job, spec.key).values()
                found.setdefault(job, []).extend(one.digest for one in notes if not one.kept)
    return found


async def provide_environment(
    gang: GangCalls,
    watches: Sequence[HostWatcher],
    order: LaunchSpec,
    secrets: Mapping[str, str],
) -> list[HostFailure]:
    """Have all hosts use the job's environment; return the failures by host."""
    spec = order.environment
    assert spec is not None
    if not spec.key:
        sentence = "its code was fetched back from a host just now, and is read at the next try"
        return [HostFailure(host=watches[0].host.node, sentence=sentence)]

    async def look(watch: HostWatcher) -> Member:
        return Member(watch=watch, look=await look_on_host(watch, spec))

    found = await gang.run_on_all(watches, look)
    failures = [one for one in found if isinstance(one, HostFailure)]
    members = [one for one in found if isinstance(one, Member)]
    for platform in dict.fromkeys(one.look.platform for one in members):
        if not failures:
            alike = [one for one in members if one.look.platform == platform]
            failures = await fill_members(gang, alike, order, secrets)
    if failures:
        return failures

    async def use(watch: HostWatcher) -> None:
        await call_agent(watch, "environment.use", {"key": spec.key}, CALL_S)

    found = await gang.run_on_all(watches, use)
    return [one for one in found if isinstance(one, HostFailure)]


async def look_on_host(
    watch: HostWatcher, spec: EnvironmentSpec, seconds: float = CALL_S
) -> HostLook:
    found = await call_agent(watch, "environment.look", {"key": spec.key}, seconds)
    return parse_message(HostLook, found)


async def fill_members(
    gang: GangCalls, members: Sequence[Member], order: LaunchSpec, secrets: Mapping[str, str]
) -> list[HostFailure]:
    """Bring it to those of these hosts, all of one platform, that lack it."""
    spec = order.environment
    assert spec is not None
    lacking = [one for one in members if not one.look.placed]
    if not lacking:
        return []
    job, platform = members[0].watch.job, members[0].look.platform
    async with gang.installing[f"{job} {spec.key} {platform}"]:
        origin = await find_origin(gang, members, spec)
        if origin is None:
            made = await install_on_host(gang, lacking[0], order, secrets)
            if isinstance(made, HostFailure):
                return [made]
            origin = made
        note_origin(gang, origin, spec, platform)
    return await ship_to_members(gang, lacking, spec, origin)


def note_origin(gang: GangCalls, origin: Origin, spec: EnvironmentSpec, platform: str) -> None:
    """Report what was installed or fetched just now, and note the digest of what was installed."""
    hosts, made = gang.means.hosts, origin.made
    known = hosts.known_environments(spec.job, spec.key).get(platform)
    if made is not None and (origin.fresh or known is None or known.digest != origin.snapshot):
        report_installation(gang, made, spec, lent=origin.lent)
    if (made is not None and not made.look.source) or (known is None and not spec.bucket):
        kept = made.look.kept if made is not None else ""
        note = EnvironmentNote(platform=platform, digest=origin.snapshot, kept=kept)
        hosts.note_environment(spec.job, spec.key, note)


async def find_origin(
    gang: GangCalls, members: Sequence[Member], spec: EnvironmentSpec
) -> Origin | None:
    """A host of the gang, else of the job, the nearest first, else this machine has what was noted;
    None if it must be installed."""
    for one in members:
        if one.look.snapshot and one.watch.link is not None:
            made = one if (one.look.tool or one.look.source) and not one.look.placed else None
            return Origin(snapshot=one.look.snapshot, link=one.watch.link, made=made)
    known = gang.means.hosts.known_environments(spec.job, spec.key).get(members[0].look.platform)
    if known is None:
        return None
    gang_hosts = [one.watch for one in members]
    job, zone = gang_hosts[0].job, gang_hosts[0].host.zone
    others = [one for one in gang.linked_hosts() if one.job == job and one not in gang_hosts]
    others.sort(key=lambda one: (one.host.zone != zone, one.status.name))

    async def look(watch: HostWatcher) -> Member:
        return Member(watch=watch, look=await look_on_host(watch, spec, NEIGHBOUR_S))

    for found in await gang.run_on_all(others[:NEIGHBOURS_MAX], look):
        same = isinstance(found, Member) and found.look.snapshot == known.digest
        if same and found.watch.link is not None:
            return Origin(snapshot=known.digest, link=found.watch.link)
    if gang.means.hosts.is_complete(known.digest):
        return Origin(snapshot=known.digest, link=None)
    return None


async def install_on_host(
    gang: GangCalls, member: Member, order: LaunchSpec, secrets: Mapping[str, str]
) -> Origin | HostFailure:
    """Install it on one host, whose snapshot of it the others get."""
    spec, watch, lent = order.environment, member.watch, False
    assert spec is not None
    if member.look.uv is None and watch.link is not None:
        lent = await lend_uv(gang, watch.link, member.look.platform)
    what = title_of(spec)
    noted = gang.means.hosts.known_environments(spec.job, spec.key).get(member.look.platform)
    copy = {"bucket": spec.bucket, "job": spec.job, "digest": noted.digest if noted else ""}
    recipe = {"key": spec.key, "python": spec.python, "requirements": spec.requirements,
              "directory": order.directory or ".", **(copy if spec.bucket else {})}  # fmt: skip
    step = {"name": f"environment {what}", "env": dict(order.env),
            "argv": ["python3", "$AGENT", "environment", json.dumps(recipe)]}  # fmt: skip

    async def install(one: HostWatcher) -> HostFailure | None:
        arguments = {"steps": [step], "secrets": dict(secrets)}
        return await gang.set_up_host(one, f"{one.host.node}-environment-{spec.key[:6]}", arguments)

    (failed,) = await gang.run_on_all([watch], install)
    if isinstance(failed, HostFailure):
        return explain_installation(failed, what)
    (found,) = await gang.run_on_all([watch], lambda one: look_on_host(one, spec))
    if isinstance(found, HostFailure):
        return found
    if not found.snapshot or watch.link is None:
        return HostFailure(host=watch.status.name, sentence="its new environment is gone again")
    made = Member(watch=watch, look=found)
    return Origin(snapshot=found.snapshot, link=watch.link, made=made, fresh=True, lent=lent)


def report_installation(
    gang: GangCalls, made: Member, spec: EnvironmentSpec, *, lent: bool
) -> None:
    """Record what a host installed, or fetched from the bucket."""
    watch, found = made.watch, made.look
    name, facts = host_title(watch.host), {"environment": spec.key, "seconds": found.seconds}
    if found.source:
        report_event(gang, watch, "environment.copied", {
            **facts, "hosts": [watch.status.name], "source": found.source,
            "why": f"{name} got the environment from {found.source} in {found.seconds:.1f} s",
        })  # fmt: skip
        return
    tool = found.tool + (", lent by this machine" if lent and found.tool.startswith("uv") else "")
    size = f"{found.packages} packages, {found.size / 1e6:.0f} MB"
    copy = f"; {found.refused}" if found.refused else ""
    copy += f"; a copy is in {found.kept}" if found.kept else ""
    report_event(gang, watch, "environment.installed", {
        **facts, "host": watch.status.name, "tool": tool, "python": found.python,
        "packages": found.packages, "bytes": found.size, "kept": found.kept,
        **({"refused": found.refused} if found.refused else {}),
        "why": f"{name} installed {title_of(spec)} with {tool}, Python {found.python}:"
        f" {size}, in {found.seconds:.0f} s{copy}",
    })  # fmt: skip


def title_of(spec: EnvironmentSpec) -> str:
    return spec.requirements or f"Python {spec.python}"


async def lend_uv(gang: GangCalls, link: Link, platform: str) -> bool:
    try:
        return await gang.means.hosts.lend_uv(link, platform)
    except (HerdError, OSError):
        return False  # the host gets it elsewhere, or uses pip


def explain_installation(failure: HostFailure, what: str) -> HostFailure:
    """The last line of the installation is its sentence."""
    lines = own_lines(failure.tail)
    if failure.exit is None or not lines:
        return failure
    if failure.signal:
        sentence = f"the installation of {what} was killed by signal {failure.signal}"
        return replace(failure, sentence=sentence, tail=())
    return replace(failure, sentence=lines[-1], tail=(), unfit=failure.exit == UNFIT)


async def ship_to_members(
    gang: GangCalls, lacking: Sequence[Member], spec: EnvironmentSpec, origin: Origin
) -> list[HostFailure]:
    """Have the origin pass it on to all hosts that lack it."""
    means, began = gang.means, gang.means.clock.now()
    links = [one.watch.link for one in lacking if one.watch.link is not None]
    try:
        failed = await means.hosts.ship(
            origin.snapshot, environment_dest(spec.key), links, origin.link
        )
    except HerdError as error:
        return [HostFailure(host=lacking[0].watch.status.name, sentence=error.sentence)]
    if failed:
        return [HostFailure(host=host, sentence=why) for host, why in failed.items()]
    seconds = round(means.clock.now() - began, 1)
    source = host_title(origin.link.host) if origin.link is not None else "this machine"
    others = [one.watch.status.name for one in lacking if one.watch.link is not origin.link]
    if others:
        many = f"{len(others)} hosts" if len(others) > 1 else "1 host"
        report_event(gang, lacking[0].watch, "environment.copied", {
            "environment": spec.key, "hosts": others, "source": source, "seconds": seconds,
            "why": f"{source} passed the environment on to {many} in {seconds:.1f} s",
        })  # fmt: skip
    return []


def host_title(host: Host) -> str:
    """gpt-0/w3"""
    return f"{node_title(host.node)}/w{host.worker}"


def report_event(
    gang: GangCalls, watch: HostWatcher, kind: str, facts: Mapping[str, object]
) -> None:
    gang.means.tell(kind, watch.slot, {"bid": watch.host.node, **facts})
