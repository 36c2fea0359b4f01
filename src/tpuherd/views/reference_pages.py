"""The pages of docs/reference on events and JSON, generated from the tables in use."""

from collections.abc import Iterator, Mapping
from typing import Any

from tpuherd.accounting.goodput import MEANINGS, PARTS, REST
from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.views.json_schemas import SCHEMAS
from tpuherd.views.json_schemas_of_writing import SCHEMAS as OF_WISHES

EVENTS_HEAD = """\
# Events

*Written by `make docs` from the tables of the log.* How to look at them:
[watch a job](../howto/watching.md).

Everything that herd does or learns is a line in the log, with the reason that a person reads in
`why`. Lines are only added. What changes the cloud is written before it is done. `herd events`
shows them; with `--json` each line is an object with `seq`, `at`, `kind`, `job`, `slot` and the
facts of its kind ([schema](json.md#herd-events---json)). A newer herd may know more kinds and more
facts: pass over what you do not know.

| kind | always has | |
|---|---|---|
"""

STATES_HEAD = """
## Where the time goes

From its wish on, a slot is in one state at any time, and the times add up exactly. What an attempt
worked beyond the checkpoint that the next one resumed from turns from *productive* to *wasted*.
Goodput is *productive* by all but the states marked with ✓. A command that tells of no steps is
productive from its start.

| state | | not wanted |
|---|---|---|
"""

PARTS_HEAD = """
A loss is told from the last sign of the attempt that ended to the first step of the next one:

| part | states |
|---|---|
"""

JSON_HEAD = """\
# JSON

*Written by `make docs` from the schemas that the tests hold the commands to.*

Fields may be added; none is taken away or changes its meaning within a version. Times are seconds
since 1970, durations seconds, money dollars. What is not known is `null`.
"""


def events_page() -> str:
    """docs/reference/events.md"""
    rows = [
        f"| `{kind.name}` | {code_words(sorted(kind.facts))} | {kind.meaning} |"
        for kind in EVENT_KINDS.values()
    ]
    states = [
        f"| `{state}` | {meaning} | {'✓' if state in REST else ''} |"
        for state, meaning in MEANINGS.items()
    ]
    parts = [f"| {part} | {code_words(map(str, states))} |" for part, states in PARTS.items()]
    tables = ((EVENTS_HEAD, rows), (STATES_HEAD, states), (PARTS_HEAD, parts))
    return "".join(head + "\n".join(lines) + "\n" for head, lines in tables)


def code_words(names: Any) -> str:
    """`a` `b`"""
    return " ".join(f"`{name}`" for name in names)


def json_page() -> str:
    """docs/reference/json.md"""
    parts = [JSON_HEAD]
    for command, schema in {**SCHEMAS, **OF_WISHES}.items():
        several = schema["type"] == "array"
        one = schema["items"] if several else schema
        head = "A list of objects:" if several else "An object:"
        if command == "herd events --json":
            head = "An object on each line, and beside these the facts of its [kind](events.md):"
        elif command == "herd logs NAME --json":
            head = "An object for each line that was said:"
        rows = "\n".join(field_rows(one, ""))
        parts.append(f"## {command}\n\n{head}\n\n| field | type | |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def field_rows(schema: Mapping[str, Any], above: str) -> Iterator[str]:
    """A row for each field, those of objects in lists after it."""
    for name, field in schema["properties"].items():
        meaning = str(field.get("description", "")).replace("|", "\\|")
        yield f"| `{above}{name}` | {type_name(field)} | {meaning} |"
        below = field.get("items")
        if below and "properties" in below and "seq" not in below["properties"]:
            yield from field_rows(below, f"{above}{name}[].")


def type_name(schema: Mapping[str, Any]) -> str:
    """Its type in a word."""
    if "anyOf" in schema:
        return f"{type_name(schema['anyOf'][0])} or null"
    if "enum" in schema:
        return "one of a few words"
    if schema["type"] == "array":
        below = schema["items"]
        if "seq" in below.get("properties", {}):
            return "events"
        word = type_name(below)
        return f"list of {word.replace('list', 'lists', 1) if 'items' in below else word + 's'}"
    name = str(schema["type"])
    return {"integer": "whole number", "boolean": "true or false", "string": "text"}.get(name, name)
