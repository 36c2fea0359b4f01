"""Tell from the last lines of a failed host whether it failed itself or lost a peer."""

import re
from collections.abc import Sequence

from tpuherd.model.slot_history import UNFIT

#: Printed by processes that outlive a peer: never the cause.
CONSEQUENCES = re.compile(
    "|".join(
        (
            r"Gloo \w+ failed",
            r"gloo/transport/tcp",
            r"Connection (reset|closed) by peer",
            r"Socket closed",
            r"Failed to send RPC to coordination service",
            r"CoordinationService/RegisterTask",
            r"Terminating process because the (JAX|coordination|TF) ?\w* ?service detected fatal",
            r"Terminating process because the JAX distributed service detected fatal errors",
            r"[Tt]asks? are unhealthy",
            r"heartbeat timeout",
            r"Barrier (timed out|failed)",
            r"[Ss]hutdown barrier",
            r"another task died",
            r"program continuator has halted",
            r"Slice health check failed",
            r"RAW: Raising signal",
            r"herd: another process is gone",
            r"Fatal Python error: Aborted",
            r"\*\*\* SIGABRT",
        )
    )
)
#: The chips of this host did not come up: the node's fault, not the user's.
CHIPS = re.compile(
    "|".join(
        (
            r"TPU initialization failed",
            r"/dev/(vfio/\d+|accel\d+)\S* ?:? ?Device or resource busy",
            r"Couldn't open iommu group",
            r"Couldn't set iommu to type",
            r"Couldn't open device: /dev/accel",
            r"The TPU is already in use",
            r"libtpu multi-process lockfile",
            r"libtpu\.so already in used? by another process",
            r"Failed to connect to vbar control service",
            r"Unable to initialize backend 'tpu'",
            r"herd: the hosts are not alike: the number of chips",
            r"observed errors are: \[(Hardware|Network|Power)\]",
        )
    )
)
#: A line that tells of something gone wrong.
ALARMS = re.compile(
    r"Traceback|\b\w*(Error|Exception)\b|\berror\b|\bfatal\b|\bassert|[Kk]illed|[Oo]ut of memory|"
    r"bad_alloc|No space left|panic|not found|denied|Segmentation fault",
)
#: Exit statuses and signals of those that outlive a peer; 76 is that of a script with `Run`.
ABORTED = {6, 134, -6, 76}


OURS = "herd: "  #: before what the library on the host says
CAUSE_CHARS_MAX = 200
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?")


def chips_failed(lines: Sequence[str]) -> bool:
    return any(CHIPS.search(line) for line in lines)


def has_own_cause(lines: Sequence[str], exit_code: int | None, signal: int | None) -> bool:
    """Whether the host failed by itself, not because another did."""
    for line in lines:
        if CONSEQUENCES.search(line):
            return False
        if ALARMS.search(line) and not line.startswith("Traceback"):
            return True
    if exit_code == UNFIT:
        return bool(library_message(lines))  # all end with it, and one says why
    return exit_code not in ABORTED and signal not in ABORTED


def library_message(lines: Sequence[str]) -> str:
    """The last message of our library on the host."""
    message = (line.removeprefix(OURS) for line in reversed(lines) if line.startswith(OURS))
    return next(message, "")


def find_cause(lines: Sequence[str]) -> str:
    """The line that says what went wrong, fit for a sentence; "" if there is none.

    It is what our library says, else what a traceback ends with, else the first line that sounds
    like an error, else the last line.
    """
    plain = [clean_line(line) for line in lines if not CONSEQUENCES.search(line)]
    alarms = [line for line in plain if ALARMS.search(line) and not starts_traceback(line)]
    spoken = [line for line in plain if line.strip()]
    message = (
        library_message(plain)
        or traceback_error(plain)
        or next((line for line in alarms if not line.startswith(" ")), "")
        or next(iter(alarms + spoken[-1:]), "")
    )
    message = message.strip()
    return message if len(message) <= CAUSE_CHARS_MAX else f"{message[:CAUSE_CHARS_MAX]}…"


def traceback_error(lines: Sequence[str]) -> str:
    """The error of the first traceback: its first line that is not indented."""
    start = next((n for n, line in enumerate(lines) if starts_traceback(line)), len(lines))
    return next((line for line in lines[start + 1 :] if line.strip() and line[0] != " "), "")


def starts_traceback(line: str) -> bool:
    return "Traceback (most recent call last)" in line


def clean_line(line: str) -> str:
    """Remove a terminal's escapes and unprintable characters."""
    return "".join(c if c.isprintable() else " " for c in ESCAPES.sub("", line))
