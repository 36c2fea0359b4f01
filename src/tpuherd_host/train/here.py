"""What a process can say of the place it runs in: its variables, the time, its own streams.

It is this package's clock as well: nothing else in it tells the time or waits.
"""

import os
import sys
import time
from collections.abc import Mapping

#: The first seconds of a process are told with this: it is read when the package is loaded.
BEGAN = time.time()


def environment() -> Mapping[str, str]:
    """The variables of this process, as they are now."""
    return os.environ


def export(name: str, value: str) -> None:
    """Set a variable for this process and those that it starts, where nobody has."""
    os.environ.setdefault(name, value)


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def tick() -> float:
    """Seconds since some moment: for durations."""
    return time.perf_counter()


def wait(seconds: float) -> None:
    """Do nothing for so long. Whoever waits for something here counts its tries, or its seconds."""
    time.sleep(seconds)


def say(sentence: str) -> None:
    """Tell whoever reads the log."""
    sys.stderr.write(f"herd: {sentence}\n")
    sys.stderr.flush()
