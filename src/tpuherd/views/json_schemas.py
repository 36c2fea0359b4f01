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
    """Or null: not known."""
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema) -> Schema:
    """A list of them."""
    return {"type": "array", "items": schema}


def map_of(names: Iterable[str] | None, schema: Schema) -> Schema:
    """An object with a value for some of these names, or for any."""
    if names is None:
        return {"type": "object", "additionalProperties": schema}
    listed = {str(name): schema for name in names}
    return {"type": "object", "properties": listed, "additionalProperties": False}


def object_of(fields: Mapping[str, tuple[Schema, str]]) -> Schema:
    """An object with exactly these, each with its meaning."""
    return {
        "type": "object",
        "properties": {
            name: {**schema, "description": meaning} for name, (schema, meaning) in fields.items()
        },
        "required": list(fields),
        "additionalProperties": False,
    }


MONEY: Mapping[str, tuple[Schema, str]] = {
    "cost": (NUMBER, "dollars until now, by the catalogue's prices"),
    "per_hour": (NUMBER, "dollars an hour, of what is held now"),
    "price_known": (FLAG, "false: the price of some node is not known, so both are too low"),
}
GOODPUT = (or_null(NUMBER), "share of the wanted time in which work got on; null: nothing ran yet")

JOB: Mapping[str, tuple[Schema, str]] = {
    "job": (TEXT, "its name"),
    "goal": ({"enum": ["run", "idle", "stopped", "removed"]}, "what the user wants of it"),
    "phase": (TEXT, "what its slots do, in words"),
    "phases": (map_of(None, COUNT), "how many slots do each"),
    "slots": (COUNT, "how many the job has"),
    "slices": (COUNT, "how many nodes work together in each"),
    "ready": (COUNT, "how many have a node that is ready"),
    "type": (TEXTS, "accelerator types that are held"),
    "zones": (TEXTS, "where they are"),
    "attempt": (COUNT, "the greatest number of an attempt; 0: none yet"),
    "age_s": (NUMBER, "seconds since it was submitted"),
    **MONEY,
    "goodput": GOODPUT,
}
BID = object_of({
    "bid": (TEXT, "name of the request and the node"),
    "zone": (TEXT, ""),
    "type": (TEXT, ""),
    "tier": (TEXT, "spot, preemptible, on-demand or reserved"),
    "stage": (TEXT, "requested, being created, ready, unhealthy, notice received, being deleted,"
                    " refused: …, or how it was lost: preempted, …"),
    "duration_s": (NUMBER, "seconds in that stage"),
    "per_hour": (or_null(NUMBER), "dollars an hour that it costs now; null: nothing, or not known"),
    "message": (TEXT, "why it was withdrawn, or what the cloud said"),
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
                             " null: it runs"),
    "why": (TEXT, "how it ended, in a sentence"),
    "resumed": (or_null(COUNT), "the step of the checkpoint that it went on from"),
    "startup": (map_of(STARTUP, NUMBER), "what its start took, where it told: seconds by part"),
    "step": (or_null(COUNT), "the furthest that it told of"),
    "first_failing": (TEXT, "the host that failed first"),
    "exit": (or_null({"type": "integer"}), "its exit status"),
    "lines": (TEXTS, "its last lines"),
})  # fmt: skip
RECOVERY = object_of(
    {
        "at": (NUMBER, "the last sign of the attempt that was lost, in seconds since 1970"),
        "finished": (FLAG, "false: it is still under way"),
        "verdict": (TEXT, "of the attempt that was lost"),
        "why": (TEXT, "in a sentence"),
        "attempt": (COUNT, "its number"),
        "from_zone": (TEXT, ""),
        "to_zone": (or_null(TEXT), ""),
        "seconds": (NUMBER, "until the next attempt's first step"),
        "parts": (map_of(PARTS, NUMBER), "of these, seconds by what they were spent on"),
        "startup": (map_of(STARTUP, NUMBER), "of `start`, seconds by part, where the command told"),
        "steps_lost": (or_null(COUNT), "steps that are made twice"),
    }
)
SLOT = object_of(
    {
        "slot": (TEXT, "its name"),
        "phase": (TEXT, "a word"),
        "why": (TEXT, "what it does or waits for: the engine's own sentence"),
        "zone": (TEXT, "of its node"),
        "attempt": (COUNT, "the latest; 0: none yet"),
        "step": (or_null(COUNT), "the furthest that is known"),
        "saved": (or_null(COUNT), "the latest durable checkpoint"),
        "goodput": GOODPUT,
        **MONEY,
        "steps_lost": (COUNT, "in all losses"),
        "wanted_s": (NUMBER, "seconds in which it was wanted to work"),
        "seconds": (
            map_of(MEANINGS, NUMBER),
            "by state; they add up to the time since it was submitted",
        ),
        "bids": (list_of(BID), "requests and nodes that are not known to be gone"),
        "attempts": (list_of(ATTEMPT), "all, the oldest first"),
        "recoveries": (list_of(RECOVERY), "all losses, the oldest first"),
    }
)
PROBLEM = object_of(
    {
        "source": ({"enum": [*TITLES]}, "the cloud, the store of jobs, the engine, or your login"),
        "message": (TEXT, "the last trouble with it"),
        "hint": (TEXT, "what can be done"),
        "since": (NUMBER, "when it began, in seconds since 1970"),
        "at": (NUMBER, "when it was met last"),
        "count": (COUNT, "how often in a row"),
    }
)
EVENT: Schema = {
    "type": "object",
    "properties": {
        "seq": {**COUNT, "description": "its number in the log; numbers only rise"},
        "at": {**NUMBER, "description": "seconds since 1970"},
        "kind": {"enum": sorted(EVENT_KINDS), "description": "what happened"},
        "job": {**TEXT, "description": "whose; empty: nobody's"},
        "slot": {**TEXT, "description": "of which slot; empty: of none"},
        "why": {**TEXT, "description": "the sentence for people, where there is one"},
    },
    "required": ["seq", "at", "kind", "job", "slot"],
    "additionalProperties": True,
}
ZONE = object_of(
    {
        "zone": (TEXT, ""),
        "type": (TEXT, ""),
        "tier": (TEXT, ""),
        "requested": (COUNT, "bids"),
        "refused": (COUNT, "of them"),
        "granted": (COUNT, "of them"),
        "wait_s": (or_null(NUMBER), "median of the seconds from asking until READY"),
        "life_s": (or_null(NUMBER), "median of the seconds from READY until a loss"),
        "refusal": (TEXT, "the last one: stockout, rate, quota, reservation, permission, …"),
        "message": (TEXT, "what the cloud said then"),
        "refused_s_ago": (or_null(NUMBER), "how long ago that was"),
    }
)
TRIAL: Mapping[str, tuple[Schema, str]] = {
    "trial": (COUNT, "its number, from 0"),
    "phase": (TEXT, "running, waiting, complete, pruned, failed, stopped"),
    "value": (or_null(NUMBER), "of the metric, as it told last; null: none, or no number"),
    "step": (or_null(COUNT), "of that"),
    "params": ({"type": "object"}, "what it tries: parameters by name"),
    "slot": (TEXT, "where it is, or was last"),
    "run_id": (TEXT, "its RUN_ID, in all attempts"),
    "attempts": (COUNT, "so often it was started"),
    "preemptions": (COUNT, "so often a node was taken away under it, and it went on elsewhere"),
    "seconds": (NUMBER, "since it was made, until its end or now"),
    "why": (TEXT, "how it ended, in a sentence"),
    "nan": (FLAG, "its metric is NaN or infinite by now"),
    "points": (
        list_of(list_of(NUMBER)),
        "what it told of the metric: step, value; of very many some, and the last",
    ),
}

