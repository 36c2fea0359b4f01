"""A transcript as lines for people, so that they can check what they send."""

from collections.abc import Mapping
from typing import Any


def transcript_line(entry: Mapping[str, Any]) -> str:
    """Return one line for one record."""
    at = entry.get("at")
    when = f"{at:>10.1f} s" if isinstance(at, int | float) else " " * 12
    match entry.get("kind"):
        case "exchange":
            status = entry.get("status") or entry.get("failure") or "?"
            query = dict_of(entry, "query").items()
            asked = "&".join(f"{name}={parameter_text(one)}" for name, one in query)
            path = f"{entry.get('path')}{'?' if asked else ''}{asked}"
            return f"{when}  {status}  {entry.get('method', '?'):<6}  {path}{outcome_text(entry)}"
        case "repeat":
            return f"{when}  the same reply as in {entry.get('of')}"
        case "host":
            return f"{when}  a host of {entry.get('type')} with {entry.get('runtime')}"
        case "transcript":
            cloud = "a simulated world" if entry.get("cloud") == "world" else "Google Cloud"
            return f"{when}  recorded by herd {entry.get('herd')} from {cloud}"
    return f"{when}  unknown record"


def parameter_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def outcome_text(entry: Mapping[str, Any]) -> str:
    """Return the state or error in a reply."""
    reply = dict_of(entry, "reply")
    error = dict_of(reply, "error")
    if error:
        return f"  {error.get('status') or error.get('code')}: {error.get('message')}"
    state = reply.get("state")
    if isinstance(state, dict):
        state = state.get("state")
    return f"  {state}" if isinstance(state, str) else ""


def dict_of(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = entry.get(name)
    return found if isinstance(found, dict) else {}
