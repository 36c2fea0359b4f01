"""Answers requests: first applies events that are due, then calls the route that matches.

This is the entry point of the pure model: `handle_request` and `advance_world` are the only
functions that change a `World`. Routes are in `tpu`, `google_apis` and `weather`.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from urllib.parse import parse_qsl

from tpuherd_sim.google_apis import batches, enabled_services
from tpuherd_sim.google_apis import routes as services
from tpuherd_sim.google_apis.pagination import select_fields
from tpuherd_sim.google_apis.project_policy import check_host
from tpuherd_sim.model.compute_errors import unknown_path_page
from tpuherd_sim.model.compute_state import new_services
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, Request, Response, google_host
from tpuherd_sim.model.strike_rules import consume_rule
from tpuherd_sim.model.weather_rules import Weather
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import AgendaItem, Dice, Settings
from tpuherd_sim.tpu import (
    errors,
    faults,
    host_repairs,
    host_reports,
    lifecycle,
    locations,
    maintenance,
    nodes,
    operations,
    queued_lifecycle,
    queued_resources,
    request_schemas,
)
from tpuherd_sim.tpu.names import check_project
from tpuherd_sim.tpu.render import json_response
from tpuherd_sim.tpu.router import Route, RouteMatch, Router, parse_query
from tpuherd_sim.weather import http_commands as weather

TPU_ROUTES: tuple[Route, ...] = (
    *nodes.ROUTES,
    *queued_resources.ROUTES,
    *operations.ROUTES,
    *locations.ROUTES,
    *maintenance.ROUTES,
)
FORM = "application/x-www-form-urlencoded"
FORM_BYTES_MAX = 1 << 16  #: as long as the server lets a query be
#: Paths of the world itself, which weather does not affect, and those whose parts it affects.
OWN, BATCH = "sim", "batch"
OVERRIDE = "x-http-method-override"


@cache
def world_router() -> Router:
    own = (*host_reports.ROUTES, *weather.ROUTES, *BATCH_ROUTES)
    return Router((*TPU_ROUTES, *own, *services.ROUTES))


@cache
def host_routes() -> Mapping[str, frozenset[Route]]:
    """Return the routes of each of Google's hosts."""
    found = {name: frozenset((*routes, *BATCH_ROUTES)) for name, routes in services.HOSTS.items()}
    tpu = enabled_services.TPU
    return {**found, tpu: found[tpu].union(TPU_ROUTES)}


@cache
def tpu_handlers() -> frozenset[Callable[[World, ApiCall, float], Json | Response]]:
    """Return the handlers whose requests are checked against the API's schemas."""
    return frozenset(route.answer for route in TPU_ROUTES)


@cache
def agenda_handlers() -> Mapping[str, Callable[[World, AgendaItem], None]]:
    """Return the handler of every timed event."""
    return {
        **operations.AGENDA,
        **lifecycle.AGENDA,
        **host_repairs.AGENDA,
        **queued_lifecycle.AGENDA,
        **maintenance.AGENDA,
        **faults.AGENDA,
        **services.AGENDA,
        **weather.AGENDA,
    }


def new_world(settings: Settings) -> World:
    """Return a world without nodes, weather or capacity limits."""
    return World(
        settings=settings,
        dice=Dice(seed=settings.seed),
        services=new_services(settings),
        weather=Weather(),
    )


def next_due_time(world: World) -> float | None:
    """Return the time of the next event."""
    return world.agenda[0].at if world.agenda else None


def advance_world(world: World, now: float) -> None:
    """Apply every event that is due, each at its own time; the result does not depend on how often
    this is called.
    """
    while world.agenda and world.agenda[0].at <= now:
        due = heapq.heappop(world.agenda)
        agenda_handlers()[due.verb](world, due)


def take_override(request: Request) -> Request:
    """Return the request that a POST means by X-HTTP-Method-Override; a GET's query is its form."""
    method, body = request.headers.get(OVERRIDE, "").upper(), request.body
    if request.method != "POST" or not method:
        return request
    is_form = request.headers.get("content-type", "").startswith(FORM)
    if method != "GET" or not is_form or len(body) > FORM_BYTES_MAX:
        return replace(request, method=method)
    query = "&".join(filter(None, (request.query, body.decode("latin-1"))))
    return replace(request, method=method, query=query, body=b"")


def find_route(request: Request) -> RouteMatch | None:
    """Return the route of a request. Google's hosts have theirs, an address of the world all."""
    found, host = world_router().find(request.method, request.path), google_host(request)
    if found is None or not host:
        return found
    service = host.rpartition("-")[2]  # of a region's name, such as us-east1-tpu.googleapis.com
    return found if found.route in host_routes().get(service, ()) else None


