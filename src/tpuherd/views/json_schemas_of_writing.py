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

PRICE = (or_null(NUMBER), "dollars an hour by list prices; null: not known")
TIER = ({"enum": list(TIERS)}, "")
DOCUMENT = ({"type": "object"}, "the job, by the fields of a job file")
CHANGE: Mapping[str, tuple[Schema, str]] = {
    "difference": (TEXTS, "what differs from the job before"),
    "needs": (
        {"enum": [str(one) for one in ChangeImpact]},
        "what it takes: node, attempt or nothing",
    ),
}
SUMMARY: Mapping[str, tuple[Schema, str]] = {
    "slots": (TEXTS, "their names"),
    "per_hour": (
        object_of(
            {
                "least": PRICE,
                "most": PRICE,
                "unknown_in": (TEXTS, "zones whose price is not known"),
            }
        ),
        "dollars an hour for all slots: `least` in the cheapest zone, `most` in the dearest;"
        " `unknown_in`: zones whose price is not known",
    ),
    "trials": (or_null(COUNT), "of a sweep, in all; null: it is none"),
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
        "rank": (COUNT, "0 is asked for first"),
    }
)
GRANT: Schema = {
    "type": "object",
    "properties": {
        "zone": TEXT,
        "type": {**TEXT, "description": "a generation, or one size of it"},
        "tier": {"enum": list(TIERS)},
        "chips": {**COUNT, "description": "in all; left out: nobody said"},
        "free": {**FLAG, "description": "left out: they are billed"},
    },
    "required": ["zone", "type", "tier"],
    "additionalProperties": False,
}
CONTEXT: Mapping[str, Schema] = {
    "project": {**TEXT, "description": "Google's; empty: a world is meant"},
    "world": {**TEXT, "description": "the folder of a simulated world"},
    "account": {**TEXT, "description": "the file of its credentials"},
    "login": {**TEXT, "description": "the user on hosts"},
    "ways": {**TEXTS, "description": "how hosts are reached"},
    "keys": {**TEXT, "description": "whose metadata gets our SSH key: node or project"},
    "via": {**TEXT, "description": "the machine where its engine runs"},
}
ORPHAN = object_of(
    {
        "name": (TEXT, "of the request and the node"),
        "zone": (TEXT, ""),
        "state": (TEXT, "in the cloud's word"),
        "nodes": (COUNT, "0: a request only"),
        "per_hour": PRICE,
        "command": (TEXT, "what deletes it"),
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
        "why": (TEXT, "in a sentence"),
    }
)
MADE = object_of(
    {
        "job": (TEXT, "its name"),
        "did": (
            {"enum": ["submitted", "changed", "unchanged", "restarted", "resumed"]},
            "what became of it",
        ),
        "revision": (COUNT, "counts the changes of the job"),
        **SUMMARY,
    }
)
TURNED = list_of(
    object_of({"job": (TEXT, "its name"), "changed": (FLAG, "false: it was so already")})
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
        "offers": (list_of(OFFER), "where a node may come from, the best liked first"),
        "granted": (FLAG, "false: you would be asked first"),
        **SUMMARY,
    }),
    "herd set NAME --json": SET,
    "herd scale NAME --json": SET,
    "herd stop NAME --json": TURNED,
    "herd resume NAME --json": TURNED,
    "herd down --json": object_of({
        "removed": (TEXTS, "the jobs that were removed"),
        "all_deleted": (FLAG, "whether the cloud was checked and nothing is left"),
        "zones": (or_null(TEXTS), "the zones that were listed for it"),
        "waiting_for": (TEXT, "what was still there when --timeout was over, and why; else empty"),
    }),
    "herd gc --json": object_of({
        "orphans": (list_of(ORPHAN), "resources that herd created and no job uses"),
        "withdrawn": (TEXTS, "what is being deleted"),
        "unanswered_zones": (TEXTS, "zones that did not answer: what is there is unknown"),
    }),
    "herd adopt --json": object_of({
        "jobs": (TEXTS, "whose they are"),
        "adopted": (TEXTS, "requests and nodes that are ours now"),
        "unknown": (TEXTS, "those without a job in their metadata"),
    }),
    "herd plan --json": object_of({
        "states": (map_of(None, TEXT), "the sentence of each slot"),
        "frozen": (TEXT, "why nothing is deleted now; else empty"),
        "steps": (list_of(STEP), "what would be done in the cloud now"),
    }),
    "herd context grant --json": list_of(GRANT),
    "herd context show --json": {
        "type": "object",
        "properties": {
            "name": {**or_null(TEXT), "description": "of the context; null: none is meant"},
            **CONTEXT,
            "everything": {**FLAG, "description": "true: whatever there is may be asked for"},
            "grants": {**list_of(GRANT), "description": "else what may be had"},
        },
        "required": ["name", "project", "everything", "grants"],
        "additionalProperties": False,
    },
    "herd context list --json": object_of({
        "current": (or_null(TEXT), "the one that is meant"),
        "contexts": (map_of(None, {"type": "object", "properties": CONTEXT,
                               "additionalProperties": False}),
                     "by name, each with what was said of it: see above"),
    }),
}  # fmt: skip
