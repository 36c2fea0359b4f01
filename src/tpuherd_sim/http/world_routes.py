"""Routes about the world itself: its page, its status, its metadata for sign-ins."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from urllib.parse import parse_qs

from tpuherd_sim.client_env import user_account
from tpuherd_sim.host_options import WorldStatus
from tpuherd_sim.http.app import RouteHandler
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.http_types import Json, Request, Response
from tpuherd_sim.model.records import Node
from tpuherd_sim.model.world import World, log_length
from tpuherd_sim.state_dir import WorldInfo
from tpuherd_sim.tpu import host_reports
from tpuherd_sim.tpu.metadata_replies import metadata_response
from tpuherd_sim.tpu.render import json_response

NEWS_S_MAX = 25.0  #: longest wait for news
PLAIN = ("Content-Type", "text/plain; charset=UTF-8")
#: google-auth requires this header of a metadata server.
FLAVOR = ("Metadata-Flavor", "Google")
TOKEN_S = 3599
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


def world_routes(live_world: LiveWorld, world_status: WorldStatus) -> Mapping[str, RouteHandler]:
    """Return the handlers by path or path prefix."""
    facts = world_status.facts

    async def world(request: Request) -> Response:
        return json_response(
            {
                **asdict(world_status.current_info()),
                **world_overview(live_world.world, live_world.current_time()),
            }
        )

    async def nodes(request: Request) -> Response:
        there = live_world.world.nodes
        return json_response(
            {"nodes": sorted(there), "about": [node_row(there[key]) for key in sorted(there)]}
        )

    async def news(request: Request) -> Response:
        """Answer once the log has more lines than the client knows."""
        since = parse_qs(request.query).get("since", ["0"])[0]
        try:
            async with asyncio.timeout(NEWS_S_MAX):
                await live_world.wait_for_log_lines(int(since) if since.isdecimal() else 0)
        except TimeoutError:
            pass  # no news; the client may ask again
        return json_response({"lines": log_length(live_world.world)})

    async def metadata(request: Request) -> Response:
        """Answer google-auth on this machine, whose GCE_METADATA_HOST names the world."""
        return metadata_response(metadata_tree(facts), request)

    async def root(request: Request) -> Response:
        return greeting_page(facts)

    return {
        "/": root,
        "/sim/v1/world": world,
        "/sim/v1/nodes": nodes,
        "/sim/v1/news": news,
        "/computeMetadata/": metadata,
    }


def greeting_page(facts: WorldInfo) -> Response:
    text = (
        f"This is a simulated Cloud TPU (tpuherd {facts.version}), project {facts.project}. "
        f"Its API is at {facts.url}/v2/projects/{facts.project}/locations\n"
    )
    return Response(body=text.encode(), headers=(PLAIN, FLAVOR))


def metadata_tree(facts: WorldInfo) -> Json:
    """Return the metadata that a sign-in needs."""
    email = user_account(facts)
    token = {"access_token": "world.home", "expires_in": TOKEN_S, "token_type": "Bearer"}
    account = {"aliases": ["default"], "email": email, "scopes": SCOPES, "token": token}
    return {
        "instance": {"service-accounts": {"default": account, email: account}},
        "project": {"project-id": facts.project, "numeric-project-id": facts.project_number},
        "universe": {"universe-domain": "googleapis.com"},
    }


def world_overview(world: World, now: float) -> Json:
    return {
        "now": now,
        "seed": world.settings.seed,
        "time_scale": world.settings.time_scale,
        "nodes": count_states(node.state for node in world.nodes.values()),
        "queued_resources": count_states(request.state for request in world.requests.values()),
        "hosts_on": sum(view.on for view in host_reports.host_views(world).values()),
        "rules": len(world.weather.rules),
        "planned": sum(due.verb == "weather.do" for due in world.agenda),
        "log": log_length(world),
    }


def node_row(node: Node) -> Json:
    """What people see of a node, without asking the API."""
    scheduling = node.spec.get("schedulingConfig") or {}
    is_spot = scheduling.get("spot") or scheduling.get("preemptible")
    tier = "spot" if is_spot else "reserved" if scheduling.get("reserved") else "on-demand"
    return {
        "node": node.id,
        "zone": node.zone,
        "type": node.type,
        "tier": tier,
        "state": node.state,
        "hosts": len(node.workers),
    }


def count_states(found: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(found).items()))
