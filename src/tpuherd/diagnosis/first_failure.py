"""Tells from the last lines of a failed host whether it failed itself or lost a peer."""

import re
from collections.abc import Sequence
from itertools import pairwise

from tpuherd.diagnosis.match_line import BOOK, RuleBook, matching_rules
from tpuherd.model.slot_history import UNFIT
from tpuherd_host.agent.log_records import TRACEBACK, exception_line

#: A line that tells of something gone wrong.
ALARMS = re.compile(
    r"Traceback|\b\w*(Error|Exception)\b|\berror\b|\bfatal\b|\bassert|[Kk]illed|[Oo]ut of memory|"
    r"bad_alloc|No space left|panic|not found|denied|Segmentation fault",
)
#: Exit statuses and signals of those that outlive a peer; 76 is that of a script with `Run`.
ABORTED = {6, 134, -6, 76}


OURS = "herd: "  #: before what the library on the host says
ERROR = f"{OURS}error: "  #: before why it ends; all else that it says is no cause
CAUSE_CHARS_MAX = 200
NO_PROGRAM = ("SyntaxError: ", "IndentationError: ", "TabError: ")
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?")


def is_consequence(line: str, book: RuleBook = BOOK) -> bool:
    """Whether a process printed it that has outlived another: never the cause."""
    return any(rule.is_consequence for rule, _ in matching_rules(line, book))


def chips_failed(lines: Sequence[str]) -> bool:
    """Whether the chips of this host did not come up: the node's fault, not the user's."""
    return any(rule.chips for line in lines for rule, _ in matching_rules(line))


def has_own_cause(lines: Sequence[str], exit_code: int | None, signal: int | None) -> bool:
    """Whether the host failed by itself, not because another did."""
    for line in lines:
        if is_consequence(line):
            return False
        if is_alarming(line) and not line.startswith("Traceback"):
            return True
    if exit_code == UNFIT:
        return bool(library_message(lines))  # all end with it, and one says why
    return exit_code not in ABORTED and signal not in ABORTED


def is_alarming(line: str) -> bool:
    return ALARMS.search(line) is not None


def library_message(lines: Sequence[str]) -> str:
    """Why our library on the host has ended the program, in its last words; "" if it has not."""
    message = (line.removeprefix(ERROR) for line in reversed(lines) if line.startswith(ERROR))
    return next(message, "")


def find_cause(lines: Sequence[str]) -> str:
    """The line that says what went wrong, fit for a sentence; "" if there is none.

    It is why our library has ended the program, else what a traceback ends with, else the first
    line that sounds like an error, else the last line. What else our library says is no cause.
    """
    own = [clean_line(line) for line in lines if not is_consequence(line)]
    plain = [line for line in own if line.startswith(ERROR) or not line.startswith(OURS)]
    alarms = [line for line in plain if is_alarming(line) and not starts_traceback(line)]
    spoken = [line for line in plain if line.strip()]
    message = (
        library_message(plain)
        or traceback_error(plain)
        or next((line for line in alarms if not line.startswith(" ")), "")
        or next(iter(alarms + spoken[-1:]), "")
    )
    return shorten_line(message)


def shorten_line(line: str) -> str:
    """The line without blanks around it, and cut."""
    line = line.strip()
    return line if len(line) <= CAUSE_CHARS_MAX else f"{line[:CAUSE_CHARS_MAX]}…"


def traceback_error(lines: Sequence[str]) -> str:
    """The error of the first traceback."""
    start = next((n for n, line in enumerate(lines) if starts_traceback(line)), None)
    return "" if start is None else exception_line(lines, start)


def python_error(lines: Sequence[str]) -> str:
    """The error of the first traceback, or what Python says of a script that is no program: the
    line after its place, without a traceback. "" if there is neither."""
    for place, after in pairwise(lines) if not any(map(starts_traceback, lines)) else ():
        if place.startswith("    ") and after.startswith(NO_PROGRAM):
            return after
    return traceback_error(lines)


def starts_traceback(line: str) -> bool:
    return TRACEBACK in line


def clean_line(line: str) -> str:
    """Remove a terminal's escapes and unprintable characters."""
    return "".join(c if c.isprintable() else " " for c in ESCAPES.sub("", line))
