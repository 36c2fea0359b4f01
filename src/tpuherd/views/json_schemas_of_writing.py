"""JSON Schemas of the commands that change something; the docs print them."""

from collections.abc import Mapping

from tpuherd.jobfile.fields import TIERS, ChangeImpact
from tpuherd.views.json_schemas import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    Schema,
    list_of,
    map_of,
    object_of,
    or_null,
)

PRICE = (or_null(NUMBER), "dollars an hour at list prices; null: unknown")
TIER = ({"enum": list(TIERS)}, "")
DOCUMENT = ({"type": "object"}, "the job, by the fields of a job file")
CHANGE: Mapping[str, tuple[Schema, str]] = {
    "difference": (TEXTS, "what differs from the job before"),
    "needs": (
        {"enum": [str(one) for one in ChangeImpact]},
        "what must restart: node, attempt or nothing",
    ),
}
SUMMARY: Mapping[str, tuple[Schema, str]] = {
    "slots": (TEXTS, "their names"),
    "per_hour": (
        object_of(
            {
                "least": PRICE,
                "most": PRICE,
                "unknown_in": (TEXTS, "zones without a known price"),
            }
        ),
        "dollars an hour for all slots: `least` in the cheapest zone, `most` in the dearest;"
        " `unknown_in`: zones without a known price",
    ),
    "trials": (or_null(COUNT), "total trials of a sweep; null: not a sweep"),
    **CHANGE,
}
OFFER = object_of(
    {
        "zone": (TEXT, ""),
        "type": (TEXT, ""),
        "tier": TIER,
        "runtime": (TEXT, "its image"),
        "hosts": (COUNT, "of one node"),
        "price": PRICE,
        "rank": (COUNT, "0 is requested first"),
    }
)
EGRESS = object_of(
    {
        "zone": (TEXT, ""),
        "bucket": (TEXT, "the dearest to read; empty: no bucket costs anything"),
        "location": (TEXT, "of the bucket"),
        "hosts": (COUNT, "of all nodes"),
        "bytes_per_s": (NUMBER, "the assumed rate of each host"),
        "per_gib": PRICE,
        "per_day": PRICE,
    }
)
GRANT: Schema = {
    "type": "object",
    "properties": {
        "zone": TEXT,
        "type": {**TEXT, "description": "a generation, or one size of it"},
        "tier": {"enum": list(TIERS)},
        "chips": {**COUNT, "description": "in total; absent: not stated"},
        "free": {**FLAG, "description": "absent: they are billed"},
    },
    "required": ["zone", "type", "tier"],
    "additionalProperties": False,
}
CONTEXT: Mapping[str, Schema] = {
    "project": {**TEXT, "description": "Google's; empty: the context is a world"},
    "world": {**TEXT, "description": "the folder of a simulated world"},
    "account": {**TEXT, "description": "its credentials file"},
    "login": {**TEXT, "description": "the login name on hosts"},
    "ways": {**TEXTS, "description": "how hosts are reached"},
    "keys": {**TEXT, "description": "where the SSH key is added: node or project"},
    "via": {**TEXT, "description": "the machine where its engine runs"},
}
ORPHAN = object_of(
    {
        "name": (TEXT, "of the request and the node"),
        "zone": (TEXT, ""),
        "state": (TEXT, "in the cloud's terms"),
        "nodes": (COUNT, "0: only a request"),
        "per_hour": PRICE,
        "command": (TEXT, "the command that deletes it"),
    }
)
STEP = object_of(
    {
        "do": ({"enum": ["ask", "withdraw"]}, ""),
        "bid": (TEXT, "the request and the node"),
        "slot": (TEXT, "whose"),
        "zone": (TEXT, ""),
        "type": (TEXT, "of an ask"),
        "tier": (TEXT, "of an ask"),
        "why": (TEXT, "the reason"),
    }
)
MADE = object_of(
    {
        "job": (TEXT, "its name"),
        "did": (
            {"enum": ["submitted", "changed", "unchanged", "restarted", "resumed"]},
            "the outcome",
        ),
        "revision": (COUNT, "counts the changes of the job"),
        **SUMMARY,
    }
)
TURNED = list_of(
    object_of({"job": (TEXT, "its name"), "changed": (FLAG, "false: it was already so")})
)
SET = object_of(
    {
        "job": (TEXT, "its name"),
        "revision": (COUNT, "counts the changes of the job"),
        **CHANGE,
        "document": DOCUMENT,
    }
)

#: By command.
SCHEMAS: Mapping[str, Schema] = {
    "herd run --json": MADE,
    "herd up --json": MADE,
    "herd sweep FILE --json": MADE,
    "herd run --dry-run --json": object_of({
        "job": DOCUMENT,
        "offers": (list_of(OFFER), "where a node may come from, best first"),
        "egress": (list_of(EGRESS), "what reading the job's buckets costs in each zone"),
        "granted": (FLAG, "false: herd would ask for consent first"),
        **SUMMARY,
    }),
    "herd set NAME --json": SET,
    "herd scale NAME --json": SET,
    "herd stop NAME --json": TURNED,
    "herd resume NAME --json": TURNED,
    "herd down --json": object_of({
        "removed": (TEXTS, "the jobs that were removed"),
        "all_deleted": (FLAG, "whether the cloud was checked and nothing is left"),
        "zones": (or_null(TEXTS), "the zones that were checked"),
        "waiting_for": (TEXT, "what remained at --timeout, and why; else empty"),
    }),
    "herd gc --json": object_of({
        "orphans": (list_of(ORPHAN), "resources that herd created and no job uses"),
        "withdrawn": (TEXTS, "what is being deleted"),
        "unanswered_zones": (TEXTS, "zones that did not answer: what is there is unknown"),
    }),
    "herd adopt --json": object_of({
        "jobs": (TEXTS, "their jobs"),
        "adopted": (TEXTS, "requests and nodes that were taken over"),
        "unknown": (TEXTS, "resources without a job in their metadata"),
    }),
    "herd plan --json": object_of({
        "states": (map_of(None, TEXT), "what each slot does or is waiting for"),
        "frozen": (TEXT, "why deletions are paused; else empty"),
        "steps": (list_of(STEP), "what the engine would do in the cloud now"),
    }),
    "herd context grant --json": list_of(GRANT),
    "herd context show --json": {
        "type": "object",
        "properties": {
            "name": {**or_null(TEXT), "description": "of the context; null: none"},
            **CONTEXT,
            "everything": {**FLAG, "description": "true: any zone and type may be requested"},
            "grants": {**list_of(GRANT), "description": "otherwise, what may be requested"},
        },
        "required": ["name", "project", "everything", "grants"],
        "additionalProperties": False,
    },
    "herd context list --json": object_of({
        "current": (or_null(TEXT), "the current one"),
        "contexts": (map_of(None, {"type": "object", "properties": CONTEXT,
                               "additionalProperties": False}),
                     "by name, each with its settings: see above"),
    }),
}  # fmt: skip
