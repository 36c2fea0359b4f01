"""Text to learn from, made by rules: the same on every machine, and never seen by anybody."""

from collections.abc import Iterator

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz.,"


def name(number: int) -> str:
    """forty two."""
    if number < len(SMALL):
        return SMALL[number]
    tens, ones = divmod(number, 10)
    return TENS[tens] if ones == 0 else f"{TENS[tens]} {SMALL[ones]}"


def sentences() -> Iterator[str]:
    """All sums, differences and products below a hundred."""
    for a in range(50):
        for b in range(50):
            yield f"{name(a)} plus {name(b)} is {name(a + b)}."
            if a >= b:
                yield f"{name(a)} minus {name(b)} is {name(a - b)}."
            if a * b < 100:
                yield f"{name(a)} times {name(b)} is {name(a * b)}."


def shards(window: int, many: int = 16) -> list[list[list[int]]]:
    """Windows of so many characters and one more, as numbers, dealt into shards."""
    number = {letter: place for place, letter in enumerate(ALPHABET)}
    lines = list(sentences())
    found: list[list[list[int]]] = []
    for shard in range(many):
        # Every seventeenth sentence: neighbours in the list would be too much alike.
        text = "\n".join(lines[place * 17 % len(lines)] for place in range(shard, len(lines), many))
        coded = [number[letter] for letter in text]
        starts = range(0, len(coded) - window, window)
        found.append([coded[start : start + window + 1] for start in starts])
    return found