LINE: Schema = {
    "type": "object",
    "properties": {
        "host": {**TEXT, "description": "who said it: gpt-0/w3"},
        "time": {**NUMBER, "description": "when, in seconds since 1970"},
        "port": {**TEXT, "description": "stdout, stderr, or agent: what its agent has to say"},
        "text": {**TEXT, "description": "the line"},
        "base64": {**TEXT, "description": "the line instead, where it is no text"},
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
        "who": (TEXT, "by whom"),
        "document": ({"type": "object"}, "the job as it was submitted"),
        "engine": (FLAG, "whether an engine runs"),
        "slot_details": (list_of(SLOT), "its slots"),
        "problems": (list_of(PROBLEM), "what stands in the way of all jobs at once"),
    }),
    "herd why NAME --json": object_of({
        "slots": (map_of(None, TEXT), "the sentence of each slot"),
        "engine": (FLAG, "whether an engine runs; else the sentences are what was last known"),
        "recent": (list_of(EVENT), "what happened last"),
        "problems": (list_of(PROBLEM), "what stands in the way of all jobs at once"),
    }),
    "herd events --json": EVENT,
    "herd logs NAME --json": LINE,
    "herd wait NAME --json": object_of({
        **END,
        "jobs": (list_of(object_of(END)), "each of the jobs"),
    }),
    "herd capacity --json": list_of(ZONE),
    "herd engine status --json": object_of({
        "scope": (TEXT, "the project or the world whose jobs it keeps"),
        "running": (FLAG, "false: none has the lease; the exit status is 7"),
        "pid": (or_null(COUNT), "its process"),
        "host": (or_null(TEXT), "the machine that it runs on"),
        "who": (or_null(TEXT), "who began it"),
        "epoch": (or_null(COUNT), "of its lease: an engine that began later has a greater one"),
        "since": (or_null(NUMBER), "when it took the lease, in seconds since 1970"),
        "lease_until": (or_null(NUMBER), "till when it leads, unless it renews the lease"),
        "problems": (list_of(PROBLEM), "what stands in the way of all jobs at once"),
    }),
    "herd sweep status NAME --json": object_of({
        "sweep": (TEXT, "its name"),
        "method": (TEXT, "grid, random, bayes; empty: the job is forgotten"),
        "metric": (TEXT, "what trials are judged by"),
        "goal": (TEXT, "minimize, maximize"),
        "planned": (COUNT, "trials in all"),
        "phases": (map_of(None, COUNT), "how many trials do each"),
        "best": (or_null(COUNT), "number of the best trial that is complete"),
        "trials": (list_of(object_of(TRIAL)), "its trials, by number"),
    }),
    "herd sweep best NAME --json": object_of(TRIAL),
}  # fmt: skip
