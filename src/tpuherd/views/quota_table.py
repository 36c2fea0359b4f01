"""The text of `herd quota`."""

from collections.abc import Mapping
from typing import Any

from tpuherd.views.format_text import NOTHING, format_table

HEAD = ("PLACE", "TYPE", "TIER", "ALLOWED", "USED", "LEFT", "UNIT", "SOURCE", "JOBS")
EMPTY = "No quota allows a TPU, and no grants are declared: add them with `herd context grant`."


def quota_text(
    content: Mapping[str, Any], *, colour: bool = False, width: int | None = None
) -> str:
    rows = [quota_cells(one) for one in content["limits"]]
    if not rows:
        return EMPTY
    return format_table([HEAD, *rows], right=(3, 4, 5), colour=colour, width=width)


def quota_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    allowed, used = one["allowed"], one["used"]
    jobs = ", ".join(f"{job or 'not herd'} {many}" for job, many in one["jobs"].items())
    left = "any" if allowed is None else str(max(0, allowed - used))
    return (
        one["place"], one["type"], one["tier"], "any" if allowed is None else str(allowed),
        str(used), left, one["unit"], one["source"], jobs or NOTHING,
    )  # fmt: skip
