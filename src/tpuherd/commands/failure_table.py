"""The table of failed hosts at the end of a command."""

from collections.abc import Sequence

from tpuherd.commands.command_types import HostOutcome
from tpuherd.exit_status import SIGNALLED, TRANSPORT
from tpuherd.targets import fold_names

LINES = 3
GROUPS = 12
WIDTH = 160
SIGNALS = {1: "HUP", 2: "INT", 3: "QUIT", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 11: "SEGV",
           13: "PIPE", 15: "TERM"}  # fmt: skip


def failure_table(outcomes: Sequence[HostOutcome]) -> list[str]:
    """Return its lines; none if all succeeded. For a single host only the reason is given."""
    failed = [outcome for outcome in outcomes if outcome.status]
    if not failed:
        return []
    if len(outcomes) == 1:
        only = failed[0]
        return [f"herd exec: {only.label}: {only.why}"] if only.status == TRANSPORT else []
    groups: dict[tuple[int, str, tuple[str, ...]], list[str]] = {}
    for outcome in failed:
        why = outcome.why if outcome.status == TRANSPORT else ""
        lines = last_lines(outcome.tail)
        groups.setdefault((outcome.status, why, lines), []).append(outcome.label)
    said = [f"failed on {len(failed)} of {len(outcomes)} hosts:"]
    for (status, why, lines), labels in list(groups.items())[:GROUPS]:
        said.append(f"  {fold_names(labels)}  {why or status_text(status)}")
        said += [f"      {line}" for line in lines]
    if len(groups) > GROUPS:
        rest = [label for labels in list(groups.values())[GROUPS:] for label in labels]
        said.append(f"  {fold_names(rest)}  otherwise")
    return said


def status_text(status: int) -> str:
    if status in (126, 127):
        return f"exit {status} ({'not found' if status == 127 else 'not executable'})"
    if SIGNALLED < status < TRANSPORT and status - SIGNALLED in SIGNALS:
        return f"exit {status} (SIG{SIGNALS[status - SIGNALLED]})"
    return f"exit {status}"


def last_lines(tail: bytes) -> tuple[str, ...]:
    """Return the last few lines, printable on a terminal."""
    text = tail.decode(errors="replace").replace("\r", "\n")
    lines = [line for line in text.split("\n") if line.strip()][-LINES:]
    return tuple("".join(c if c.isprintable() else "·" for c in line)[:WIDTH] for line in lines)
