"""The weather of a simulated world: shown, and made by buttons. Outside a world there is none."""

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tpuherd.errors import NotFound
from tpuherd.web.json_answers import json_answer, read_json_body
from tpuherd.web.page_context import PageServices, WorldControl


def world_routes(services: PageServices) -> list[Route]:
    def control() -> WorldControl:
        found = services.context.world
        if found is None:
            raise NotFound("this is no simulated world: its weather can't be made")
        return found

    async def world(request: Request) -> Response:
        return json_answer(await anyio.to_thread.run_sync(control().read_world))

    async def weather(request: Request) -> Response:
        there = control()
        given = await read_json_body(request)
        kind = request.path_params["kind"]
        return json_answer(await anyio.to_thread.run_sync(there.make_weather, kind, given))

    return [
        Route("/api/world", world),
        Route("/api/world/{kind}", weather, methods=["POST"]),
    ]
