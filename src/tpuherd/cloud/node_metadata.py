"""Changes the metadata of nodes, of each node one writer on this machine at a time.

A node's metadata has no fingerprint: a change replaces all of it, a moment after the call. Two
writers that read before either change is applied undo one another, such as an engine that adds an
SSH key and `herd engine adopt`, which writes a card. Nodes do not wait for each other: a hundred of
them may become READY at once.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary
from zlib import crc32

from tpuherd.clock import Clock
from tpuherd.cloud import parse
from tpuherd.cloud.error_replies import MalformedAnswer
from tpuherd.cloud.parse import Node
from tpuherd.cloud.rest import CloudConflict, Json, RestClient
from tpuherd.errors import NotReached, OperationFailed
from tpuherd.files import make_private_folder, try_lock

TRIES = 5  #: while others write at the same time
PATIENCE_S = 60.0  #: for another writer, and for the end of an operation
LOCK_LOOK_S = 0.05
LOCKS = 1024  #: files, by a checksum of the node's name: two nodes rarely share one
OPERATION_LOOK_S, OPERATION_LOOK_S_MAX = 0.05, 0.5  #: the first pause; each is twice the last
OPERATION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

#: The node's new metadata, or None if it is as it should be.
MetadataChange = Callable[[Node], Mapping[str, str] | None]


class MetadataWriter:
    """Writes metadata of nodes; locks in `lock_folder` are shared by all processes of this user."""

    def __init__(self, rest: RestClient, clock: Clock, lock_folder: Path | None) -> None:
        self._rest = rest
        self._clock = clock
        self._lock_folder = lock_folder
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold_lock(self, path: str) -> AsyncIterator[None]:
        """Keep all other writers to this node on this machine waiting."""
        async with self._locks.setdefault(path, asyncio.Lock()):
            if self._lock_folder is None:
                yield
                return
            make_private_folder(self._lock_folder)
            file = self._lock_folder / str(crc32(path.encode()) % LOCKS)
            end = self._clock.now() + PATIENCE_S
            while (held := try_lock(file)) is None:
                if self._clock.now() > end:
                    raise NotReached(
                        f"another herd has been changing metadata of nodes for {PATIENCE_S:g} s",
                        hint=f"its process has the lock of {file}",
                    )
                await self._clock.sleep(LOCK_LOOK_S)
            try:
                yield
            finally:
                os.close(held)

    async def change(self, path: str, change: MetadataChange) -> tuple[Node, bool]:
        """Change a node's metadata until the cloud shows it so; return the node as it is then, and
        whether anything was written. NotFound if there is no such node.
        """
        wrote = False
        async with self.hold_lock(path):
            for _ in range(TRIES):
                node = parse.parse_node(await self._rest.call_tpu("GET", path))
                metadata = change(node)
                if metadata is None:
                    return node, wrote
                try:
                    answer = await self._rest.call_tpu(
                        "PATCH", path, {"metadata": dict(metadata)}, updateMask="metadata"
                    )
                except CloudConflict:
                    continue
                wrote = True
                await self._wait_for_operation(path.rpartition("/nodes/")[0], answer)
        raise NotReached(
            f"the metadata of {path.rpartition('/')[2]} is changed by others all the time",
            hint="try again when no other program changes it",
        )

    async def _wait_for_operation(self, zone_path: str, answer: Json) -> None:
        operation = parse.parse_operation(answer)
        if not OPERATION_ID.fullmatch(operation.id):
            raise MalformedAnswer("the cloud named no operation when it changed a node")
        path = f"{zone_path}/operations/{operation.id}"
        end, pause_s = self._clock.now() + PATIENCE_S, OPERATION_LOOK_S
        while not operation.done:
            if self._clock.now() > end:
                raise NotReached(
                    f"the cloud has not changed {operation.target} within {PATIENCE_S:g} s"
                )
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, OPERATION_LOOK_S_MAX)
            operation = parse.parse_operation(await self._rest.call_tpu("GET", path))
        if operation.error is not None:
            raise OperationFailed(operation.error.sentence)
