"""Generates training pictures as webdataset tar shards: python3 pictures.py FOLDER.

They are drawn by rules, so they are the same on every machine. For your own pictures in a bucket,
see docs/howto/data.md. This needs no library: a PPM picture is a header and bytes.
"""

import io
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random

SIDE = 24  #: pixels
SHARDS, EACH = 16, 128
HELD_OUT = 256  #: pictures that are kept for the final test
COLOURS = ((220, 60, 50), (60, 180, 75), (70, 90, 220), (230, 200, 60), (200, 80, 200))

#: Each shape: whether a point belongs to it, with the center at 0 and the edge at 1.
FORMS: dict[str, Callable[[float, float], bool]] = {
    "disc": lambda x, y: x * x + y * y < 1,
    "ring": lambda x, y: 0.35 < x * x + y * y < 1,
    "square": lambda x, y: max(abs(x), abs(y)) < 0.85,
    "plus": lambda x, y: min(abs(x), abs(y)) < 0.25 and max(abs(x), abs(y)) < 1,
    "bars": lambda x, y: max(abs(x), abs(y)) < 1 and int((y + 1) * 3) % 2 == 0,
    "triangle": lambda x, y: -0.9 < y < 0.9 and abs(x) < (y + 0.9) / 2,
}


def picture(number: int) -> tuple[bytes, int]:
    """Return a PPM and its label: a shape of some color, anywhere, on a noisy background."""
    chance = Random(number)
    label = number % len(FORMS)
    inside = list(FORMS.values())[label]
    radius = chance.uniform(0.25, 0.45) * SIDE
    middle_x, middle_y = (chance.uniform(radius, SIDE - radius) for _ in range(2))
    colour, ground = chance.choice(COLOURS), chance.randrange(20, 120)
    pixels = bytearray()
    for y in range(SIDE):
        for x in range(SIDE):
            within = inside((x - middle_x) / radius, (y - middle_y) / radius)
            noise = chance.randrange(-20, 21)
            for shade in colour if within else (ground, ground, ground):
                pixels.append(min(255, max(0, shade + noise)))
    return b"P6 %d %d 255\n" % (SIDE, SIDE) + bytes(pixels), label


def shard(path: Path, numbers: range) -> None:
    """Write one tar file atomically, unless it exists."""
    if path.exists():
        return
    half = path.with_name(f".{path.name}.{os.getpid()}")
    with tarfile.open(half, "w") as archive:
        for number in numbers:
            content, label = picture(number)
            for kind, data in (("ppm", content), ("cls", str(label).encode())):
                entry = tarfile.TarInfo(f"{number:06}.{kind}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    half.replace(path)


def made(folder: Path, shards: int = SHARDS, each: int = EACH, held_out: int = HELD_OUT) -> None:
    """Write all shards."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in range(shards):
        shard(folder / f"train-{one:03}.tar", range(one * each, (one + 1) * each))
    shard(folder / "test-000.tar", range(shards * each, shards * each + held_out))


if __name__ == "__main__":
    made(Path(sys.argv[1]).expanduser())
