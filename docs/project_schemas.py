"""JSON Schemas of what commands print about a cloud project: contexts, grants, quotas, buckets."""

from collections.abc import Mapping

from schema_types import (
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

from tpuherd.jobfile.fields import TIERS

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
BUCKET = object_of(
    {
        "bucket": (TEXT, "its name"),
        "location": (TEXT, "a region, multi-region or dual-region"),
        "uniform": (FLAG, "access is decided by its policy alone"),
        "you": (TEXTS, "what you may do with its objects: read, list, write, delete"),
        "accounts": (
            or_null(map_of(None, TEXTS)),
            "service accounts with their roles; null: you may not read its policy",
        ),
        "near": (TEXTS, "zones with TPUs where jobs may use it"),
        "zones": (
            list_of(
                object_of(
                    {
                        "zone": (TEXT, ""),
                        "near": (FLAG, "whether it is near"),
                        "per_gib": (or_null(NUMBER), "dollars to read a GiB; null: unknown"),
                    }
                )
            ),
            "the zones of --zone",
        ),
        "hosts": (
            list_of(
                object_of(
                    {
                        "host": (TEXT, ""),
                        "works": (FLAG, "whether it can use the bucket"),
                        "says": (TEXT, "what it did, or why it failed"),
                    }
                )
            ),
            "the hosts of --from",
        ),
    }
)

PROJECT_SCHEMAS: Mapping[str, Schema] = {
    "herd quota --json": object_of({
        "limits": (list_of(object_of({
            "place": (TEXT, "a zone or region; elsewhere: where no other limit is stated"),
            "type": (TEXT, "a generation, or one size of it"),
            "tier": (TEXT, "spot counts preemptible nodes, too"),
            "unit": ({"enum": ["chips", "cores"]}, "what is counted"),
            "allowed": (or_null(COUNT), "null: not limited, or not stated by the grant"),
            "used": (COUNT, "by nodes and by requests that wait"),
            "jobs": (map_of(None, COUNT), "the part of each job; empty name: not herd's"),
            "source": ({"enum": ["grant", "quota"]}, "declared by you, or Google's"),
        })), "grants first, then quotas that allow something or are used"),
        "trouble": (TEXT, "why Google's quotas are not shown; else empty"),
        "shares": (object_of({
            "users": (list_of(object_of({
                "user": (TEXT, "their name"),
                "weight": (NUMBER, "1 unless it was set"),
                "jobs": (COUNT, "how many jobs are theirs"),
                "part": (NUMBER, "of each quota, among those who have jobs: 0.5 is half"),
            })), "all who have jobs or a weight"),
            "quotas": (list_of(object_of({
                "zone": (TEXT, ""),
                "type": (TEXT, "a generation, or one size of it"),
                "tier": (TEXT, "spot counts preemptible nodes, too"),
                "chips": (COUNT, "in all"),
                "used": (map_of(None, COUNT), "by user, by nodes and by requests that wait"),
            })), "the grants with a number of chips, which the users share"),
        }), "who has which part"),
    }),
    "herd quota --share USER=WEIGHT --json": object_of({
        "user": (TEXT, "their name"),
        "weight": (NUMBER, "what they have now"),
        "changed": (FLAG, "false: they had it already"),
    }),
    "herd bucket check BUCKET --json": BUCKET,
    "herd bucket create BUCKET --json": object_of({
        "bucket": (TEXT, "its name"),
        "location": (TEXT, ""),
        "created": (FLAG, "false: it was already there"),
    }),
    "herd bucket grant BUCKET --json": object_of({
        "bucket": (TEXT, "its name"),
        "account": (TEXT, "the service account's e-mail address"),
        "created": (FLAG, "whether the account is new"),
        "roles": (TEXTS, "what the account has on the bucket now"),
        "added": (TEXTS, "what was added"),
    }),
    "herd setup gcp --json": object_of({
        "project": (TEXT, "its id"),
        "network": (TEXT, "the network of nodes"),
        "way": (TEXT, "how hosts are reached"),
        "dry_run": (FLAG, "true: nothing was changed"),
        "steps": (list_of(object_of({
            "kind": (TEXT, "service, identity, role, firewall, key, os-login or way"),
            "name": (TEXT, "unique within its kind"),
            "state": (
                {"enum": ["there", "missing", "later", "blocked", "made", "failed"]},
                "there: nothing to do; later: known when its API is enabled",
            ),
            "fact": (TEXT, "what should be true"),
            "action": (TEXT, "what is done if it is not"),
            "note": (TEXT, "what is there, or why it can't be done"),
        })), "in the order in which they are made"),
    }),
    "herd setup gcp --undo --json": object_of({
        "project": (TEXT, "its id"),
        "dry_run": (FLAG, "true: nothing was changed"),
        "changes": (list_of(object_of({
            "kind": (TEXT, "as above"),
            "name": (TEXT, "as above"),
            "sentence": (TEXT, "what is undone, or why not"),
            "undone": (FLAG, "false: it was left as it is"),
            "kept": (FLAG, "it can't be undone now, but maybe later"),
            "failed": (FLAG, "the cloud refused, or the record is damaged"),
        })), "what herd has made, the last first"),
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
