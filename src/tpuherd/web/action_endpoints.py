"""What the page changes: jobs are stopped, resumed, scaled and deleted as by the commands."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tpuherd.errors import InvalidInput
from tpuherd.lazy_modules import import_lazily
from tpuherd.targets import fold_names
from tpuherd.web.json_answers import json_answer, read_json_body
from tpuherd.web.page_context import PageServices

if TYPE_CHECKING:
    from tpuherd import api
else:
    api = import_lazily("tpuherd.api")  # loads SSH, which the page needs for no picture

COPIES_MAX = 10_000


def action_routes(services: PageServices) -> list[Route]:
    context = services.context

    def herd() -> "api.Herd":
        return api.Herd(world=context.scope.world, environ=context.environ)

    def route(verb: str, act: Callable[[str, dict[str, Any]], str]) -> Route:
        async def endpoint(request: Request) -> Response:
            body = await read_json_body(request)
            job = request.path_params["job"]
            return json_answer({"message": await anyio.to_thread.run_sync(act, job, body)})

        return Route(f"/api/jobs/{{job}}/{verb}", endpoint, methods=["POST"])

    def stop(job: str, body: dict[str, Any]) -> str:
        return f"Stopped {job}" if herd().stop(job) else f"{job} is already stopped"

    def resume(job: str, body: dict[str, Any]) -> str:
        return f"Resumed {job}" if herd().resume(job) else f"{job} is already running"

    def scale(job: str, body: dict[str, Any]) -> str:
        count = body.get("count")
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= COPIES_MAX:
            raise InvalidInput(f"count must be a whole number from 1 to {COPIES_MAX}")
        did = herd().scale(job, count, yes=True).did
        if did == "unchanged":
            return f"{job} already has {count} {'copy' if count == 1 else 'copies'}"
        return f"Scaled {job} to {count} {'copy' if count == 1 else 'copies'}"

    def down(job: str, body: dict[str, Any]) -> str:
        removed = herd().down(job, yes=True, wait=False)
        return f"Deleting {fold_names(removed)}; the engine gives the nodes back"

    return [
        route("stop", stop),
        route("resume", resume),
        route("scale", scale),
        route("down", down),
    ]
