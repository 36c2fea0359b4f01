"""The pages of docs/reference on events and on JSON, from the tables that are really used."""

from collections.abc import Iterator, Mapping
from typing import Any

from tpuherd.accounting.goodput import MEANINGS, PARTS, REST
from tpuherd.history.apply_event import KINDS
from tpuherd.views.json_schemas import SCHEMAS
from tpuherd.views.json_schemas_of_writing import SCHEMAS as OF_WISHES

#: What each kind of event means.
EVENTS: Mapping[str, str] = {
    "wish.made": "a job was wished, or one that had ended was wished again: `who`",
    "wish.changed": "fields of it were changed: `who`, `difference`",
    "wish.stopped": "it was stopped, and is kept: `who`",
    "wish.resumed": "it goes on: `who`",
    "wish.dropped": "it was dropped: `who`",
    "bid.asked": "a node is asked for, or once more where no answer came; written down before the"
    " cloud is called; `offer` has `zone`, `type`, `tier`, `runtime`, `kind`, `price`",
    "bid.answered": "the cloud has taken the request",
    "bid.refused": "it said no: `refusal` is stockout, rate, quota, reservation, permission,"
    " configuration, taken or broken",
    "bid.granted": "it makes the node",
    "bid.ready": "the node is READY",
    "bid.sick": "it is being repaired, maintained, or called unhealthy",
    "bid.well": "no more",
    "bid.noticed": "a host was told that it goes away",
    "bid.missed": "the cloud's lists do not show it; believed when it is so again",
    "bid.seen": "they show it again",
    "bid.lost": "it is gone: `how` is preempted, terminated, vanished, …",
    "bid.freed": "it was withdrawn and its nodes are gone, so that it costs nothing any more; the"
    " cloud still lists its request",
    "bid.withdrawn": "it is given back, or once more where no answer came; written down before",
    "bid.gone": "nothing of it is left",
    "bid.adopted": "it was there, and this store had not known of it: all that could be found out",
    "node.quarantined": "its chips did not come up again and again: it is not used any more",
    "slot.prepared": "all its hosts have the code and are set up",
    "slot.unprepared": "setup failed: `hosts` with `exit` and last lines; or yours is `missing`",
    "slot.collected": "outputs and logs are here",
    "slot.uncollected": "they could not be fetched; it is tried again",
    "slot.done": "it has succeeded",
    "slot.gave_up": "it is not tried any more",
    "attempt.launched": "the command is started on all hosts; written down before; `trial` where"
    " it is one of a sweep",
    "attempt.started": "every host has answered that it runs",
    "attempt.stepped": "it told of its first step: `step`, and where the command tells `resumed`,"
    " the step of its checkpoint, and `restore_s`, the seconds it took to read that;"
    " `startup` has the other parts of its start, in seconds",
    "attempt.saved": "a durable checkpoint covers `step`; once a minute at most, later more rarely",
    "attempt.stopping": "it is being stopped: `grace_s` between TERM and KILL; `last_at` is"
    " its last sign of life until then, `node_fault` says that its node is to blame",
    "attempt.ended": "how, for all hosts at once: `verdict` is success, failure, preempted, node"
    " fault, stopped, stalled or lost; `host` failed first, with `exit` and its last `lines`;"
    " `step` is the furthest that was told of, `last_at` the last sign of work",
    "attempt.stacks": "the stacks of its processes are in `file`",
    "trial.made": "a sweep has another trial: `params`, and `run`, its RUN_ID; `metric` and"
    " `wanted` judge it",
    "trial.given": "a free slot works on it: `resumed` where it has run before, `spent` what it has"
    " used up of its budgets",
    "trial.waits": "its node is gone and nobody can be running it: it goes on where a slot is free,"
    " before any new one",
    "trial.told": "its metric is `value` at `step`; null is no number. Each 5 s at most, later more"
    " rarely, and the last before its end",
    "trial.ended": "once and for all: `how` is complete, pruned or failed; its value is the last"
    " that it told",
    "host.nonsense": "a host, or a script on it, said what makes no sense, `many` times by now: it"
    " is counted, and not used",
    "host.failed": "an error that nobody has foreseen, `what`, came of what a host said: that host"
    " alone is left for a while",
    "log.removed": "the job's logs were more than is kept here: its oldest, `log`, was removed",
    "log.trimmed": "the log of `attempt` on `host` is longer than what is kept of it here: its end"
    " stays",
    "engine.started": "an engine took the lease: `pid`, `host`, `epoch`",
    "engine.stopped": "it gave the lease back; `why` is rest when nothing was left to do,"
    " gone when its world was gone, moved when it goes on with it at another address",
    "engine.crashed": "it ended unexpectedly: `count` in a row, the next one waits `again_s`",
    "engine.frozen": "nothing is deleted for now: too much is silent or missing at once",
    "engine.thawed": "deletions go on",
    "engine.trouble": "something is wrong that a person must see to; work goes on",
    "store.set_aside": "it was damaged; this one has what could be read of it: `file`, `jobs`",
    "store.recovered": "what the cloud shows and the damaged store did not was added: `bids`",
}

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
        f"| `{kind}` | {code_words(sorted(KINDS.get(kind, ())))} | {meaning} |"
        for kind, meaning in EVENTS.items()
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
