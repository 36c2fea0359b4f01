"""JSON Schemas of the commands that read; the docs print them."""

from collections.abc import Iterable, Mapping
from typing import Any

from tpuherd.accounting.goodput import MEANINGS, PARTS, STARTUP
from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.views.trouble_line import TITLES

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": TEXT}


def or_null(schema: Schema) -> Schema:
    """Allow null, which means unknown."""
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def map_of(names: Iterable[str] | None, schema: Schema) -> Schema:
    if names is None:
        return {"type": "object", "additionalProperties": schema}
    listed = {str(name): schema for name in names}
    return {"type": "object", "properties": listed, "additionalProperties": False}


def object_of(fields: Mapping[str, tuple[Schema, str]]) -> Schema:
    return {
        "type": "object",
        "properties": {
            name: {**schema, "description": meaning} for name, (schema, meaning) in fields.items()
        },
        "required": list(fields),
        "additionalProperties": False,
    }


MONEY: Mapping[str, tuple[Schema, str]] = {
    "cost": (NUMBER, "dollars so far, by the catalogue's prices"),
    "per_hour": (NUMBER, "dollars an hour for the current nodes"),
    "price_known": (FLAG, "false: some node's price is unknown, so both are too low"),
}
GOODPUT = (or_null(NUMBER), "productive share of the time it should run; null: nothing has run yet")

