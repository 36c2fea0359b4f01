"""JSON Schemas of what the page of `herd ui` reads, which other programs may read, too."""

from collections.abc import Mapping

from schema_types import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    Schema,
    fields_of,
    list_of,
    map_of,
    object_of,
    or_null,
    schema_of,
)

from tpuherd import results
from tpuherd.accounting.goodput import MEANINGS, GoodputState

AT = "seconds since 1970"
STATE: Schema = {"enum": [str(state) for state in GoodputState]}
OPEN: Schema = {"type": "object"}  #: with fields that are described elsewhere
POINTS = list_of({"type": "array", "items": or_null(NUMBER), "minItems": 4, "maxItems": 4})

SLOT = object_of({
    "slot": (TEXT, "its name"),
    "phase": (TEXT, "a word for people: queued, booting, running"),
    "state": (STATE, "what its time is [spent on](events.md#where-the-time-goes)"),
    "why": (TEXT, "the engine's sentence"),
    "zone": (or_null(TEXT), "of its node; null here and below: no node"),
    "type": (or_null(TEXT), ""),
    "tier": (or_null(TEXT), ""),
    "node": (or_null(TEXT), "the bid that fills it"),
    "attempt": (COUNT, "the number of the latest; 0: none"),
    "step": (or_null(COUNT), "the furthest that is known"),
    "total": (or_null(COUNT), "steps wanted, if known"),
    "saved": (or_null(COUNT), "the step of the newest checkpoint"),
    "goodput": (or_null(NUMBER), "0 to 1, as far as it is known"),
    "goodput_why": (TEXT, "why it is not known, or for how long"),
    "cost": (NUMBER, "dollars so far"),
    "per_hour": (NUMBER, "dollars an hour now"),
})  # fmt: skip
JOB_FIELDS: Mapping[str, tuple[Schema, str]] = {
    **fields_of(results.JobSummary),
    "kind": ({"enum": ["job", "sweep", "map"]}, ""),
    "submitted_at": (or_null(NUMBER), f"{AT}; null: it was removed and is leaving"),
}
HOST = object_of({
    "host": (TEXT, "its full name: gpt-0-g1-7kq/w3"),
    "worker": (COUNT, "its number, through all nodes of a multislice run"),
    "at": (or_null(NUMBER), "when it was sampled; null: not yet, and all below is null"),
    "cpu": (or_null(NUMBER), "percent"),
    "ram_used": (or_null(COUNT), "bytes, like the next three"),
    "ram_total": (or_null(COUNT), ""),
    "disk_free": (or_null(COUNT), ""),
    "disk_total": (or_null(COUNT), ""),
    "net_in": (or_null(NUMBER), "bytes a second"),
    "net_out": (or_null(NUMBER), ""),
    "hbm_used": (list_of(or_null(COUNT)), "bytes, for each chip"),
    "hbm_total": (list_of(or_null(COUNT)), ""),
    "duty": (list_of(or_null(NUMBER)), "percent, for each chip"),
    "why": (TEXT, "why values of chips are not known"),
})  # fmt: skip
NODE = object_of({
    "node": (TEXT, "the name of the bid"),
    "job": (TEXT, ""),
    "slot": (TEXT, ""),
    "zone": (TEXT, ""),
    "type": (TEXT, ""),
    "tier": (TEXT, ""),
    "stage": (TEXT, "being created, ready, preempted, …"),
    "since": (NUMBER, "when this stage began"),
    "per_hour": (or_null(NUMBER), "dollars; null: not known"),
    "chips_per_host": (COUNT, "0: herd does not know the type"),
    "hosts": (list_of(HOST), "a place for each, sampled or not"),
})  # fmt: skip
AROUND: Mapping[str, tuple[Schema, str]] = {
    "now": (NUMBER, f"the server's clock, {AT}"),
    "engine": (object_of({
        "running": (FLAG, ""),
        "since": (or_null(NUMBER), "null here and below: none runs"),
        "host": (or_null(TEXT), "the machine"),
        "pid": (or_null(COUNT), ""),
        "version": (or_null(TEXT), ""),
    }), "what keeps jobs running: `running`, `since`, `host`, `pid`, `version`"),
    "problems": (list_of(schema_of(results.Problem)), "problems that affect all jobs"),
    "notices": (TEXTS, "of damaged stores that were set aside"),
    "cost": (object_of({
        "today": (NUMBER, "dollars since the local midnight"),
        "total": (NUMBER, "dollars of all jobs that the store knows"),
        "per_hour": (NUMBER, "dollars an hour now"),
        "price_known": (FLAG, "false: some price is not known, the sums are too low"),
    }), "dollars: `today` since the local midnight, `total` of all jobs, `per_hour` now;"
       " `price_known`: false if some price is missing"),
}  # fmt: skip
SEQ = (COUNT, "the number of this state; hand it to the stream as `after`")
EVENT_ROW = object_of({
    "seq": (COUNT, "its number in the log"),
    "at": (NUMBER, AT),
    "kind": (TEXT, "[what happened](events.md)"),
    "job": (TEXT, "empty: none"),
    "slot": (TEXT, "empty: none"),
    "line": (TEXT, "as `herd events` prints it"),
})  # fmt: skip
LINE_ROW = object_of({
    "id": (TEXT, "where it is; for `before` and `after`"),
    "at": (NUMBER, AT),
    "slot": (TEXT, ""),
    "worker": (COUNT, ""),
    "stream": ({"enum": ["stdout", "stderr", "agent"]}, ""),
    "text": (TEXT, "without codes for terminals, and at most 16 384 characters"),
})  # fmt: skip
MESSAGE = object_of({"message": (TEXT, "what was done, in a sentence")})

