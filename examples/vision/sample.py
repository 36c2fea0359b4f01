"""Decodes a sample of a shard for the network; for other pictures, change only this function.

For JPEG or PNG, with Pillow: np.asarray(Image.open(io.BytesIO(sample["jpg"])).convert("RGB")).
"""

# mypy: ignore-errors
# NumPy is not installed where types are checked.

from collections.abc import Mapping

import numpy as np


def decoded(sample: Mapping[str, bytes]) -> tuple[np.ndarray, np.int32]:
    """Return height × width × 3 numbers between 0 and 1, and the label."""
    head, _, pixels = sample["ppm"].partition(b"\n")
    _, width, height, _ = head.split()
    shape = int(height), int(width), 3
    picture = np.frombuffer(pixels, np.uint8).reshape(shape).astype(np.float32) / 255
    return picture, np.int32(int(sample["cls"]))