JOB: Mapping[str, tuple[Schema, str]] = {
    "job": (TEXT, "its name"),
    "goal": ({"enum": ["run", "idle", "stopped", "removed"]}, "what the job should do"),
    "phase": (TEXT, "what its slots do"),
    "phases": (map_of(None, COUNT), "number of slots by phase"),
    "slots": (COUNT, "number of slots"),
    "slices": (COUNT, "nodes that work together in each slot"),
    "ready": (COUNT, "slots whose node is ready"),
    "type": (TEXTS, "accelerator types of the current nodes"),
    "zones": (TEXTS, "zones of the current nodes"),
    "attempt": (COUNT, "the highest attempt number; 0: none yet"),
    "age_s": (NUMBER, "seconds since it was submitted"),
    **MONEY,
    "goodput": GOODPUT,
}
BID = object_of({
    "bid": (TEXT, "name of the request and its node"),
    "zone": (TEXT, ""),
    "type": (TEXT, ""),
    "tier": (TEXT, "spot, preemptible, on-demand or reserved"),
    "stage": (TEXT, "requested, being created, ready, unhealthy, notice received, being deleted,"
                    " refused: …, or how it was lost: preempted, …"),
    "duration_s": (NUMBER, "seconds in that stage"),
    "per_hour": (or_null(NUMBER), "dollars an hour now; null: not billed, or unknown"),
    "message": (TEXT, "why it is being deleted, or the cloud's message"),
})  # fmt: skip
END: Mapping[str, tuple[Schema, str]] = {
    "job": (TEXT, "its name"),
    "status": (COUNT, "the exit status"),
    "why": (TEXT, "in a sentence"),
}
ATTEMPT = object_of({
    "number": (COUNT, "from 1"),
    "attempt": (TEXT, "its id"),
    "bid": (TEXT, "the node it ran on"),
    "zone": (TEXT, ""),
    "type": (TEXT, ""),
    "launched_at": (NUMBER, "seconds since 1970"),
    "duration_s": (NUMBER, "seconds from launch to end, or to now"),
    "verdict": (or_null(TEXT), "success, failure, preempted, node fault, stopped, stalled, lost;"
                             " null: it is running"),
    "why": (TEXT, "how it ended"),
    "resumed": (or_null(COUNT), "step of the checkpoint that it resumed from"),
    "startup": (map_of(STARTUP, NUMBER), "seconds of its startup by part, if reported"),
    "step": (or_null(COUNT), "the latest step that it reported"),
    "first_failing": (TEXT, "the host that failed first"),
    "exit": (or_null({"type": "integer"}), "its exit status"),
    "lines": (TEXTS, "its last lines"),
})  # fmt: skip
RECOVERY = object_of(
    {
        "at": (NUMBER, "last sign of life of the lost attempt, in seconds since 1970"),
        "finished": (FLAG, "false: still recovering"),
        "verdict": (TEXT, "of the lost attempt"),
        "why": (TEXT, "in a sentence"),
        "attempt": (COUNT, "its number"),
        "from_zone": (TEXT, ""),
        "to_zone": (or_null(TEXT), ""),
        "seconds": (NUMBER, "until the next attempt's first step"),
        "parts": (map_of(PARTS, NUMBER), "how these seconds were spent"),
        "startup": (map_of(STARTUP, NUMBER), "seconds of `start` by part, if reported"),
        "steps_lost": (or_null(COUNT), "steps that must be repeated"),
    }
)
SLOT = object_of(
    {
        "slot": (TEXT, "its name"),
        "phase": (TEXT, "what it does"),
        "why": (TEXT, "what it does or is waiting for, in the engine's words"),
        "zone": (TEXT, "of its node"),
        "attempt": (COUNT, "the latest; 0: none yet"),
        "step": (or_null(COUNT), "the latest known step"),
        "saved": (or_null(COUNT), "the latest durable checkpoint"),
        "best_step": (or_null(COUNT), "the best checkpoint by the run's metric, if it keeps one"),
        "milestone": (or_null(COUNT), "the latest checkpoint that is never removed"),
        "goodput": GOODPUT,
        **MONEY,
        "steps_lost": (COUNT, "lost steps in total"),
        "wanted_s": (NUMBER, "seconds during which it should run"),
        "seconds": (
            map_of(MEANINGS, NUMBER),
            "by state; they add up to the time since it was submitted",
        ),
        "bids": (list_of(BID), "current requests and nodes"),
        "attempts": (list_of(ATTEMPT), "all attempts, oldest first"),
        "recoveries": (list_of(RECOVERY), "all losses, oldest first"),
    }
)
PROBLEM = object_of(
    {
        "source": ({"enum": [*TITLES]}, "the cloud, the job store, the engine, or your login"),
        "message": (TEXT, "the latest message"),
        "hint": (TEXT, "what to do about it"),
        "since": (NUMBER, "when it began, in seconds since 1970"),
        "at": (NUMBER, "when it last occurred"),
        "count": (COUNT, "how often in a row"),
    }
)
EVENT: Schema = {
    "type": "object",
    "properties": {
        "seq": {**COUNT, "description": "its number in the log; numbers only rise"},
        "at": {**NUMBER, "description": "seconds since 1970"},
        "kind": {"enum": sorted(EVENT_KINDS), "description": "what happened"},
        "job": {**TEXT, "description": "its job; empty: none"},
        "slot": {**TEXT, "description": "its slot; empty: none"},
        "why": {**TEXT, "description": "the reason, if there is one"},
    },
    "required": ["seq", "at", "kind", "job", "slot"],
    "additionalProperties": True,
}
ZONE = object_of(
    {
        "zone": (TEXT, ""),
        "type": (TEXT, ""),
        "tier": (TEXT, ""),
        "requested": (COUNT, "number of requests"),
        "refused": (COUNT, "of them"),
        "granted": (COUNT, "of them"),
        "wait_s": (or_null(NUMBER), "median seconds from request to READY"),
        "life_s": (or_null(NUMBER), "median seconds from READY to a loss"),
        "refusal": (TEXT, "the latest: stockout, rate, quota, reservation, permission, …"),
        "message": (TEXT, "the cloud's message"),
        "refused_s_ago": (or_null(NUMBER), "how long ago that was"),
    }
)
TRIAL: Mapping[str, tuple[Schema, str]] = {
    "trial": (COUNT, "its number, from 0"),
    "phase": (TEXT, "running, waiting, complete, pruned, failed, stopped"),
    "value": (or_null(NUMBER), "latest value of the metric; null: none, or not a number"),
    "step": (or_null(COUNT), "step of that value"),
    "params": ({"type": "object"}, "parameter values by name"),
    "slot": (TEXT, "its current or last slot"),
    "run_id": (TEXT, "its RUN_ID, in all attempts"),
    "attempts": (COUNT, "number of starts"),
    "preemptions": (COUNT, "number of preemptions after which it resumed"),
    "seconds": (NUMBER, "from creation to its end, or to now"),
    "why": (TEXT, "how it ended"),
    "nan": (FLAG, "its metric is NaN or infinite"),
    "points": (
        list_of(list_of(NUMBER)),
        "reported step and value of the metric; if there are very many, a sample and the last",
    ),
}

