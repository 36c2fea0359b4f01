"""How much memory a part of this process holds, by following its references."""

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)


def measure_objects(roots: list[Any], leave_out: Callable[[Any], bool]) -> tuple[int, Counter[str]]:
    """The bytes of all objects reached from these roots, and how many there are of each type.

    `leave_out`: objects that belong to somebody else; what only they hold is not counted.
    """
    seen: set[int] = set()
    kinds: Counter[str] = Counter()
    total, left = 0, list(roots)
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, SHARED) or leave_out(one):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        kinds[f"{type(one).__module__}.{type(one).__qualname__}"] += 1
        left += gc.get_referents(one)
    return total, kinds
