"""The cloud as the hosts' side needs it: which nodes there are, their keys, and letting ours in."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tpuherd.cloud import parse
from tpuherd.cloud.error_replies import MalformedAnswer
from tpuherd.cloud.parse import GuestInfo, ListPage, Node
from tpuherd.cloud.rest import CloudConflict, Json, RestClient
from tpuherd.errors import NotAllowed, NotFound

T = TypeVar("T")
PAGE = 500
PAGES_MAX = 200
TRIES = 5  #: to write what somebody else writes at the same time
ALL_WORKERS = [""]
OS_LOGIN_HINT = (
    "set enable-oslogin=FALSE in the node's metadata, or import the key by `gcloud compute os-login"
    " ssh-keys add` and name your POSIX account as `login` in the context"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeList:
    """All nodes of the project."""

    nodes: tuple[Node, ...]
    unknown: tuple[str, ...]  #: zones that did not answer: nothing is known of their nodes
    trouble: str = ""  #: what of the answer makes no sense


class Cloud:
    """One project of a cloud."""

    def __init__(
        self, rest: RestClient, project: str, page: int = PAGE, *, project_keys: bool = False
    ) -> None:
        self.rest = rest
        self.project_keys = project_keys  #: our key goes into the project's metadata
        self.project = project
        self.page = page
        self._writing = asyncio.Lock()  #: of metadata: one of us at a time

    async def list_nodes(self) -> NodeList:
        """Every node of every zone, all pages."""
        found: dict[tuple[str, str], Node] = {}
        unknown: dict[str, None] = {}
        trouble = ""
        async for page in self.list_pages("-", "nodes", parse.parse_nodes):
            found.update(((node.zone, node.name), node) for node in page.items)
            unknown.update(dict.fromkeys(page.unknown))
            trouble = trouble or page.trouble
        return NodeList(nodes=tuple(found.values()), unknown=tuple(unknown), trouble=trouble)

    async def check_access(self) -> None:
        """One list. NotAllowed: we may not look."""
        path = f"projects/{self.project}/locations/-/queuedResources"
        parse.parse_queued_resources(await self.rest.call_tpu("GET", path, pageSize=1))

    async def list_pages(
        self, zone: str, kind: str, read: Callable[[Json], ListPage[T]]
    ) -> AsyncGenerator[ListPage[T], None]:
        """All pages of a list; one without an end is an error."""
        tokens = {""}
        token = ""
        for _ in range(PAGES_MAX):
            path = f"projects/{self.project}/locations/{zone}/{kind}"
            page = read(await self.rest.call_tpu("GET", path, pageSize=self.page, pageToken=token))
            yield page
            token = page.token
            if not token:
                return
            if token in tokens:
                raise MalformedAnswer(
                    f"the cloud's list of {kind} has no end: a page follows itself"
                )
            tokens.add(token)
        raise MalformedAnswer(f"the cloud's list of {kind} has no end: {PAGES_MAX} pages were read")

    async def get_node(self, zone: str, name: str) -> Node | None:
        """One node as it is now; None if there is none."""
        try:
            return parse.parse_node(await self.rest.call_tpu("GET", self._node_path(zone, name)))
        except NotFound:
            return None

    async def get_guests(self, zone: str, name: str) -> Sequence[GuestInfo]:
        """What the workers have published: host keys and names. They may be late, or never come."""
        try:
            answer = await self.rest.call_tpu(
                "POST",
                f"{self._node_path(zone, name)}:getGuestAttributes",
                {"workerIds": ALL_WORKERS},
            )
        except (NotFound, NotAllowed):
            return ()
        return parse.parse_guests(answer)

    async def get_bucket_location(self, name: str) -> str:
        """Where its data is: a region, or the name of several. NotFound, NotAllowed."""
        return parse.parse_bucket_location(await self.rest.read_storage(f"b/{name}"))

    async def check_runtime(self, zone: str, version: str) -> None:
        """NotFound where a zone has no such image."""
        path = f"projects/{self.project}/locations/{zone}/runtimeVersions/{version}"
        await self.rest.call_tpu("GET", path)

    async def install_key(self, zone: str, name: str, login: str, public: str) -> None:
        """Put a key into the node's metadata, or into the project's where that is asked for.

        Nobody's lines are changed. It takes the guest agents a while to act on it.
        """
        async with self._writing:
            for _ in range(TRIES - 1):
                try:
                    await self._try_install_key(zone, name, login, public)
                    return
                except CloudConflict:
                    continue  # somebody wrote between our look and our write
            await self._try_install_key(zone, name, login, public)

    async def _try_install_key(self, zone: str, name: str, login: str, public: str) -> None:
        node = await self.get_node(zone, name)
        if node is None:
            raise NotFound("it is no more")
        try:
            project = parse.parse_project(
                await self.rest.call_compute("GET", f"projects/{self.project}")
            )
        except (NotAllowed, NotFound):
            project = None
        if parse.uses_os_login(node, project):
            raise NotAllowed(
                "OS Login is on there, so that keys in the metadata count for nothing",
                hint=OS_LOGIN_HINT,
            )
        if project is not None and not parse.ignores_project_keys(node):
            wanted = parse.add_ssh_key(project.items, login, public)
            if wanted is None or parse.add_ssh_key(node.metadata, login, public) is None:
                return
            if self.project_keys:
                path = f"projects/{self.project}/setCommonInstanceMetadata"
                body = parse.project_metadata_body(replace(project, items=wanted))
                await self.rest.call_compute("POST", path, body)
                return
        metadata = parse.add_ssh_key(node.metadata, login, public)
        if metadata is not None:
            path = self._node_path(zone, name)
            await self.rest.call_tpu("PATCH", path, {"metadata": metadata}, updateMask="metadata")

    def _node_path(self, zone: str, name: str) -> str:
        return f"projects/{self.project}/locations/{zone}/nodes/{name}"