LINE: Schema = {
    "type": "object",
    "properties": {
        "host": {**TEXT, "description": "the host that wrote it: gpt-0/w3"},
        "time": {**NUMBER, "description": "when, in seconds since 1970"},
        "port": {**TEXT, "description": "stdout, stderr, or agent: a message of its agent"},
        "text": {**TEXT, "description": "the line"},
        "base64": {**TEXT, "description": "the line, if it is not text"},
    },
    "required": ["host", "time", "port"],
    "additionalProperties": False,
}

#: By command.
SCHEMAS: Mapping[str, Schema] = {
    "herd ls --json": list_of(object_of(JOB)),
    "herd status NAME --json": object_of({
        **JOB,
        "submitted_at": (or_null(NUMBER), "when it was submitted, in seconds since 1970"),
        "who": (TEXT, "the user who submitted it"),
        "document": ({"type": "object"}, "the job as it was submitted"),
        "engine": (FLAG, "whether an engine runs"),
        "slot_details": (list_of(SLOT), "its slots"),
        "problems": (list_of(PROBLEM), "problems that affect all jobs"),
    }),
    "herd why NAME --json": object_of({
        "slots": (map_of(None, TEXT), "what each slot does or is waiting for"),
        "engine": (FLAG, "whether an engine runs; if not, the sentences may be out of date"),
        "recent": (list_of(EVENT), "the latest events"),
        "problems": (list_of(PROBLEM), "problems that affect all jobs"),
    }),
    "herd events --json": EVENT,
    "herd logs NAME --json": LINE,
    "herd wait NAME --json": object_of({
        **END,
        "jobs": (list_of(object_of(END)), "each of the jobs"),
    }),
    "herd capacity --json": list_of(ZONE),
    "herd engine status --json": object_of({
        "scope": (TEXT, "the project or world that it serves"),
        "running": (FLAG, "false: no engine holds the lease; the exit status is 7"),
        "pid": (or_null(COUNT), "its process id"),
        "host": (or_null(TEXT), "the machine it runs on"),
        "who": (or_null(TEXT), "the user who started it"),
        "epoch": (or_null(COUNT), "of its lease; later engines have a higher one"),
        "since": (or_null(NUMBER), "when it took the lease, in seconds since 1970"),
        "lease_until": (or_null(NUMBER), "when the lease expires unless renewed"),
        "problems": (list_of(PROBLEM), "problems that affect all jobs"),
    }),
    "herd sweep status NAME --json": object_of({
        "sweep": (TEXT, "its name"),
        "method": (TEXT, "grid, random or bayes; empty: the job no longer exists"),
        "metric": (TEXT, "the metric that judges trials"),
        "goal": (TEXT, "minimize, maximize"),
        "planned": (COUNT, "total number of trials"),
        "phases": (map_of(None, COUNT), "number of trials by phase"),
        "best": (or_null(COUNT), "number of the best complete trial"),
        "trials": (list_of(object_of(TRIAL)), "its trials, by number"),
    }),
    "herd sweep best NAME --json": object_of(TRIAL),
}  # fmt: skip
