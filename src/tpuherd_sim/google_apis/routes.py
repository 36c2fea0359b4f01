"""Routes of all APIs beside Cloud TPU."""

from collections.abc import Callable

from tpuherd_sim.google_apis import (
    buckets,
    compute_operations,
    compute_zones,
    discovery,
    enabled_services,
    firewalls,
    networks,
    oauth,
    os_login,
    project,
    project_policy,
    service_accounts,
    service_usage,
)
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu.router import Route

ROUTES: tuple[Route, ...] = (
    *project.ROUTES,
    *compute_operations.ROUTES,
    *firewalls.ROUTES,
    *networks.ROUTES,
    *compute_zones.ROUTES,
    *buckets.ROUTES,
    *enabled_services.ROUTES,
    *service_usage.ROUTES,
    *service_accounts.ROUTES,
    *oauth.ROUTES,
    *os_login.ROUTES,
    *project_policy.ROUTES,
    *discovery.ROUTES,
)
#: These APIs have no timed events.
AGENDA: dict[str, Callable[[World, AgendaItem], None]] = {}
