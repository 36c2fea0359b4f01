"""OAuth tokens for any caller, and the project as the Resource Manager shows it."""

import hashlib
import json
from urllib.parse import parse_qsl

from tpuherd_sim.google_apis.bucket_access import caller_name
from tpuherd_sim.google_apis.project_policy import CLOUD_SCOPE, check_own_project
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json, Response
from tpuherd_sim.model.world import World
from tpuherd_sim.tpu.errors import JSON_HEADERS
from tpuherd_sim.tpu.router import Route
from tpuherd_sim.tpu.timestamps import format_timestamp

LIFE_S = 3599
#: The required parameter of each grant type.
GRANTS = {
    "urn:ietf:params:oauth:grant-type:jwt-bearer": "assertion",
    "refresh_token": "refresh_token",
    "authorization_code": "code",
}


def form_fields(call: ApiCall) -> dict[str, str]:
    """Return the parameters: an OAuth form or JSON, and the query."""
    if call.body:
        return {name: value for name, value in call.body.items() if isinstance(value, str)}
    text = f"{call.request.query}&{call.request.body.decode('utf-8', 'replace')}"
    return dict(parse_qsl(text))


def issue_token(world: World, call: ApiCall, now: float) -> Json | Response:
    """Issue an access token. Only the form of the request is checked: every token is valid here."""
    sent = form_fields(call)
    grant = sent.get("grant_type", "")
    if grant not in GRANTS:
        return oauth_error("unsupported_grant_type", f"Invalid grant_type: {grant}")
    if not sent.get(GRANTS[grant]):
        return oauth_error("invalid_request", f"Missing required parameter: {GRANTS[grant]}")
    seed = f"{world.settings.seed}:{now}:{sent[GRANTS[grant]]}".encode("utf-8", "backslashreplace")
    answer: Json = {
        "access_token": f"ya29.world-{hashlib.blake2b(seed, digest_size=16).hexdigest()}",
        "expires_in": LIFE_S,
        "token_type": "Bearer",
    }
    if grant != "urn:ietf:params:oauth:grant-type:jwt-bearer":
        answer["scope"] = CLOUD_SCOPE
    if grant == "authorization_code":
        answer["refresh_token"] = f"1//world-{hashlib.blake2b(seed, digest_size=8).hexdigest()}"
    return answer


def oauth_error(error: str, description: str) -> Response:
    content = json.dumps({"error": error, "error_description": description})
    return Response(status=400, body=content.encode(), headers=JSON_HEADERS)


def get_token_info(world: World, call: ApiCall, now: float) -> Json | Response:
    sent = form_fields(call)
    if not any(sent.get(name) for name in ("access_token", "id_token")):
        return oauth_error("invalid_token", "Invalid Value")
    return {
        "azp": f"{world.settings.project_number}",
        "aud": f"{world.settings.project_number}",
        "scope": CLOUD_SCOPE,
        "exp": str(int(now) + LIFE_S),
        "expires_in": str(LIFE_S),
        "email": caller_name(world, call.request),
        "email_verified": "true",
        "access_type": "online",
    }


def revoke_token(world: World, call: ApiCall, now: float) -> Json:
    return {}


def get_allowed_locations(world: World, call: ApiCall, now: float) -> Json:
    """Answer with an error, from which google-auth concludes that the account may be
    used anywhere.
    """
    raise ApiError(404, "NOT_FOUND", "Requested entity was not found.")


# -- the project ----------------------------------------------------------------------------------


def get_project(world: World, call: ApiCall, now: float) -> Json:
    """Return the project in the format of Resource Manager v1."""
    check_own_project(world, call)
    return {
        "projectNumber": str(world.settings.project_number),
        "projectId": world.settings.project,
        "lifecycleState": "ACTIVE",
        "name": world.settings.project,
        "createTime": format_timestamp(world.settings.created),
    }


def get_project_v3(world: World, call: ApiCall, now: float) -> Json:
    """Return the project in the format of Resource Manager v3."""
    check_own_project(world, call)
    return {
        "name": f"projects/{world.settings.project_number}",
        "projectId": world.settings.project,
        "state": "ACTIVE",
        "displayName": world.settings.project,
        "createTime": format_timestamp(world.settings.created),
        "updateTime": format_timestamp(world.settings.created),
        "etag": 'W/"world"',
    }


TOKEN_ROUTES = (
    *(
        Route("POST", path, issue_token)
        for path in ("/token", "/o/oauth2/token", "/oauth2/v4/token", "/oauth2/v3/token")
    ),
    *(
        Route(method, path, get_token_info)
        for method in ("GET", "POST")
        for path in ("/tokeninfo", "/oauth2/v1/tokeninfo", "/oauth2/v3/tokeninfo")
    ),
    *(Route("POST", path, revoke_token) for path in ("/revoke", "/o/oauth2/revoke")),
)
ACCOUNT_ROUTES = (
    Route(
        "GET",
        "/v1/projects/{project}/serviceAccounts/{account}/allowedLocations",
        get_allowed_locations,
    ),
)
PROJECT_ROUTES = (
    Route("GET", "/v1/projects/{project}", get_project),
    Route("GET", "/v3/projects/{project}", get_project_v3),
)
