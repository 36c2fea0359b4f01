"""How Compute and Storage say no."""

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
    """The error body: the old shape, with `errors[]` and a reason in each."""
    reason = REASONS.get(refused.http, "invalid")
    if version == "storage" and refused.http == 409:
        reason = "conflict"
    one = {"message": refused.message, "domain": "global", "reason": reason}
    return {"error": {"code": refused.http, "message": refused.message, "errors": [one]}}


def not_found_error(resource: str) -> ApiError:
    """There is nothing of that name."""
    return ApiError(404, "NOT_FOUND", f"The resource '{resource}' was not found")


def already_exists_error(resource: str) -> ApiError:
    """There is one of that name already."""
    return ApiError(409, "ALREADY_EXISTS", f"The resource '{resource}' already exists")


def invalid_value_error(field: str, value: object, rule: str) -> ApiError:
    """A field of the body is not as it must be."""
    text = f"Invalid value for field '{field}': '{value}'. {rule}"
    return ApiError(400, "INVALID_ARGUMENT", text)
