"""The text of `herd setup gcp`, from the JSON that it prints."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MARKS = {"there": "✓", "made": "✓", "missing": "+", "later": "+", "blocked": "✗", "failed": "✗"}
LATER = "unless it is so already, which shows when the API is enabled"


def plan_lines(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is there, what will be done, and what can't be."""
    for one in steps:
        is_done = one["state"] in ("there", "made")
        text = one["fact"] if is_done else one["action"]
        notes = [one["note"], LATER if one["state"] == "later" else ""]
        more = "; ".join(note for note in notes if note)
        yield f"  {MARKS[one['state']]} {text}" + (f": {more}" if more else "")


def undo_lines(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in results:
        yield f"  {'✗' if one['failed'] else '-' if one['undone'] else '='} {one['sentence']}"


def count_changes(steps: Sequence[Mapping[str, Any]]) -> str:
    """make 3 changes"""
    number = sum(one["state"] in ("missing", "later") for one in steps)
    return "make 1 change" if number == 1 else f"make {number} changes"


def closing_line(steps: Sequence[Mapping[str, Any]]) -> str:
    """Return what to do next."""
    states = {one["state"] for one in steps}
    wrong = "; see what stands at ✗" if states & {"blocked", "failed"} else ""
    if "made" in states:
        return f"To undo this: herd setup gcp --undo{wrong}"
    return "Nothing to do" if states <= {"there"} else f"Nothing was changed{wrong}"
