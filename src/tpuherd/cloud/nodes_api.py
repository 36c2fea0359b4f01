"""What connections need from the cloud: the nodes, their host keys, and installing our key."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tpuherd.clock import Clock, WallClock
from tpuherd.cloud import parse
from tpuherd.cloud.error_replies import MalformedAnswer
from tpuherd.cloud.node_metadata import MetadataWriter
from tpuherd.cloud.parse import GuestInfo, ListPage, Node
from tpuherd.cloud.rest import CloudConflict, Json, RestClient
from tpuherd.errors import NotAllowed, NotFound, NotReached

T = TypeVar("T")
PAGE = 500
PAGES_MAX = 200
TRIES = 5  #: to write metadata that others write at the same time
ALL_WORKERS = [""]
OS_LOGIN_HINT = (
    "set enable-oslogin=FALSE in the node's metadata, or import the key with `gcloud compute"
    " os-login ssh-keys add` and set `login` in the context to your POSIX account"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeList:
    """All nodes of the project."""

    nodes: tuple[Node, ...]
    unknown: tuple[str, ...]  #: zones that did not answer: their nodes are unknown
    trouble: str = ""  #: what was malformed in the reply


class Cloud:
    """One project of a cloud."""

    def __init__(
        self,
        rest: RestClient,
        project: str,
        page: int = PAGE,
        *,
        project_keys: bool = False,
        clock: Clock | None = None,
        lock_folder: Path | None = None,
    ) -> None:
        self.rest = rest
        self.project_keys = project_keys  #: whether our key goes into the project's metadata
        self.project = project
        self.page = page
        self._metadata = MetadataWriter(rest, clock or WallClock(), lock_folder)

    async def list_nodes(self) -> NodeList:
        """Every node in every zone, from all pages."""
        found: dict[tuple[str, str], Node] = {}
        unknown: dict[str, None] = {}
        trouble = ""
        async for page in self.list_pages("-", "nodes", parse.parse_nodes):
            found.update(((node.zone, node.name), node) for node in page.items)
            unknown.update(dict.fromkeys(page.unknown))
            trouble = trouble or page.trouble
        return NodeList(nodes=tuple(found.values()), unknown=tuple(unknown), trouble=trouble)

    async def check_access(self) -> None:
        """Make one list request; NotAllowed if we lack the permission."""
        path = f"projects/{self.project}/locations/-/queuedResources"
        parse.parse_queued_resources(await self.rest.call_tpu("GET", path, pageSize=1))

    async def list_pages(
        self, zone: str, kind: str, read: Callable[[Json], ListPage[T]]
    ) -> AsyncGenerator[ListPage[T], None]:
        """All pages of a list; raises for a list that never ends."""
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
                    f"the cloud's list of {kind} never ends: a page links to itself"
                )
            tokens.add(token)
        raise MalformedAnswer(f"the cloud's list of {kind} has more than {PAGES_MAX} pages")

    async def get_node(self, zone: str, name: str) -> Node | None:
        """The node as it is now; None if it does not exist."""
        try:
            return parse.parse_node(await self.rest.call_tpu("GET", self._node_path(zone, name)))
        except NotFound:
            return None

    async def get_guests(self, zone: str, name: str) -> Sequence[GuestInfo]:
        """What the workers published: host keys and names. May come late or never."""
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
        """Its location: a region, or a multi-region. Raises NotFound or NotAllowed."""
        return parse.parse_bucket_location(await self.rest.call_storage("GET", f"b/{name}"))

    async def check_runtime(self, zone: str, version: str) -> None:
        """Raises NotFound if the zone does not have this runtime version."""
        path = f"projects/{self.project}/locations/{zone}/runtimeVersions/{version}"
        await self.rest.call_tpu("GET", path)

    async def install_key(self, zone: str, name: str, login: str, public: str) -> str:
        """Add a key to the node's metadata, or to the project's if so configured.

        Existing keys stay. The guest agents take a while to apply the change. Returns whose
        metadata has changed: "node gpt", "project demo", or "" if the key was there already.
        """
        for _ in range(TRIES - 1):
            try:
                return await self._try_install_key(zone, name, login, public)
            except CloudConflict:
                continue  # another client wrote between our read and our write
        return await self._try_install_key(zone, name, login, public)

    async def _try_install_key(self, zone: str, name: str, login: str, public: str) -> str:
        node = await self.get_node(zone, name)
        if node is None:
            raise NotFound("the node no longer exists")
        try:
            project = parse.parse_project(
                await self.rest.call_compute("GET", f"projects/{self.project}")
            )
        except (NotAllowed, NotFound):
            project = None
        if parse.uses_os_login(node, project):
            raise NotAllowed(
                "the node uses OS Login, which ignores SSH keys in the metadata",
                hint=OS_LOGIN_HINT,
            )
        if project is not None and not parse.ignores_project_keys(node):
            wanted = parse.add_ssh_key(project.items, login, public)
            if wanted is None or parse.add_ssh_key(node.metadata, login, public) is None:
                return ""
            if self.project_keys:
                path = f"projects/{self.project}/setCommonInstanceMetadata"
                body = parse.project_metadata_body(replace(project, items=wanted))
                await self.rest.call_compute("POST", path, body)
                return f"project {self.project}"

        def add_key(node: Node) -> dict[str, str] | None:
            metadata = parse.add_ssh_key(node.metadata, login, public)
            if metadata is not None and node.state == "CREATING":  # the cloud would refuse it
                raise NotReached(
                    "its node is still being created and can't take your SSH key yet",
                    hint="try again when the node is READY",
                )
            return metadata

        _, wrote = await self._metadata.change(self._node_path(zone, name), add_key)
        return f"node {name}" if wrote else ""

    async def write_card(self, zone: str, name: str, card: str | None) -> Node:
        """Write herd's card into the metadata of another tool's node, or remove it; return the node
        as it is then.
        """

        def put_card(node: Node) -> dict[str, str] | None:
            if node.metadata.get(parse.CARD) == card:
                return None
            others = {key: text for key, text in node.metadata.items() if key != parse.CARD}
            return others if card is None else {**others, parse.CARD: card}

        node, _ = await self._metadata.change(self._node_path(zone, name), put_card)
        return node

    async def delete_node(self, node: Node) -> None:
        """Delete a node, with the queued resource that created it; fine if it no longer exists."""
        path, query = self._node_path(node.zone, node.name), {}
        if node.request:
            path = f"projects/{self.project}/locations/{node.zone}/queuedResources/{node.request}"
            query = {"force": "true"}
        try:
            await self.rest.call_tpu("DELETE", path, None, **query)
        except NotFound:
            pass

    def _node_path(self, zone: str, name: str) -> str:
        return f"projects/{self.project}/locations/{zone}/nodes/{name}"
