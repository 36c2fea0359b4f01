"""JSON Schemas of what `herd notify` prints."""

from collections.abc import Mapping

from schema_types import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    Schema,
    list_of,
    object_of,
    or_null,
)

NOTIFY_SCHEMAS: Mapping[str, Schema] = {
    "herd notify list --json": list_of(object_of({
        "receiver": (TEXT, "its kind, and where its messages go, without secrets"),
        "jobs": (TEXTS, "jobs that name it in `notify`"),
        "default": (FLAG, "whether jobs without `notify` send to it: `herd notify set`"),
        "on": (TEXTS, "what it gets messages about"),
        "sent": (COUNT, "messages that it has accepted"),
        "waiting": (COUNT, "notes that wait to be sent"),
        "failures": (COUNT, "tries that failed"),
        "failing_since": (or_null(NUMBER), "since when its messages fail; null: they do not"),
        "problem": (TEXT, "what came back last, or what is missing; empty: all is well"),
    })),
    "herd notify test --json": list_of(object_of({
        "receiver": (TEXT, "its kind, and where its messages go, without secrets"),
        "accepted": (FLAG, ""),
        "problem": (TEXT, "what came back; empty: it was accepted"),
        "seconds": (NUMBER, "how long that took"),
    })),
}  # fmt: skip
