"""Counts of a world's resources, for `herd sim status`."""

from collections import Counter
from collections.abc import Iterable

from tpuherd_sim.model.http_types import Json
from tpuherd_sim.model.world import World, log_length
from tpuherd_sim.tpu import host_reports


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


def count_states(found: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(found).items()))
