"""What the page asks the store for when it is looked at: events, sweeps, capacity, quota."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tpuherd.clock import Clock
from tpuherd.jobs.job_queries import capacity_rows, resolve_name
from tpuherd.jobs.quota_report import report_quota
from tpuherd.jobs.sweep_queries import sweep_status
from tpuherd.remote.open_remote import open_remote_session
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.views.overview_rows import overview_event_row
from tpuherd.web.json_answers import json_answer, read_number
from tpuherd.web.page_context import PageContext, PageServices

EVENTS, EVENTS_MAX = 200, 1000  #: of one answer
NUMBER_MAX = 2**53


def query_routes(services: PageServices) -> list[Route]:
    context = services.context

    async def events(request: Request) -> Response:
        job = request.query_params.get("job") or None
        before = read_number(request, "before", least=0, most=NUMBER_MAX)
        limit = read_number(request, "limit", least=1, most=EVENTS_MAX)

        def query(store: Database, now: float) -> list[dict[str, Any]]:
            return event_rows(store, job, int(before or NUMBER_MAX), int(limit or EVENTS))

        return json_answer({"events": await context.query_store(query)})

    async def sweep(request: Request) -> Response:
        job = request.path_params["job"]
        return json_answer(
            await context.query_store(lambda store, now: sweep_status(store, now, job)[0])
        )

    async def capacity(request: Request) -> Response:
        return json_answer({"rows": await context.query_store(capacity_rows)})

    async def quota(request: Request) -> Response:
        return json_answer(await read_quota(context, context.clock))

    return [
        Route("/api/events", events),
        Route("/api/sweeps/{job}", sweep),
        Route("/api/capacity", capacity),
        Route("/api/quota", quota),
    ]


def event_rows(store: Database, name: str | None, before: int, limit: int) -> list[dict[str, Any]]:
    """The last events before a number, of a job, a slot or all."""
    job, slot = (None, None) if name is None else resolve_name(store, name)
    found = store.events_before(before, job=job, slot=slot, limit=limit)
    return [overview_event_row(seq, event) for seq, event in found]


async def read_quota(context: PageContext, clock: Clock) -> Mapping[str, Any]:
    place = project_access.resolve_access(context.environ, world=context.scope.world)
    async with open_remote_session(place, clock) as session:
        return (await report_quota(place, session.cloud, clock)).as_json()
