"""What the page asks the store for when it is looked at: events, sweeps, capacity, quota."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tpuherd.clock import Clock
from tpuherd.jobs.cost_queries import all_costs, job_cost
from tpuherd.jobs.job_queries import capacity_page, resolve_name
from tpuherd.jobs.sweep_queries import sweep_status
from tpuherd.lazy_modules import import_lazily
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore
from tpuherd.views.overview_rows import overview_event_row, series_row
from tpuherd.views.slot_timeline import state_rows
from tpuherd.web.json_answers import json_answer, read_number
from tpuherd.web.page_context import PageContext, PageServices

if TYPE_CHECKING:
    from tpuherd.jobs import quota_report
    from tpuherd.remote import open_remote
else:  # they load SSH, which the page needs for no picture
    quota_report = import_lazily("tpuherd.jobs.quota_report")
    open_remote = import_lazily("tpuherd.remote.open_remote")

EVENTS, EVENTS_MAX = 200, 1000  #: of one answer
NUMBER_MAX = 2**53
DAYS, DAYS_MAX = 14, 366  #: of the cost report
POINTS, POINTS_MAX = 600, 5000  #: of one series
SINCE_S = 86400.0  #: of series, unless said


def query_routes(services: PageServices) -> list[Route]:
    context = services.context
    samples = SampleStore(context.scope.store_folder)

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
        return json_answer(await context.query_store(capacity_page))

    async def series(request: Request) -> Response:
        find = series_query(request, samples, context.clock.now())
        return json_answer({"series": await anyio.to_thread.run_sync(find)})

    async def quota(request: Request) -> Response:
        return json_answer(await read_quota(context, context.clock))

    return [
        Route("/api/events", events),
        Route("/api/sweeps/{job}", sweep),
        Route("/api/jobs/{job}/series", series),
        Route("/api/capacity", capacity),
        Route("/api/quota", quota),
    ]


def cost_routes(services: PageServices) -> list[Route]:
    context = services.context

    async def send_job_cost(request: Request) -> Response:
        job = request.path_params["job"]
        found = await context.query_store(lambda store, now: job_cost(store, now, job))
        return json_answer({**found, "states": state_rows()})

    async def cost(request: Request) -> Response:
        days = int(read_number(request, "days", least=1, most=DAYS_MAX) or DAYS)
        return json_answer(
            await context.query_store(lambda store, now: all_costs(store, now, days))
        )

    return [Route("/api/cost", cost), Route("/api/cost/{job}", send_job_cost)]


def event_rows(store: Database, name: str | None, before: int, limit: int) -> list[dict[str, Any]]:
    """The last events before a number, of a job, a slot or all."""
    job, slot = (None, None) if name is None else resolve_name(store, name)
    found = store.events_before(before, job=job, slot=slot, limit=limit)
    return [overview_event_row(seq, event) for seq, event in found]


async def read_quota(context: PageContext, clock: Clock) -> Mapping[str, Any]:
    place = project_access.resolve_access(context.environ, world=context.scope.world)
    async with open_remote.open_remote_session(place, clock) as session:
        found = await quota_report.report_quota(place, session.cloud, clock)
        return found.as_json()


def series_query(
    request: Request, samples: SampleStore, now: float
) -> Callable[[], list[dict[str, Any]]]:
    """What a request for series asks, to be found in a thread."""
    job, query = request.path_params["job"], request.query_params
    names = [name for name in query.get("names", "").split(",") if name]
    until = read_number(request, "until", least=0, most=NUMBER_MAX) or now
    since = read_number(request, "since", least=0, most=NUMBER_MAX)
    points = int(read_number(request, "points", least=1, most=POINTS_MAX) or POINTS)
    since = until - SINCE_S if since is None else since
    of = query.get("host", "") or query.get("slot", "")

    def find() -> list[dict[str, Any]]:
        found = samples.read_series(
            job, names or None, since=since, until=until, points=points, of=of
        )
        return [series_row(one) for one in found]

    return find
