"""Mounts, unmounts and inspects NFS folders on the hosts of a target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuherd.commands.command_types import confirm_foreign_hosts, label_hosts, resolve_hosts
from tpuherd.errors import InvalidInput, NotFound
from tpuherd.jobfile.nfs_folders import folder_mistake, server_mistake
from tpuherd.jobs.open_project import Prompter
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.fanout import FanoutResult
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.settings.project_access import ProjectAccess

SECONDS = 900.0  #: with the installation of a package; the agent's own limits are shorter
VERSION = "4.2"  #: what our own servers speak; with others, both sides choose

Answers = Sequence[FanoutResult[Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class NfsTarget:
    """The hosts of a target, and how they are reached."""

    hosts: Sequence[Host]
    place: ProjectAccess
    reach: RemoteSession
    prompter: Prompter

    async def ask(self, hosts: Sequence[Host], verb: str, asked: Mapping[str, Any]) -> Answers:
        """Call the agents of these hosts."""

        async def call_host(host: Host) -> Mapping[str, Any]:
            link = await self.reach.pool.get_link(host)
            return await link.call(RpcRequest(name=verb, arguments=asked))

        return await fanout.run_on_all(hosts, call_host, seconds=SECONDS)

    async def select(self, target: str) -> list[Host]:
        """Find other hosts, and ask before those of other herd users are changed."""
        hosts = await resolve_hosts(target, self.place, self.reach)
        await confirm_foreign_hosts(hosts, self.prompter)
        return hosts


@dataclass(frozen=True, kw_only=True, slots=True)
class MountedFolder:
    """What became of a folder on all hosts."""

    folder: str
    source: str
    results: Answers
    server: Host | None = None  #: None: a server that is no host of ours
    tier: str = ""  #: of the server's node
    exported: Mapping[str, Any] = field(default_factory=dict)  #: the server's own answer


@dataclass(frozen=True, kw_only=True, slots=True)
class UnmountedFolders:
    results: Answers
    exports: Answers  #: what is left of the exports, by host that could have some


async def mount_on_hosts(found: NfsTarget, folder: str, server: str) -> MountedFolder:
    """Mount the folder on all hosts. `server`: ADDRESS:/path, or the host whose own folder it is;
    "" is the first host of the target.
    """
    if mistake := folder_mistake(folder):
        raise InvalidInput(mistake)
    if ":" in server:
        if mistake := server_mistake(server):
            raise InvalidInput(mistake)
        results = await found.ask(found.hosts, "nfs.mount", {"folder": folder, "source": server})
        return MountedFolder(folder=folder, source=server, results=results)
    host = await find_server(found, server)
    clients = [one for one in found.hosts if host_key(one) != host_key(host)]
    exported = await export_from_host(found, host, folder, clients)
    source = f"{host.internal_ip}:{folder}"
    asked = {"folder": folder, "source": source, "version": VERSION}
    results = await found.ask(clients, "nfs.mount", asked)
    if without := [one.host.internal_ip for one in results if one.error is not None]:
        await found.ask([host], "nfs.unexport", {"folder": folder, "clients": without})
    node = found.reach.directory.find_node(host)
    return MountedFolder(
        folder=folder,
        source=source,
        results=results,
        server=host,
        tier=node.tier if node is not None else "",
        exported=exported,
    )


def host_key(host: Host) -> tuple[str, int]:
    """What a host is recognized by in two answers of the cloud."""
    return host.incarnation, host.worker


async def find_server(found: NfsTarget, server: str) -> Host:
    """The one host that a name selects."""
    if not server:
        return found.hosts[0]
    try:
        hosts = await found.select(server)
    except NotFound as error:
        hint = "a file server is written ADDRESS:/path, such as 10.0.0.2:/share"
        raise NotFound(error.sentence, hint=hint) from error
    if len(hosts) > 1:
        raise InvalidInput(f"{server} has {len(hosts)} hosts, and one must serve: {server}/w0")
    return hosts[0]


async def export_from_host(
    found: NfsTarget, host: Host, folder: str, clients: Sequence[Host]
) -> Mapping[str, Any]:
    """Let the clients mount the folder; hosts that no longer exist lose it."""
    survey = await found.reach.directory.list_nodes()
    alive = [one.internal_ip for node in survey.nodes for one in node.workers]
    wanted = {
        "folder": folder,
        "clients": [one.internal_ip for one in clients],
        "alive": [] if survey.unknown else alive,
    }
    (done,) = await found.ask([host], "nfs.export", wanted)
    if done.value is None:
        assert done.error is not None
        label = label_hosts([host])[host]
        raise type(done.error)(f"{label}: {done.error.sentence}", hint=done.error.hint)
    return done.value


async def unmount_on_hosts(found: NfsTarget, folder: str) -> UnmountedFolders:
    """Unmount what herd has mounted, and end the exports of our own hosts to these."""
    if folder and (mistake := folder_mistake(folder)):
        raise InvalidInput(mistake)
    results = await found.ask(found.hosts, "nfs.unmount", {"folder": folder})
    done = [one for one in results if one.value is not None]
    gone = [row for one in done for row in (one.value or {})["gone"]]
    servers = await find_own_servers(found, {row["source"].rpartition(":/")[0] for row in gone})
    hosts = {host_key(host): host for host in [*found.hosts, *servers]}
    wanted = {"folder": folder, "clients": [one.host.internal_ip for one in done]}
    exports = await found.ask(list(hosts.values()), "nfs.unexport", wanted)
    return UnmountedFolders(results=results, exports=exports)


async def find_own_servers(found: NfsTarget, addresses: set[str]) -> list[Host]:
    """The hosts of our nodes that have these internal addresses."""
    survey = await found.reach.directory.list_nodes()
    names = [
        f"{node.zone}/{node.name}/w{worker}"
        for node in survey.nodes
        for worker, one in enumerate(node.workers)
        if one.internal_ip in addresses
    ]
    return await found.select(",".join(names)) if names else []
