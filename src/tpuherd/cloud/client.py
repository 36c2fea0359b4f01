"""The cloud as the hosts' side needs it: which nodes there are, their keys, and letting ours in."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tpuherd.cloud import wire
from tpuherd.cloud.rest import Rest, Stale
from tpuherd.cloud.wire import Guest, Node
from tpuherd.ports import NotAllowed, NotFound

PAGE = 500
TRIES = 5  #: to write what somebody else writes at the same time
ALL_WORKERS = [""]
OS_LOGIN_HINT = (
    "set enable-oslogin=FALSE in the node's metadata, or import the key by `gcloud compute os-login"
    " ssh-keys add` and name your POSIX account as `login` in the context"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """All nodes of the project."""

    nodes: tuple[Node, ...]
    unknown: tuple[str, ...]  #: zones that did not answer: nothing is known of their nodes


class Cloud:
    """One project of a cloud."""

    def __init__(self, rest: Rest, project: str, page: int = PAGE) -> None:
        self.rest = rest
        self.project = project
        self.page = page
        self._writing = asyncio.Lock()  #: of metadata: one of us at a time

    async def survey(self) -> Survey:
        """Every node of every zone, all pages."""
        found: dict[tuple[str, str], Node] = {}
        unknown: dict[str, None] = {}
        token = ""
        while True:
            path = f"projects/{self.project}/locations/-/nodes"
            page = await self.rest.tpu("GET", path, pageSize=self.page, pageToken=token)
            nodes, unreachable, token = wire.nodes(page)
            found.update(((node.zone, node.name), node) for node in nodes)
            unknown.update(dict.fromkeys(unreachable))
            if not token:
                return Survey(nodes=tuple(found.values()), unknown=tuple(unknown))

    async def node(self, zone: str, name: str) -> Node | None:
        """One node as it is now; None if there is none."""
        try:
            return wire.node(await self.rest.tpu("GET", self._path(zone, name)))
        except NotFound:
            return None

    async def guests(self, zone: str, name: str) -> Sequence[Guest]:
        """What the workers have published: host keys and names. They may be late, or never come."""
        try:
            answer = await self.rest.tpu(
                "POST", f"{self._path(zone, name)}:getGuestAttributes", {"workerIds": ALL_WORKERS}
            )
        except (NotFound, NotAllowed):
            return ()
        return wire.guests(answer)

    async def bucket(self, name: str) -> str:
        """Where its data is: a region, or the name of several. NotFound, NotAllowed."""
        return wire.location(await self.rest.storage(f"b/{name}"))

    async def admit(self, zone: str, name: str, login: str, public: str) -> None:
        """Put a key into the metadata, of the project if we may, else of the node; if not there.

        Nobody's lines are changed. It takes the guest agents a while to act on it.
        """
        async with self._writing:
            for _ in range(TRIES - 1):
                try:
                    await self._admit(zone, name, login, public)
                    return
                except Stale:
                    continue  # somebody wrote between our look and our write
            await self._admit(zone, name, login, public)

    async def _admit(self, zone: str, name: str, login: str, public: str) -> None:
        node = await self.node(zone, name)
        if node is None:
            raise NotFound("it is no more")
        try:
            project = wire.project(await self.rest.compute("GET", f"projects/{self.project}"))
        except (NotAllowed, NotFound):
            project = None
        if wire.uses_os_login(node, project):
            raise NotAllowed(
                "OS Login is on there, so that keys in the metadata count for nothing",
                hint=OS_LOGIN_HINT,
            )
        if project is not None and not wire.ignores_project_keys(node):
            wanted = wire.with_key(project.items, login, public)
            if wanted is None or wire.with_key(node.metadata, login, public) is None:
                return
            body = wire.project_metadata(replace(project, items=wanted))
            try:
                path = f"projects/{self.project}/setCommonInstanceMetadata"
                await self.rest.compute("POST", path, body)
                return
            except NotAllowed:
                pass  # then the node's own
        metadata = wire.with_key(node.metadata, login, public)
        if metadata is not None:
            path = self._path(zone, name)
            await self.rest.tpu("PATCH", path, {"metadata": metadata}, updateMask="metadata")

    def _path(self, zone: str, name: str) -> str:
        return f"projects/{self.project}/locations/{zone}/nodes/{name}"
