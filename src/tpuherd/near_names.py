"""Finds the known names that a misspelt word may have meant."""

from collections.abc import Iterable

PREFIX_MIN = 3  #: letters of a prefix that are enough to suggest a name


def near_names(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return up to `most` similar names, nearest first."""
    said = word.lower()
    bound = 1 if len(said) <= 4 else 2 if len(said) <= 8 else 3
    found = []
    for name in dict.fromkeys(known):
        far = count_edits(said, name.lower(), bound)
        if far <= bound:
            found.append((far, name))
        elif len(said) >= PREFIX_MIN and name.lower().startswith(said):
            found.append((bound + 1, name))
    return [name for _, name in sorted(found)[:most]]


def count_edits(one: str, other: str, bound: int) -> int:
    """Return the number of insertions, deletions, substitutions and swaps, or more than `bound`."""
    if abs(len(one) - len(other)) > bound:
        return bound + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        earlier, before, row = before, row, [at]
        for place, there in enumerate(other, 1):
            edits = min(
                before[place] + 1, row[place - 1] + 1, before[place - 1] + (letter != there)
            )
            swapped = at > 1 and place > 1 and letter == other[place - 2] and there == one[at - 2]
            row.append(min(edits, earlier[place - 2] + 1) if swapped else edits)
        if min(row) > bound:
            return bound + 1
    return row[-1]
