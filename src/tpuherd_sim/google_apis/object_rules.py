"""Rules of buckets about their objects: holds and retention, and the lifecycle. Pure."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tpuherd_sim.google_apis.bucket_access import storage_error, unserved_error
from tpuherd_sim.google_apis.storage_roles import CLASSES
from tpuherd_sim.model.compute_state import Bucket, format_compute_time
from tpuherd_sim.model.http_types import Json
from tpuherd_sim.model.storage_state import StoredObject

DAY = 86400.0
RETENTION_S_MAX = 3_155_760_000  #: a hundred years
RULES_MAX = 100
SAID = ("cors", "website")  #: about browsers, which are not served here
HOLDS = {"temporaryHold": "Temporary", "eventBasedHold": "Event-Based"}
Condition = Callable[[Any, StoredObject, int, float], bool]


def parse_day(value: Any) -> float:
    """Return the time at which a date begins."""
    if not isinstance(value, str):
        raise ValueError("no date")
    return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()


def days_since(at: float | None) -> Callable[[Any, float], bool]:
    return lambda days, now: at is not None and now - at >= float(days) * DAY


def starts_or_ends(names: Any, name: str, *, start: bool) -> bool:
    return any(name.startswith(one) if start else name.endswith(one) for one in names)


#: Whether an object meets a condition: given its value, how many newer versions there are, and now.
CONDITIONS: Mapping[str, Condition] = {
    "age": lambda value, one, newer, now: days_since(one.created)(value, now),
    "createdBefore": lambda value, one, newer, now: one.created < parse_day(value),
    "daysSinceNoncurrentTime": lambda value, one, newer, now: days_since(one.deleted)(value, now),
    "isLive": lambda value, one, newer, now: (one.deleted is None) == value,
    "matchesPrefix": lambda value, one, newer, now: starts_or_ends(value, one.name, start=True),
    "matchesStorageClass": lambda value, one, newer, now: (
        one.fields.get("storageClass", "STANDARD") in value
    ),
    "matchesSuffix": lambda value, one, newer, now: starts_or_ends(value, one.name, start=False),
    "numNewerVersions": lambda value, one, newer, now: newer >= int(value),
}
LISTS = ("matchesPrefix", "matchesStorageClass", "matchesSuffix")
ACTIONS = ("Delete", "SetStorageClass", "AbortIncompleteMultipartUpload")


# -- as fields of a bucket ------------------------------------------------------------------------


def read_rules(body: Json, before: Bucket | None) -> dict[str, Any]:
    """Return the attributes of a bucket that a body says of these."""
    found: dict[str, Any] = {}
    if any(name in body for name in SAID):
        said = dict(before.said if before else {}) | {
            name: body[name] for name in SAID if name in body
        }
        found["said"] = {name: value for name, value in said.items() if is_set(value)}
    if "lifecycle" in body:
        found["lifecycle"] = read_lifecycle(body["lifecycle"])
    if "retentionPolicy" in body:
        found["retention_s"] = read_retention(body["retentionPolicy"], before)
    if "defaultEventBasedHold" in body:
        found["default_hold"] = body["defaultEventBasedHold"] is True
    return found


def is_set(value: Any) -> bool:  # {"rule": []} says that there are none
    return any(map(is_set, value.values())) if isinstance(value, dict) else bool(value)


def read_lifecycle(sent: Any) -> tuple[Json, ...]:
    """Return the rules of a lifecycle; refuse what would be ignored."""
    rules = sent.get("rule") or [] if isinstance(sent, dict) else [] if sent is None else [None]
    if not isinstance(rules, list) or len(rules) > RULES_MAX:
        raise storage_error(400, "Invalid argument: lifecycle.")
    return tuple(map(read_rule, rules))


def read_rule(rule: Any) -> Json:
    action, condition = (
        (rule.get("action"), rule.get("condition")) if isinstance(rule, dict) else (None, None)
    )
    if not isinstance(action, dict) or not isinstance(condition, dict) or not condition:
        raise storage_error(400, "A lifecycle rule needs an action and a condition.")
    if action.get("type") not in ACTIONS:
        raise storage_error(400, f"Invalid argument: no action is called {action.get('type')}.")
    if action["type"] == "SetStorageClass" and action.get("storageClass") not in CLASSES:
        raise storage_error(400, f"Invalid storage class: '{action.get('storageClass')}'")
    for name, value in condition.items():
        if name not in CONDITIONS:
            raise unserved_error(f"The condition {name}")
        if not is_condition_value(name, value):
            raise storage_error(400, f"Invalid argument: condition {name}.")
    return {"action": action, "condition": condition}


def is_condition_value(name: str, value: Any) -> bool:
    if name in LISTS:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if name == "isLive":
        return isinstance(value, bool)
    if name != "createdBefore":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6
    try:
        parse_day(value)
    except ValueError:
        return False
    return True


def read_retention(sent: Any, before: Bucket | None) -> int:
    """Return the seconds for which a bucket keeps each object; 0: it does not."""
    text = str((sent or {}).get("retentionPeriod", "") if isinstance(sent, dict | None) else "x")
    if sent and not (re.fullmatch("[0-9]{1,10}", text) and 1 <= int(text) <= RETENTION_S_MAX):
        raise storage_error(400, "Invalid argument: retentionPolicy.")
    seconds = int(text) if text else 0
    if before is not None and before.retention_locked and seconds < before.retention_s:
        text = f"Cannot reduce retention duration of a locked Retention Policy for bucket '{before.name}'."  # noqa: E501
        raise storage_error(403, text)
    return seconds


def rules_json(bucket: Bucket) -> Json:
    """Return what a bucket shows of its rules."""
    found: Json = {}
    if bucket.lifecycle:
        found["lifecycle"] = {"rule": [dict(rule) for rule in bucket.lifecycle]}
    if bucket.default_hold:
        found["defaultEventBasedHold"] = True
    if bucket.retention_s:
        found["retentionPolicy"] = {
            "retentionPeriod": str(bucket.retention_s),
            "effectiveTime": format_compute_time(bucket.retention_since),
            **({"isLocked": True} if bucket.retention_locked else {}),
        }
    return found


# -- for objects ----------------------------------------------------------------------------------


def retained_until(bucket: Bucket, one: StoredObject) -> float | None:
    """Return until when a bucket keeps an object; None: it does not, or an event decides."""
    if not bucket.retention_s or one.fields.get("eventBasedHold"):
        return None
    return max(one.created, one.released) + bucket.retention_s


def check_removable(bucket: Bucket, one: StoredObject, now: float) -> None:
    """Refuse to delete or overwrite what a hold or the bucket's retention keeps."""
    what = f"Object '{one.bucket}/{one.name}' is"
    for name, word in HOLDS.items():
        if one.fields.get(name):
            text = f"{what} under active {word} hold and cannot be deleted, overwritten or archived"
            raise storage_error(403, f"{text} until hold is removed.")
    until = retained_until(bucket, one)
    if until is not None and now < until:
        text = f"{what} subject to bucket's retention policy or object retention and cannot be"
        raise storage_error(
            403, f"{text} deleted or overwritten until {format_compute_time(until)}"
        )


def due_action(bucket: Bucket, one: StoredObject, newer: int, now: float) -> Json | None:
    """Return what the lifecycle does with an object now; deletion comes first."""
    actions = [
        rule["action"]
        for rule in bucket.lifecycle
        if all(
            CONDITIONS[name](value, one, newer, now) for name, value in rule["condition"].items()
        )
    ]
    return next((one for kind in ACTIONS[:2] for one in actions if one["type"] == kind), None)
