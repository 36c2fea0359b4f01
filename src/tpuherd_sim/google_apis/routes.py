"""Routes of all APIs beside Cloud TPU, by the hosts that have them."""

from collections.abc import Callable, Mapping
from itertools import chain

from tpuherd_sim.google_apis import (
    buckets,
    compute_lists,
    compute_operations,
    discovery,
    enabled_services,
    firewalls,
    networks,
    oauth,
    object_methods,
    objects,
    os_login,
    project,
    project_policy,
    service_accounts,
    service_usage,
    uploads,
    xml_objects,
)
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import AgendaItem
from tpuherd_sim.tpu.router import Route

COMPUTE = (
    *project.ROUTES, *compute_operations.ROUTES, *compute_lists.ROUTES, *firewalls.ROUTES,
    *networks.ROUTES,
)  # fmt: skip
STORAGE = (*buckets.ROUTES, *object_methods.ROUTES, *uploads.ROUTES)
#: What each of Google's hosts serves. An address of the world serves all of it.
HOSTS: Mapping[str, tuple[Route, ...]] = {
    "compute.googleapis.com": COMPUTE,
    "storage.googleapis.com": (*STORAGE, *xml_objects.ROUTES),
    "serviceusage.googleapis.com": (*enabled_services.ROUTES, *service_usage.ROUTES),
    "iam.googleapis.com": service_accounts.ROUTES,
    "iamcredentials.googleapis.com": oauth.ACCOUNT_ROUTES,
    "cloudresourcemanager.googleapis.com": (*oauth.PROJECT_ROUTES, *project_policy.ROUTES),
    "oslogin.googleapis.com": os_login.ROUTES,
    "oauth2.googleapis.com": oauth.TOKEN_ROUTES,
    "accounts.google.com": oauth.TOKEN_ROUTES,
    "discovery.googleapis.com": discovery.PATH_ROUTES,
    "tpu.googleapis.com": discovery.QUERY_ROUTES,
    "www.googleapis.com": (*COMPUTE, *STORAGE, *oauth.TOKEN_ROUTES, *discovery.PATH_ROUTES),
}
ROUTES = tuple(dict.fromkeys(chain.from_iterable(HOSTS.values())))
AGENDA: dict[str, Callable[[World, AgendaItem], None]] = {**objects.AGENDA, **uploads.AGENDA}
