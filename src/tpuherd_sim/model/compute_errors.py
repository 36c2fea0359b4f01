"""Errors of Compute and Storage."""

from tpuherd_sim.model.http_types import ApiError, Json

REASONS = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    405: "httpMethodNotAllowed",
    409: "alreadyExists",
    412: "conditionNotMet",
    413: "uploadTooLarge",
    429: "rateLimitExceeded",
    500: "backendError",
    503: "backendError",
}


def compute_error_body(version: str, refused: ApiError) -> Json:
    """Return the error body in the old format, with `errors[]` and reasons."""
    reason = REASONS.get(refused.http, "invalid")
    if version == "storage" and refused.http == 409:
        reason = "conflict"
    domain = "global"
    if refused.details:  # the API is disabled
        domain, reason = "usageLimits", "accessNotConfigured"
    one = {"message": refused.message, "domain": domain, "reason": reason}
    error: Json = {"code": refused.http, "message": refused.message, "errors": [one]}
    if refused.details:
        error |= {"status": refused.status, "details": list(refused.details)}
    return {"error": error}


def not_found_error(resource: str) -> ApiError:
    return ApiError(404, "NOT_FOUND", f"The resource '{resource}' was not found")


def already_exists_error(resource: str) -> ApiError:
    return ApiError(409, "ALREADY_EXISTS", f"The resource '{resource}' already exists")


def invalid_value_error(field: str, value: object, rule: str) -> ApiError:
    text = f"Invalid value for field '{field}': '{value}'. {rule}"
    return ApiError(400, "INVALID_ARGUMENT", text)
