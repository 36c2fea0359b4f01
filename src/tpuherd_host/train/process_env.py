"""The environment of a process: variables, time and streams.

It is also this package's clock: nothing else in it reads the time or sleeps.
"""

import os
import sys
import time
from collections.abc import Mapping
from multiprocessing import current_process, parent_process

#: Read when the package is loaded, to measure the startup of the process.
BEGAN = time.time()


def process_start_time() -> float:
    """Return when the kernel started this process, in seconds since 1970."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime") as file:
            up_s = float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return BEGAN
    return min(BEGAN, time.time() - up_s + ticks / os.sysconf("SC_CLK_TCK"))


def process_environment() -> Mapping[str, str]:
    return os.environ


def set_default_variable(name: str, value: str) -> None:
    """Set a variable for this process and its children unless it is set."""
    os.environ.setdefault(name, value)


def replace_variable(name: str, value: str) -> None:
    """Set a variable for this process and its children."""
    os.environ[name] = value


def is_loaded_again() -> bool:
    """Whether multiprocessing is importing the main module again in a child of `spawn`."""
    return bool(getattr(current_process(), "_inheriting", False))


def is_worker_process() -> bool:
    """Whether multiprocessing started this process."""
    return is_loaded_again() or parent_process() is not None


def read_process_number(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return this process's index and count, as init() or the engine set them."""
    for index, count in (("HERD_PROCESS", "HERD_PROCESSES"), ("HERD_WORKER", "HERD_WORKERS")):
        pair = environ.get(index, ""), environ.get(count, "")
        if all(word.isdecimal() for word in pair) and int(pair[0]) < int(pair[1]):
            return int(pair[0]), int(pair[1])
    return 0, 1


def wall_time() -> float:
    return time.time()


def monotonic_time() -> float:
    return time.perf_counter()


def wait(seconds: float) -> None:
    """Sleep. Callers that wait for something count their tries or seconds."""
    time.sleep(seconds)


def log_message(sentence: str) -> None:
    sys.stderr.write(f"herd: {sentence}\n")
    sys.stderr.flush()


def log_error(sentence: str) -> None:
    """Print why this program ends: the engine shows it as the cause of the attempt's failure."""
    log_message(f"error: {sentence}")
