"""Discovery documents of the Cloud TPU API."""

from tpuherd.catalogue import discovery
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, google_host
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

NEWEST = "v2"  #: for clients that name no version


def discovery_document(call: ApiCall, version: str) -> Json:
    """Return one version's document; its URLs are this server's if the client connected
    directly.
    """
    try:
        known = discovery(version)
    except KeyError:
        raise ApiError(
            404, "NOT_FOUND", f"Discovery document not found for API: tpu {version}"
        ) from None
    answer = {name: value for name, value in known.items() if name not in ("date", "source")}
    host = call.request.headers.get("host", "")
    if host and not google_host(call.request):
        answer["rootUrl"] = answer["baseUrl"] = f"http://{host}/"
    return answer


def get_document_by_query(world: World, call: ApiCall, now: float) -> Json:
    return discovery_document(call, call.query.get("version", "") or NEWEST)


def get_document_by_path(world: World, call: ApiCall, now: float) -> Json:
    if call.path["api"] != "tpu":
        raise ApiError(
            404, "NOT_FOUND", f"Discovery document not found for API: {call.path['api']}"
        )
    return discovery_document(call, call.path["version"])


QUERY_ROUTES = (Route("GET", "/$discovery/rest", get_document_by_query),)
PATH_ROUTES = (Route("GET", "/discovery/v1/apis/{api}/{version}/rest", get_document_by_path),)