def handle_request(world: World, request: Request, now: float) -> Response:
    advance_world(world, now)
    request = take_override(request)
    found = find_route(request)
    if found is None and request.path.startswith(f"/{OWN}/"):  # herd asks, and shows the words
        return errors.render_error(ApiError(404, "NOT_FOUND", "Method not found."), OWN)
    if found is None:
        return unknown_path_page(request.path)
    try:
        if world.services.disabled:
            refuse_disabled_service(world, found, now)
        call = parse_call(world, request, found)
        if world.weather.rules and found.version not in (OWN, BATCH):
            response = call_route_in_weather(world, call, found, now)
        else:
            response = call_route(world, call, found, now)
    except ApiError as refused:
        response = errors.render_error(refused, found.version)
    advance_world(world, now)
    return response


def answer_batch(world: World, call: ApiCall, now: float) -> Response:
    """Answer several requests in one, each as if it came alone."""
    return batches.answer_parts(call.request, partial(handle_request, world, now=now))


def refuse_disabled_service(world: World, found: RouteMatch, now: float) -> None:
    """Refuse a request to Cloud TPU or Compute while the project has that API disabled."""
    if found.route.answer in tpu_handlers():
        enabled_services.check_service_answers(world, enabled_services.TPU, now)
    elif found.version == "compute":
        enabled_services.check_service_answers(world, enabled_services.COMPUTE, now)


def parse_call(world: World, request: Request, found: RouteMatch) -> ApiCall:
    """Parse a request; refuse one that is malformed."""
    version = found.version
    query = parse_query(request.query)
    if found.route.answer not in tpu_handlers():
        form = request.headers.get("content-type", "").startswith(FORM)
        other = form or found.version in ("_xml", BATCH) or request.body.strip() == b"null"
        body = {} if other else request_schemas.parse_json_object(request.body)
        return ApiCall(request=request, version=version, path=found.path, query=query, body=body)
    if query:
        query = request_schemas.read_query(version, found.name, query)
        refuse_filters(query)
    body = request_schemas.read_body(version, found.name, request.body) if request.body else {}
    call = ApiCall(request=request, version=version, path=found.path, query=query, body=body)
    check_project(world, call, found.name)
    return call


def refuse_filters(query: Mapping[str, str]) -> None:
    """Refuse filters and sort orders, because ignoring them would return wrong lists."""
    for name in ("filter", "orderBy"):
        if query.get(name):
            raise ApiError(
                400,
                "INVALID_ARGUMENT",
                f"{name} is not supported by the simulated world; omit it, and filter and "
                "sort in the client, as gcloud does.",
            )


def call_route(world: World, call: ApiCall, found: RouteMatch, now: float) -> Response:
    check_host(world, call, found)
    content = found.route.answer(world, call, now)
    if isinstance(content, Response):
        return content
    fields = dict(parse_qsl(call.request.query)).get("fields")
    if fields and found.route.answer not in tpu_handlers():
        content = select_fields(content, fields)
    return json_response(content)


def call_route_in_weather(world: World, call: ApiCall, found: RouteMatch, now: float) -> Response:
    """Call the route under the current weather, which may refuse, delay or lose the response."""
    facts = call_facts(world, call, found)
    error = consume_rule(world, "http-error", now, **facts)
    try:
        if error is not None:
            code, status, message = (
                error.params.get(name) for name in ("http", "status", "message")
            )
            raise errors.weather_error(
                world, int(code or 503), str(status or ""), str(message or "")
            )
        response = call_route(world, call, found, now)
    except ApiError as refused:
        response = errors.render_error(refused, found.version)
    late = consume_rule(world, "delay", now, **facts)
    if late is not None:
        seconds = response.delay_s + float(late.params.get("seconds", 10.0))
        response = replace(response, delay_s=seconds)
    if consume_rule(world, "lost-response", now, **facts) is not None:
        response = replace(response, lost=True)
    return response


def call_facts(world: World, call: ApiCall, found: RouteMatch) -> dict[str, str]:
    """Return the facts of a request that a weather rule can match."""
    facts = {"method": found.name}
    if "zone" in call.path:
        facts["zone"] = call.path["zone"]
    node = call.path.get("node") or call.query.get("nodeId")
    if node:
        facts["node"] = node
    request = call.path.get("request") or call.query.get("queuedResourceId")
    if request:
        facts["request"] = request
    return facts


BATCH_ROUTES = tuple(
    Route("POST", f"/batch{api}", answer_batch) for api in ("", "/compute/v1", "/storage/v1")
)
