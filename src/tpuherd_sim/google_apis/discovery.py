"""The discovery documents: what the Cloud TPU API says of itself."""

from tpuherd.catalogue import discovery
from tpuherd_sim.model.http_types import Call, Json, Refused
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.router import Route

NEWEST = "v2"  #: for the client that names no version


def document(call: Call, version: str) -> Json:
    """One version's document. Its URLs are this server's for a client that came straight to it."""
    try:
        known = discovery(version)
    except KeyError:
        raise Refused(
            404, "NOT_FOUND", f"Discovery document not found for API: tpu {version}"
        ) from None
    answer = {name: value for name, value in known.items() if name not in ("date", "source")}
    host = call.request.headers.get("host", "")
    if host and not host.partition(":")[0].endswith("googleapis.com"):
        answer["rootUrl"] = answer["baseUrl"] = f"http://{host}/"
    return answer


def asked(world: World, call: Call, now: float) -> Json:
    """The document of the version in the query."""
    return document(call, call.query.get("version", "") or NEWEST)


def named(world: World, call: Call, now: float) -> Json:
    """The document of the API and version in the path."""
    if call.path["api"] != "tpu":
        raise Refused(404, "NOT_FOUND", f"Discovery document not found for API: {call.path['api']}")
    return document(call, call.path["version"])


ROUTES = (
    Route("GET", "/$discovery/rest", asked),
    Route("GET", "/discovery/v1/apis/{api}/{version}/rest", named),
)