#: By request.
PAGE_SCHEMAS: Mapping[str, Schema] = {
    "GET /api/overview": object_of({
        "seq": SEQ,
        "version": (TEXT, "of herd"),
        "context": (TEXT, "its name; empty: none"),
        "project": (TEXT, "its id"),
        "world": (FLAG, "whether it is simulated"),
        "may_change": (FLAG, "whether jobs may be changed"),
        **AROUND,
        "jobs": (list_of(object_of({**JOB_FIELDS, "slot_rows": (list_of(SLOT), "all slots")})), ""),
        "nodes": (list_of(NODE), "that exist or are being created"),
    }),
    "GET /api/stream, changes": object_of({
        "seq": SEQ,
        **AROUND,
        "jobs": (list_of(object_of({
            **JOB_FIELDS,
            "slot_rows": (list_of(SLOT), "the slots that changed"),
            "removed_slots": (TEXTS, ""),
        })), "that changed"),
        "removed_jobs": (TEXTS, ""),
        "nodes": (list_of(NODE), "that changed"),
        "removed_nodes": (TEXTS, ""),
    }),
    "GET /api/stream, events": list_of(EVENT_ROW),
    "GET /api/stream, samples": object_of({
        "now": (NUMBER, AT),
        "hosts": (map_of(None, HOST), "with a new sample, by full name"),
    }),
    "GET /api/jobs/JOB": object_of({
        **fields_of(results.JobStatus),
        "kind": ({"enum": ["job", "sweep", "map"]}, ""),
        "timeline": (object_of({
            "start": (NUMBER, AT),
            "end": (NUMBER, AT),
            "slots": (map_of(None, list_of({"type": "array", "items": {}, "minItems": 3,
                                            "maxItems": 3})),
                      "of each slot: start, end and state of each span, at most 2000"),
        }), "`start`, `end`, and `slots`: for each a list of [start, end, state], at most 2000"),
        "states": (list_of(object_of({
            "state": (STATE, ""),
            "title": (TEXT, "a word for people"),
            "meaning": ({"enum": list(MEANINGS.values())}, "a sentence"),
        })), "all that there are"),
        "incidents": (list_of(object_of({
            "slot": (TEXT, ""),
            **fields_of(results.Recovery),
        })), "every loss, the oldest first"),
    }),
    "GET /api/jobs/JOB/series": object_of({
        "series": (list_of(object_of({
            "slot": (TEXT, ""),
            "host": (TEXT, "empty: it belongs to the slot"),
            "chip": (or_null(COUNT), "null: it belongs to the host or slot"),
            "name": (TEXT, "loss, step_rate, cpu, hbm_used, …"),
            "points": (POINTS, "time, lowest, mean and highest value of each; null: no number"),
        })), ""),
    }),
    "GET /api/jobs/JOB/logs": object_of({
        "lines": (list_of(LINE_ROW), "the last ones, or those before `before`"),
        "more": (FLAG, "whether there are earlier ones"),
    }),
    "GET /api/jobs/JOB/logs/stream, lines": list_of(LINE_ROW),
    "GET /api/events": object_of({"events": (list_of(EVENT_ROW), "the oldest first")}),
    "GET /api/capacity": object_of({
        "rows": (list_of(schema_of(results.ZoneCapacity)), "as `herd types --zones --json`"),
        "hours": (list_of(object_of({
            "zone": (TEXT, ""),
            "type": (TEXT, ""),
            "tier": (TEXT, ""),
            "hour": (COUNT, "of the day, UTC, at which nodes were requested"),
            "requested": (COUNT, ""),
            "refused": (COUNT, ""),
            "granted": (COUNT, ""),
            "wait_s": (or_null(NUMBER), "median seconds until READY"),
            "life_s": (or_null(NUMBER), "median seconds from READY until lost"),
        })), "hours without a request are left out"),
    }),
    "POST /api/jobs/JOB/stop": MESSAGE,
    "POST /api/jobs/JOB/resume": MESSAGE,
    "POST /api/jobs/JOB/scale": MESSAGE,
    "POST /api/jobs/JOB/down": MESSAGE,
}  # fmt: skip
