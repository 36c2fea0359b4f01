"""Errors of Compute, of Storage and of Google's front end."""

from xml.sax.saxutils import escape

from tpuherd_sim.model.http_types import ApiError, Json, Response

REASONS = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    405: "httpMethodNotAllowed",
    409: "alreadyExists",
    411: "required",
    412: "conditionNotMet",
    413: "uploadTooLarge",
    416: "requestedRangeNotSatisfiable",
    429: "rateLimitExceeded",
    500: "backendError",
    503: "backendError",
}


#: The first parts of the paths of Storage's JSON API.
STORAGE = frozenset(("storage", "upload", "download", "resumable"))
XML_TYPE = ("Content-Type", "application/xml; charset=UTF-8")
XML_CODES = {
    403: "AccessDenied", 404: "NoSuchKey", 411: "MissingContentLength", 412: "PreconditionFailed",
    416: "InvalidRange", 500: "InternalError", 503: "ServiceUnavailable",
}  # fmt: skip

#: Of Google's front end, without its style.
UNKNOWN_PATH = """<!DOCTYPE html>
<html lang=en><meta charset=utf-8><title>Error 404 (Not Found)!!1</title>
<p><b>404.</b> <ins>That\u2019s an error.</ins>
<p>The requested URL <code>{}</code> was not found on this server.
"""


def unknown_path_page(path: str) -> Response:
    kind = ("Content-Type", "text/html; charset=UTF-8")
    return Response(status=404, body=UNKNOWN_PATH.format(escape(path)).encode(), headers=(kind,))


def xml_error(refused: ApiError) -> Response:
    """Return an error of Storage's XML API."""
    code = XML_CODES.get(refused.http, "InvalidArgument")
    if "bucket does not" in refused.message:
        code = "NoSuchBucket"
    inside = f"<Code>{code}</Code><Message>{escape(refused.message)}</Message>"
    return xml_response(f"<Error>{inside}</Error>", refused.http)


def xml_response(content: str, status: int = 200) -> Response:
    body = f"<?xml version='1.0' encoding='UTF-8'?>{content}".encode()
    return Response(status=status, body=body, headers=(XML_TYPE,))


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
