"""Says in one sentence why uv or pip failed, and whether another try can help. Pure."""

import re
from typing import NamedTuple, Sequence

UNFIT = 78  #: only a change of the job helps
FULL = 74
FAILED = 75  #: another try may succeed
SENTENCE_MAX = 400

DISK = re.compile(r"No space left on device|os error 28|Disk quota exceeded", re.I)
NETWORK = re.compile(
    r"Failed to fetch|error sending request|dns error|Connection (?:refused|reset|timed out)"
    r"|timed out|Retrying \(Retry|tunnel error|Temporary failure in name resolution"
    r"|Could not resolve host|Name or service not known|HTTP status server error"
    r"|Max retries exceeded"
)
HEAD = re.compile(r"(?:error|ERROR):\s*(\S.*)|\s*×\s*(\S.*)")
CAUSE = re.compile(r"\s*(?:cause:|╰─▶|├─▶)\s*(\S.*)")
COMPILER = re.compile(r"\s+.*?\b((?:fatal )?error: (?!Command |command ).*)")


class Failure(NamedTuple):
    sentence: str
    status: int


def explain_failure(what: str, lines: Sequence[str]) -> Failure:
    """Explain what an installer printed before it failed. `what`: requirements.txt"""
    text = "\n".join(lines)
    if DISK.search(text):
        return Failure(f"the disk is full: {what} can't be installed", FULL)
    cause = find_cause(lines)
    if NETWORK.search(text):
        sentence = f"{what} can't be installed: a server could not be reached ({cause})"
        return Failure(sentence[:SENTENCE_MAX], FAILED)
    return Failure(f"{what} can't be installed: {cause}"[:SENTENCE_MAX], UNFIT)


def find_cause(lines: Sequence[str]) -> str:
    """Return the part of the output that names the cause, else its last line."""
    head = first_match(HEAD, lines)
    cause = first_match(CAUSE, lines)
    if "build" in head:
        cause = first_match(COMPILER, lines) or cause
    if head and cause:
        return cause if head.startswith("No solution found") else f"{head}: {cause}"
    rest = [line.strip() for line in lines if line.strip()]
    return head or cause or (rest[-1] if rest else "it printed nothing")


def first_match(pattern: "re.Pattern[str]", lines: Sequence[str]) -> str:
    """Return what the first such line says, with the lines that continue its sentence."""
    for number, line in enumerate(lines):
        match = pattern.fullmatch(line)
        if match:
            words = [word.strip() for word in match.groups() if word]
            more = [] if pattern is COMPILER else continued_lines(lines[number + 1 :])
            return " ".join([*words, *more]).rstrip(".")  # other sentences follow it
    return ""


def continued_lines(lines: Sequence[str]) -> "list[str]":
    """Return the indented lines that go on with the sentence before them."""
    found = []
    for line in lines:
        plain = line.strip(" │")
        if not line.startswith("  ") or not plain or plain[0] in "[╰├×^-" or CAUSE.fullmatch(line):
            break
        found.append(plain)
    return found
