"""The routes of the page: static files, JSON of what there is, and streams of what changes."""

import mimetypes
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tpuherd._version import __version__
from tpuherd.errors import HerdError
from tpuherd.web.action_endpoints import action_routes
from tpuherd.web.json_answers import BadRequest, error_answer, json_answer, read_number
from tpuherd.web.live_feed import PageSubscription
from tpuherd.web.log_endpoints import log_routes
from tpuherd.web.page_context import PageServices
from tpuherd.web.query_endpoints import cost_routes, query_routes
from tpuherd.web.world_endpoints import world_routes

STREAM_TYPE = "text/event-stream"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NOT_KEPT = {"Cache-Control": "no-store"}
RETRY = b"retry: 1000\n\n"  #: how soon a browser comes back
NUMBER_MAX = 2.0**53
#: Not left to the machine's tables, because browsers run no script of another type.
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def create_page_app(services: PageServices) -> Starlette:
    """The page without its guard."""
    for ending, kind in TYPES.items():
        mimetypes.add_type(kind, ending)
    context = services.context
    return Starlette(
        routes=[
            *live_routes(services),
            *query_routes(services),
            *cost_routes(services),
            *log_routes(services),
            *action_routes(services),
            *world_routes(services),
            Route("/api/{rest:path}", answer_unknown),
            Mount("/", StaticFiles(directory=context.static, html=True, check_dir=False)),
        ],
        exception_handlers={
            HerdError: answer_error,
            HTTPException: answer_http_error,
            Exception: answer_surprise,
        },
    )


async def answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HerdError)
    return error_answer(error)


async def answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_answer({"error": error.detail, "hint": ""}, error.status_code)


async def answer_surprise(request: Request, error: Exception) -> Response:
    """The last net: a page can show this, too."""
    said = f"internal error: {type(error).__name__}: {error}"
    return json_answer({"error": said, "hint": "please report it"}, 500)


async def answer_unknown(request: Request) -> Response:
    raise BadRequest(404, "the page has no such part")


def live_routes(services: PageServices) -> list[Route]:
    context, feed = services.context, services.feed

    async def send_overview(request: Request) -> Response:
        seq, rows = await feed.read_overview()
        return json_answer(
            {
                "seq": seq,
                "version": __version__,
                "context": context.name,
                "project": context.project,
                "world": context.world is not None,
                "may_change": True,
                **rows,
            }
        )

    async def send_job_page(request: Request) -> Response:
        return json_answer(await feed.read_job_page(request.path_params["job"]))

    async def stream(request: Request) -> Response:
        after = read_number(request, "after", least=0, most=NUMBER_MAX)
        known = request.headers.get("last-event-id", "")
        if known.isdecimal():  # the browser came back by itself
            after = float(known[:16])

        async def follow_page() -> AsyncIterator[bytes]:
            with feed.subscribe(None if after is None else int(after)) as page:
                yield RETRY
                async for piece in all_messages(page):
                    yield piece

        return event_stream(follow_page())

    async def send_metrics(request: Request) -> Response:
        return PlainTextResponse(await feed.read_metrics(), media_type=METRICS_TYPE)

    return [
        Route("/metrics", send_metrics),
        Route("/api/overview", send_overview),
        Route("/api/jobs/{job}", send_job_page),
        Route("/api/stream", stream),
    ]


async def all_messages(page: PageSubscription) -> AsyncIterator[bytes]:
    while True:
        yield await page.read()


def event_stream(messages: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(messages, media_type=STREAM_TYPE, headers=NOT_KEPT)
