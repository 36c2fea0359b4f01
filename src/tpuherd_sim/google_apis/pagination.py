"""Pages and filters of Compute's and Storage's lists."""

import re
from collections.abc import Mapping, Sequence

from tpuherd_sim.google_apis.links import SELF
from tpuherd_sim.model.compute_errors import invalid_value_error
from tpuherd_sim.model.http_types import ApiCall, Json

CONDITION = re.compile(r"\(?\s*([\w.]+)\s*(=|!=|:|eq|ne)\s*(.*?)\s*\)?")


def paginate_items(items: Sequence[Json], query: Mapping[str, str], most: int = 500) -> Json:
    """Return one page: `items`, and the token of the next page if there is one."""
    items = [one for one in items if is_filter_match(one, query.get("filter", ""))]
    size = query_integer(query, "maxResults", most)
    size = min(size, most) or most
    start = query_integer(query, "pageToken", 0)
    answer: Json = {"items": items[start : start + size]} if items[start : start + size] else {}
    if start + size < len(items):
        answer["nextPageToken"] = str(start + size)
    return answer


def list_response(kind: str, path: str, items: Sequence[Json], call: ApiCall) -> Json:
    """Return the response of a Compute list such as projects/demo/zones."""
    return {
        "kind": f"compute#{kind}",
        "id": path,
        **paginate_items(items, call.query),
        "selfLink": f"{SELF}{path}",
    }


def query_integer(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise invalid_value_error(name, text, "Must be a whole number that is not negative.")
    return int(text)


def is_filter_match(item: Json, condition: str) -> bool:
    """Whether an item matches a filter of one condition, such as `name=x` or `name eq x.*`."""
    if not condition.strip():
        return True
    found = CONDITION.fullmatch(condition.strip())
    if found is None:
        raise invalid_value_error("filter", condition, "Invalid list filter expression.")
    field, operator, wanted = found.groups()
    wanted = wanted.strip("\"'")
    value = str(item.get(field, ""))
    if operator == ":":
        return value != "" if wanted == "*" else wanted.casefold() in value.casefold()
    if operator in ("=", "!="):
        return (value == wanted) == (operator == "=")
    try:
        matches = re.fullmatch(wanted, value) is not None
    except re.error:
        raise invalid_value_error("filter", condition, "Invalid list filter expression.") from None
    return matches == (operator == "eq")
