"""The difference between two documents of a job, and what it takes to apply it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from math import inf
from typing import Any

from tpuherd.jobfile.fields import FIELDS, ChangeImpact
from tpuherd.jobfile.joined_fields import join_fields

#: The sentence shown before a change is applied.
SENTENCES = {
    ChangeImpact.NODE: "this needs new nodes: the current ones keep working until the"
    " new ones are ready",
    ChangeImpact.ATTEMPT: "this needs a new attempt: the command is stopped and started again",
    ChangeImpact.NOTHING: "nothing is interrupted",
}
ORDER = (ChangeImpact.NOTHING, ChangeImpact.ATTEMPT, ChangeImpact.NODE)
WIDTH = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDiff:
    fields: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  #: accelerator: v4-16 → v4-32
    needs: ChangeImpact = ChangeImpact.NOTHING
    fewer: int = 0  #: number of nodes that are removed

    @property
    def sentence(self) -> str:
        """What happens when the change is applied."""
        if not self.fewer:
            return SENTENCES[self.needs]
        going = f"{self.fewer} of its nodes {'is' if self.fewer == 1 else 'are'} deleted"
        more = (
            ""
            if self.needs is ChangeImpact.NOTHING
            else f"; for the others {SENTENCES[self.needs]}"
        )
        return f"{going}, with what runs there{more}"


def diff_documents(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    code: tuple[str, str] = ("", ""),
) -> JobDiff:
    """Compare two documents; `code` are the snapshots before and after."""
    old, new = join_fields(old), join_fields(new)
    names = [name for name in FIELDS if old.get(name) != new.get(name)]
    lines = [line for name in names for line in diff_field(name, old, new)]
    needs = [FIELDS[name].needs for name in names]
    if code[0] != code[1]:
        names.append("code")
        lines.append(f"code: {code[0][:12] or 'none'} → {code[1][:12] or 'none'}")
        needs.append(ChangeImpact.ATTEMPT)
    return JobDiff(
        fields=tuple(names),
        lines=tuple(lines),
        needs=max(needs, key=ORDER.index, default=ChangeImpact.NOTHING),
        fewer=max(0, old.get("copies", 1) - new.get("copies", 1)),
    )


def diff_field(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Describe a changed field; for a sweep, its changed subfields."""
    before, after = old.get(name), new.get(name)
    if name != "sweep" or not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return [f"{name}: {show_field(name, old)} → {show_field(name, new)}"]
    below = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [
        f"{name}.{key}: {shorten_value(before.get(key, 'none'))}"
        f" → {shorten_value(after.get(key, 'none'))}"
        for key in below
    ]


def show_field(name: str, document: Mapping[str, Any]) -> str:
    if name not in document:
        default = FIELDS[name].default
        plain = isinstance(default, str | int | float | tuple) and default != ""
        value = FIELDS[name].kind.write(default) if plain and default != inf else None
        if is_dataclass(default):
            return "default"
        return "none" if value in (None, []) else shorten_value(value)
    return shorten_value(document[name])


def shorten_value(value: Any) -> str:
    """Short."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
