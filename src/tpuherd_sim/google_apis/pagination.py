"""Pages, orders and filters of Compute's and Storage's lists, and chosen fields of any response."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tpuherd_sim.google_apis.links import SELF
from tpuherd_sim.model.compute_errors import invalid_value_error
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json

Query = Mapping[str, str]
Test = Callable[[Json], bool]
QUOTED = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
VALUE = rf"{QUOTED}|(?:[^\s()\"']|\([^\s()]*\))+"
CONDITION = re.compile(rf"([A-Za-z][\w.-]*)(?:\s*(!=|[=:])\s*|\s+(eq|ne)\s+)({VALUE})", re.ASCII)
TOKEN = re.compile(rf"[()]|(?:AND|OR|NOT)\b|{CONDITION.pattern}", re.ASCII)
TOKENS_MAX = 200  #: which also limits how deep parentheses go


def paginate_items(items: Sequence[Json], query: Query, most: int = 500) -> Json:
    """Return one page of the items that match the filter."""
    items = list(filter(parse_filter(query.get("filter", "")), items))
    return take_page("items", items, query, most, "maxResults")


def take_page(
    field: str, items: Sequence[Json], query: Query, most: int = 500, size: str = "pageSize"
) -> Json:
    """Return the requested page as `field`, and the token of the next one if there is one."""
    count = min(query_integer(query, size, most), most) or most
    start = query_integer(query, "pageToken", 0)
    page = items[start : start + count]
    answer: Json = {field: page} if page else {}
    if start + count < len(items):
        answer["nextPageToken"] = str(start + count)
    return answer


def list_response(kind: str, path: str, items: Sequence[Json], call: ApiCall) -> Json:
    """Return the response of a Compute list such as projects/demo/zones."""
    order = call.query.get("orderBy") or "name"
    if order not in ("name", "creationTimestamp desc"):
        rule = "Only 'name' and 'creationTimestamp desc' are supported."  # words assumed
        raise invalid_value_error("orderBy", order, rule)
    field = order.partition(" ")[0]
    items = sorted(items, key=lambda one: str(one.get(field, "")), reverse=field != "name")
    return {
        "kind": f"compute#{kind}",
        "id": path,
        **paginate_items(items, call.query),
        "selfLink": f"{SELF}{path}",
    }


def select_fields(content: Json, text: str) -> Any:
    """Return what `fields` names of a response, such as items(name,owner/id),kind."""
    path: tuple[str, ...] = ()
    found, outer = list[tuple[str, ...]](), [path]
    for token in re.findall(r"[^/,()]+|[/,()]", f"{text},"):
        if token == "(":
            outer.append(path)
        elif token in ",)":
            found += [path] if path else []
            path = outer[-1] if token == "," else ()
            if token == ")" and outer.pop() == ():
                break
        elif token != "/":
            path = (*path, token)
    if outer != [()]:
        raise ApiError(400, "INVALID_ARGUMENT", f"Invalid field selection {text}")
    return cut_fields(content, found)


def cut_fields(value: Any, paths: Sequence[tuple[str, ...]]) -> Any:
    if isinstance(value, list):
        return [cut_fields(one, paths) for one in value]
    if not isinstance(value, dict) or () in paths:
        return value
    kept = {name: [path[1:] for path in paths if path[0] in (name, "*")] for name in value}
    return {name: cut_fields(value[name], inner) for name, inner in kept.items() if inner}


def query_integer(query: Query, name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise invalid_value_error(name, text, "Must be a whole number that is not negative.")
    return int(text)


# -- filters --------------------------------------------------------------------------------------


def parse_filter(text: str) -> Test:
    """Return what a filter such as `(name = a) OR (name = b)` says of an item.

    As in Google's AIP 160, OR binds more closely than AND, which may be left out.
    """
    if not text.strip():
        return lambda item: True
    tokens = [found[0] for found in TOKEN.finditer(text)][::-1]
    operators = {found[3] or "" for found in map(CONDITION.fullmatch, tokens) if found}
    mixed = "" in operators and len(operators) > 1  # regular expressions with other conditions
    try:
        if TOKEN.sub("", text).strip() or mixed or len(tokens) > TOKENS_MAX:
            raise ValueError
        test = parse_all(tokens)
        if tokens:
            raise ValueError
    except (ValueError, IndexError, re.error):
        raise invalid_value_error("filter", text, "Invalid list filter expression.") from None
    return test


def parse_all(tokens: list[str]) -> Test:
    """Parse conditions that must all be met; the next token is the last of the list."""
    groups = [[parse_one(tokens)]]
    while tokens and tokens[-1] != ")":
        joint = tokens.pop() if tokens[-1] in ("AND", "OR") else "AND"
        if joint == "AND":
            groups.append([])
        groups[-1].append(parse_one(tokens))
    return lambda item: all(any(test(item) for test in group) for group in groups)


def parse_one(tokens: list[str]) -> Test:
    """Parse a condition, a negation or what is in parentheses."""
    token = tokens.pop()
    if token == "NOT":
        denied = parse_one(tokens)
        return lambda item: not denied(item)
    if token != "(":
        return parse_condition(token)
    inner = parse_all(tokens)
    if tokens.pop() != ")":
        raise ValueError
    return inner


def parse_condition(token: str) -> Test:
    found = CONDITION.fullmatch(token)
    if found is None:
        raise ValueError
    path, sign, wanted = found[1].split("."), found[2] or found[3], found[4]
    if wanted[0] in "\"'":
        wanted = re.sub(r"\\([\"'])", r"\1", wanted[1:-1])
    elif "(" in wanted and found[2]:
        raise ValueError  # a function or a list of values
    fits, negated = value_pattern(sign, wanted).fullmatch, sign in ("!=", "ne")
    return lambda item: any(map(fits, field_values(item, path))) != negated


def value_pattern(sign: str, wanted: str) -> re.Pattern[str]:
    """Return what the value of a condition must be; an asterisk stands for anything."""
    if sign in ("eq", "ne"):
        return re.compile(wanted)
    pattern = ".*".join(map(re.escape, wanted.split("*")))
    if sign == ":":
        pattern = f"(?i){pattern}" if "*" in wanted else f"(?i).*{pattern}.*"
    return re.compile(pattern, re.DOTALL)


def field_values(item: Any, path: Sequence[str]) -> Iterator[str]:
    """Yield the values of a field: of a list those of all its parts, of a map its keys."""
    if isinstance(item, list):
        for one in item:
            yield from field_values(one, path)
    elif path:
        if isinstance(item, dict) and path[0] in item:
            yield from field_values(item[path[0]], path[1:])
    elif isinstance(item, dict):
        yield from item
    else:
        yield str(item).lower() if isinstance(item, bool) else str(item)
