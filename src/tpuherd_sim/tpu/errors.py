"""Errors of the Cloud TPU API, with the texts that users reported."""

import hashlib
import json

from tpuherd_sim.model.compute_errors import STORAGE, compute_error_body, xml_error
from tpuherd_sim.model.http_types import ApiError, Json, Response
from tpuherd_sim.model.records import RpcStatus
from tpuherd_sim.model.world import World

JSON_HEADERS = (("content-type", "application/json; charset=UTF-8"),)
STATUS_OF_HTTP = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
#: Texts for errors that the weather specifies only by number.
TEXT_OF_HTTP = {
    400: "Request contains an invalid argument.",
    401: "Request had invalid authentication credentials. Expected OAuth 2 access token, login "
    "cookie or other valid authentication credential. See "
    "https://developers.google.com/identity/sign-in/web/devconsole-project.",
    403: "The caller does not have permission",
    404: "Requested entity was not found.",
    409: "The operation was aborted.",
    429: "Quota exceeded for quota metric 'Maximum number of API requests per minute' and limit "
    "'Maximum number of API requests per minute' of service 'tpu.googleapis.com' for consumer "
    "'project_number:{number}'.",
    500: "Internal error encountered.",
    503: "Internal error. Please try again",
}
TEXT_OF_CODE = {
    1: "The operation was cancelled.",
    4: "The operation could not be completed within the time allowed.",
    5: "Reservation not found",
    7: "User does not have permission to submit requests for this accelerator type.",
    8: 'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud '
    "TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions) [EID: {eid}]",
    9: "Insufficient reserved capacity. Contact customer support to increase your reservation. "
    "[EID: {eid}]",
    10: "The operation was aborted.",
    13: "an internal error has occurred",
    14: "Internal error. Please try again",
}


def error_id(world: World, now: float, text: str) -> str:
    """Return the error id that Google appends to some texts. It is a hash, because reads must not
    use up random numbers.
    """
    given = f"{world.settings.seed}:{now}:{text}".encode()
    return "0x" + hashlib.blake2b(given, digest_size=8).hexdigest().lstrip("0")


def render_error(refused: ApiError, version: str) -> Response:
    """Return the error in the format of that API version."""
    if refused.http == 304:
        return Response(status=304)
    if version == "_xml":
        return xml_error(refused)
    if version in STORAGE:
        content = compute_error_body("storage", refused)
    elif version == "compute":
        content = compute_error_body(version, refused)
    else:
        error: Json = {"code": refused.http, "message": refused.message, "status": refused.status}
        if refused.details:
            error["details"] = list(refused.details)
        content = {"error": error}
    return Response(
        status=refused.http, body=json.dumps(content, indent=2).encode(), headers=JSON_HEADERS
    )


def bad_request_error(world: World, now: float, text: str) -> ApiError:
    """Return a refusal by the service itself, with an error id."""
    return ApiError(400, "INVALID_ARGUMENT", bad_request_text(world, now, text))


def bad_request_text(world: World, now: float, text: str) -> str:
    """Return the text of `bad_request_error`, for operations."""
    return f"Cloud TPU received a bad request. {text} [EID: {error_id(world, now, text)}]"


def wrong_state_error(world: World, now: float, verb: str, state: str) -> ApiError:
    return bad_request_error(world, now, f"{verb} is not supported while in state {state}")


def invalid_request_error(message: str, *, field: str = "", description: str = "") -> ApiError:
    """Return a refusal of a malformed request."""
    violation = {"field": field} if field else {}
    violation["description"] = description or message
    details: Json = {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [violation],
    }
    return ApiError(400, "INVALID_ARGUMENT", message, details=(details,))


def precondition_error(message: str) -> ApiError:
    return ApiError(400, "FAILED_PRECONDITION", message)


def not_found_error(name: str) -> ApiError:
    text = f"Resource '{name}' was not found"
    return ApiError(404, "NOT_FOUND", text, details=(resource_info(name),))


def already_exists_error(name: str) -> ApiError:
    text = f"Resource '{name}' already exists"
    return ApiError(409, "ALREADY_EXISTS", text, details=(resource_info(name),))


def resource_info(name: str) -> Json:
    return {"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": name}


def error_info(reason: str, domain: str, **metadata: str) -> Json:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": domain,
        "metadata": metadata,
    }


def zone_denied_error(world: World, zone: str) -> ApiError:
    """Return the error for a zone that does not exist or is not allowed."""
    details = error_info(
        "LOCATION_POLICY_VIOLATED",
        "googleapis.com",
        consumer=f"projects/{world.settings.project_number}",
        location=zone,
        service="tpu.googleapis.com",
    )
    message = f"Permission denied on 'locations/{zone}' (or it may not exist)."
    return ApiError(403, "PERMISSION_DENIED", message, details=(details,))


def permission_denied_error(permission: str, resource: str) -> ApiError:
    details = error_info(
        "IAM_PERMISSION_DENIED", "iam.googleapis.com", permission=permission, resource=resource
    )
    message = (
        f"Permission '{permission}' denied on resource "
        f"'//tpu.googleapis.com/{resource}' (or it may not exist)."
    )
    return ApiError(403, "PERMISSION_DENIED", message, details=(details,))


def quota_error(world: World, message: str, *, limit_id: str, metric: str, place: str) -> ApiError:
    """Return the error for an exhausted quota or rate limit."""
    number = world.settings.project_number
    details = (
        error_info(
            "RATE_LIMIT_EXCEEDED",
            "googleapis.com",
            service="tpu.googleapis.com",
            consumer=f"projects/{number}",
            quota_limit=limit_id,
            quota_metric=metric,
            quota_location=place,
        ),
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"subject": f"project:{number}", "description": message}],
        },
    )
    return ApiError(429, "RESOURCE_EXHAUSTED", message, details=details)


def weather_error(world: World, http: int, status: str, message: str) -> ApiError:
    """Return the error that a weather rule specifies."""
    text = message or TEXT_OF_HTTP.get(http, "Internal error encountered.")
    text = text.replace("{number}", str(world.settings.project_number))
    return ApiError(http, status or STATUS_OF_HTTP.get(http, "UNKNOWN"), text)


def operation_error(world: World, now: float, zone: str, code: int, message: str = "") -> RpcStatus:
    """Return the error status of an operation."""
    text = message or TEXT_OF_CODE.get(code, "an internal error has occurred")
    text = text.replace("{zone}", zone)
    return RpcStatus(code=code, message=text.replace("{eid}", error_id(world, now, text)))
