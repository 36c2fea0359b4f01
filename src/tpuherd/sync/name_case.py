"""Refuses names that differ only by case, where the file system takes them for one file."""

import os
from collections.abc import Iterable
from pathlib import Path

from tpuherd.errors import InvalidInput


def ignores_case(folder: Path) -> bool:
    """Whether a folder's name in the other case leads to the same folder, as macOS has it."""
    for place in (folder, *folder.parents):
        other = place.with_name(place.name.swapcase()) if place.name else place
        if other != place:
            try:
                return other.samefile(place)
            except OSError:
                return False
    return False


def find_twins(paths: Iterable[bytes]) -> list[tuple[str, str]]:
    """Pairs of paths that differ only by case, in order."""
    seen: dict[str, str] = {}
    pairs = []
    for path in sorted(map(os.fsdecode, paths)):
        first = seen.setdefault(path.casefold(), path)
        if first is not path:
            pairs.append((first, path))
    return pairs


def require_distinct_names(root: Path, paths: Iterable[bytes], hint: str) -> None:
    """Refuse files of which this folder can have only one, and the other would get its content."""
    pairs = find_twins(paths) if ignores_case(root) else []
    if pairs:
        first, second = pairs[0]
        more = f", and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
        raise InvalidInput(
            f"{first} and {second} differ only by case{more}, and {root} can have only one of them",
            hint=hint,
        )
