"""What all calls of Compute share: pages of a list, and the end of an operation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from tpuherd.clock import Clock
from tpuherd.cloud.error_replies import MalformedAnswer, clean_message
from tpuherd.cloud.parse import parse_shape
from tpuherd.cloud.rest import Json, RestClient
from tpuherd.errors import OperationFailed
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")

PAGES_MAX = 50
PAUSE_S = 1.0  #: between looks at an operation
PATIENCE_S = 120.0  #: for an operation


async def list_compute_pages(rest: RestClient, path: str) -> AsyncGenerator[Json, None]:
    token, seen = "", set[str]()
    for _ in range(PAGES_MAX):
        content = await rest.call_compute("GET", path, maxResults=500, pageToken=token)
        yield content
        token = str(content.get("nextPageToken") or "")
        if not token:
            return
        if token in seen:
            break
        seen.add(token)
    raise MalformedAnswer(f"the cloud's list of {path.rpartition('/')[2]} never ends")


async def wait_for_compute(rest: RestClient, project: str, content: Json, clock: Clock) -> None:
    """Wait for the end of a Compute operation; raises what it failed with."""
    operation = parse_shape(content, reply_shapes.ComputeOperationReply)
    end = clock.now() + PATIENCE_S
    while operation.status != "DONE":
        if clock.now() > end:
            raise OperationFailed(
                f"the cloud has not finished a change of the project within {PATIENCE_S:g} s",
                hint="run the command again",
            )
        await clock.sleep(PAUSE_S)
        path = f"projects/{project}/global/operations/{operation.name}"
        operation = parse_shape(
            await rest.call_compute("GET", path), reply_shapes.ComputeOperationReply
        )
    if operation.error is not None:
        messages = (clean_message(one.message or one.code) for one in operation.error.errors)
        raise OperationFailed("; ".join(messages) or "the cloud's operation failed")
