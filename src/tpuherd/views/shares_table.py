"""The users' shares in the text of `herd quota`."""

from collections.abc import Mapping
from typing import Any

from tpuherd.views.format_text import NOTHING, format_table

USERS = ("USER", "WEIGHT", "PART", "JOBS")
QUOTAS = ("ZONE", "TYPE", "TIER", "CHIPS", "USED BY")
NO_QUOTAS = "No grant says how many chips there are: who asks first is served first."


def shares_text(
    content: Mapping[str, Any], *, colour: bool = False, width: int | None = None
) -> str:
    """Return two tables, or "" where one user alone has all."""
    if len(content["users"]) < 2 and not content["quotas"]:
        return ""
    style: Any = {"colour": colour, "width": width}
    users = [user_cells(one) for one in content["users"]]
    head = [format_table([USERS, *users], right=(1, 2, 3), **style)] if users else []
    quotas = [quota_cells(one) for one in content["quotas"]]
    tail = format_table([QUOTAS, *quotas], right=(3,), **style) if quotas else NO_QUOTAS
    return "\n\n".join([*head, tail])


def user_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    part = f"{one['part']:.0%}" if one["jobs"] else NOTHING
    return one["user"], f"{one['weight']:g}", part, str(one["jobs"])


def quota_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    used = ", ".join(f"{user or 'others'} {chips}" for user, chips in one["used"].items())
    return one["zone"], one["type"], one["tier"], str(one["chips"]), used or NOTHING
