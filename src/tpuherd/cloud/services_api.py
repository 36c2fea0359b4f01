"""Which APIs a project has enabled; enables and disables them, and creates an API's identity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuherd.clock import Clock
from tpuherd.cloud.error_replies import MalformedAnswer, clean_message
from tpuherd.cloud.parse import parse_shape
from tpuherd.cloud.rest import Json, QueryValue, RestClient
from tpuherd.errors import OperationFailed
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")

PAGES_MAX = 50
PAUSE_S = 1.0  #: between looks at an operation
PATIENCE_S = 120.0  #: for an operation


async def list_enabled_services(rest: RestClient, project: str) -> frozenset[str]:
    """Return the names of all enabled APIs, such as tpu.googleapis.com, from all pages."""
    found: set[str] = set()
    seen = {""}
    query: dict[str, QueryValue] = {"filter": "state:ENABLED", "pageSize": 200}
    for _ in range(PAGES_MAX):
        content = await rest.read_usage(f"projects/{project}/services", **query)
        page = parse_shape(content, reply_shapes.ServiceListReply)
        found |= {one.name.rpartition("/")[2] for one in page.services if one.state == "ENABLED"}
        token = page.next_page_token
        if not token:
            return frozenset(found)
        if token in seen:
            break
        seen.add(token)
        query["pageToken"] = token
    raise MalformedAnswer("the cloud's list of APIs never ends")


async def enable_service(rest: RestClient, project: str, name: str, clock: Clock) -> None:
    """Enable an API. It may take minutes more until it answers."""
    path = f"v1/projects/{project}/services/{name}:enable"
    await wait_for_usage(rest, await rest.call_usage("POST", path, {}), clock)


async def disable_service(rest: RestClient, project: str, name: str, clock: Clock) -> None:
    """Disable an API. Raises InvalidInput if it is in use, or if another API needs it."""
    path = f"v1/projects/{project}/services/{name}:disable"
    body: Json = {"disableDependentServices": False, "checkIfServiceHasUsage": "CHECK"}
    await wait_for_usage(rest, await rest.call_usage("POST", path, body), clock)


async def create_identity(rest: RestClient, project: str, name: str, clock: Clock) -> str:
    """Create the account with which an API acts in the project; return its e-mail address.

    One that exists already is fine.
    """
    path = f"v1beta1/projects/{project}/services/{name}:generateServiceIdentity"
    done = await wait_for_usage(rest, await rest.call_usage("POST", path, {}), clock)
    return parse_shape(done.response, reply_shapes.ApiServiceAccount).email


async def wait_for_usage(
    rest: RestClient, content: Json, clock: Clock
) -> reply_shapes.UsageOperation:
    """Return a Service Usage operation when it is done; raises what it failed with."""
    operation = parse_shape(content, reply_shapes.UsageOperation)
    end = clock.now() + PATIENCE_S
    while not operation.done:
        if clock.now() > end:
            raise OperationFailed(
                f"the cloud has not finished a change of the project within {PATIENCE_S:g} s",
                hint="run the command again",
            )
        await clock.sleep(PAUSE_S)
        content = await rest.call_usage("GET", f"v1/{operation.name}")
        operation = parse_shape(content, reply_shapes.UsageOperation)
    if operation.error is not None:
        raise OperationFailed(clean_message(operation.error.message or "the operation failed"))
    return operation
