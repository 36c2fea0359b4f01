"""Compares single exchanges with what the model serves: methods, errors, fields, types, enums."""

import re
from collections.abc import Mapping
from typing import Any

from tpuherd_sim.compare.differences import Findings
from tpuherd_sim.compare.learned_model import (
    LearnedModel,
    always_served,
    error_of,
    is_known_text,
)
from tpuherd_sim.compare.model_tour import EVERYWHERE_CODES
from tpuherd_sim.compare.seen_messages import (
    VERSIONS,
    Json,
    SeenMessage,
    is_digits,
    is_time,
    split_reply,
    type_name,
)
from tpuherd_sim.compare.transcript_file import Exchange
from tpuherd_sim.handle import world_router
from tpuherd_sim.tpu.errors import CODES, STATUS_OF_HTTP
from tpuherd_sim.tpu.request_schemas import method_schemas, snake_case
from tpuherd_sim.tpu.router import SYSTEM, RouteMatch

PLACEHOLDER = re.compile(r"<[^>]*>")
#: Errors of Cloud TPU whose words the model claims to know.
WORDED = frozenset({"NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"})
WORDED_CODE = 8


def compare_exchange(one: Exchange, model: LearnedModel, findings: Findings) -> None:
    """Add every difference of one exchange."""
    found = world_router().find(one.method, f"/{one.path}")
    if one.status is None:
        return
    if found is None:
        if one.status not in (404, 405):
            path = PLACEHOLDER.sub("*", one.path)
            sentence = f"the model has no {one.method} {path}; the cloud answered {one.status}"
            findings.add("method", f"{one.method} {path}", sentence, one.line)
        return
    version = one.path.partition("/")[0]
    if one.status >= 400:
        compare_error(one, f"{version} {found.name}", model, findings)
    elif one.status != 200:
        sentence = f"{found.name} answered with HTTP {one.status}; the model with 200"
        findings.add("status", found.name, sentence, one.line)
    else:
        compare_query(one, found, findings)
    if one.reply is None:
        if one.status < 400:
            sentence = f"{found.name} answered without a JSON object"
            findings.add("type", found.name, sentence, one.line)
        return
    for message in split_reply(version, found.name, one.status, one.reply):
        compare_message(message, model, findings, one.line)
        compare_status_message(message, model, findings, one.line)


def compare_query(one: Exchange, found: RouteMatch, findings: Findings) -> None:
    """Report parameters that the cloud takes and the model refuses."""
    if found.version not in VERSIONS:
        return
    known = method_schemas(found.version)[found.name].query
    names = {*known, *map(snake_case, known), *SYSTEM}
    for name in one.query:
        if name not in names and not name.startswith("<"):
            sentence = f"{found.name} takes the parameter {name}; the model refuses it"
            findings.add("query", found.name, sentence, one.line)


def compare_error(one: Exchange, method: str, model: LearnedModel, findings: Findings) -> None:
    """Report an error that the model does not have for this method."""
    http, error = one.status or 0, error_of(one.reply or {})
    status, name = str(error.get("status", "")), method.partition(" ")[2]
    is_tpu = method.partition(" ")[0] in VERSIONS
    known = model.errors.get(method, set()) | {
        (code, STATUS_OF_HTTP[code] if is_tpu else status) for code in EVERYWHERE_CODES
    }
    if not error:
        findings.add(
            "error", name, f"{name} answered HTTP {http} without an error object", one.line
        )
    elif error.get("code") != http:
        sentence = f"{name} answered HTTP {http} with the code {error.get('code')}"
        findings.add("error", name, sentence, one.line)
    elif (http, status) not in known:
        word = f" {status}" if status else ""
        sentence = f"{name} answered {http}{word}; the model never does"
        findings.add("error", name, sentence, one.line)
    elif is_tpu and status in WORDED:
        compare_wording(status, error.get("message"), model, findings, one.line)


def compare_wording(
    key: str, text: object, model: LearnedModel, findings: Findings, line: int
) -> None:
    if isinstance(text, str) and not is_known_text(model, key, text):
        findings.add("wording", key, f"{key}: the cloud says: {text}", line)


def compare_status_message(
    message: SeenMessage, model: LearnedModel, findings: Findings, line: int
) -> None:
    """Report codes of failed operations, and reasons of errors, that the model does not have."""
    if message.kind == "Status":
        code = message.fields.get("code")
        if isinstance(code, int) and code not in model.codes | {3, 6}:
            name = CODES[code][0] if code in CODES else "no google.rpc code"
            sentence = f"an operation failed with code {code} ({name}); the model's never do"
            findings.add("error", "Status.code", sentence, line)
        elif code == WORDED_CODE:
            text = message.fields.get("message")
            compare_wording(f"code {code}", text, model, findings, line)
    reason = message.fields.get("reason")
    if message.kind == "ErrorInfo" and isinstance(reason, str) and reason not in model.reasons:
        sentence = f"an error has the reason {reason}, which the model never gives"
        findings.add("error", "ErrorInfo.reason", sentence, line)


def compare_message(
    message: SeenMessage, model: LearnedModel, findings: Findings, line: int
) -> None:
    """Report fields that are new, missing, or of another type, form or set of values."""
    types = model.types.get(message.kind)
    for name, value in message.fields.items():
        if name.startswith(("<", "@")):
            continue
        place, shape = f"{message.kind}.{name}", message.shapes.get(name)
        if types is not None and name not in types:
            about = "the API documents it" if shape is not None else "no document has it"
            findings.add("field", place, f"{place}: the model never serves it; {about}", line)
            continue
        expected = types[name] if types is not None else {type_name(value)}
        if type_name(value) not in expected:
            sentence = (
                f"{place} is {type_name(value)}; the model's is {' or '.join(sorted(expected))}"
            )
            findings.add("type", place, sentence, line)
        elif shape is not None:
            compare_form(place, shape, value, findings, line)
    always = always_served(model, message.kind, message.state)
    for name in sorted(always - message.fields.keys()):
        place = f"{message.kind}.{name}"
        when = f" in {message.state}" if message.state else ""
        findings.add(
            "missing", place, f"{place} is missing{when}; the model always serves it", line
        )


def compare_form(
    place: str, shape: Mapping[str, Any], value: object, findings: Findings, line: int
) -> None:
    """Compare a value with its documented form; the form of lists is that of their items."""
    if isinstance(value, list):
        for one in value:
            compare_form(place, shape.get("items", {}), one, findings, line)
        return
    if not isinstance(value, str) or not value:
        return
    form = str(shape.get("format", ""))
    if "enum" in shape and value not in shape["enum"]:
        findings.add("enum", place, f"{place} has the value {value}, which no document lists", line)
    elif form == "google-datetime" and not is_time(value):
        findings.add("type", place, f"{place} is not a time", line)
    elif form in ("int64", "uint64") and not is_digits(value):
        findings.add("type", place, f"{place} is not a number in a string", line)


def items_of(reply: Json | None, field: str) -> list[Json]:
    """Return the resources in a list reply."""
    found = reply.get(field) if reply is not None else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
