"""What waits to be sent to one receiver, and when to send, repeat or give up.

A quiet receiver gets a message seconds after its first note. Notes that come meanwhile join it, and
the next message waits at least a minute, or ten minutes once there were ten in an hour.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from tpuherd.notify.notes import Note

NOTES_MAX = 200  #: that wait; further ones are only counted
GAP_S, LONG_GAP_S = 60.0, 600.0  #: between messages
HOUR_S, BRISK = 3600.0, 10  #: so many messages in an hour make the gap long
RETRY_S, RETRY_S_MAX = 5.0, 600.0
WAIT_S_MAX = 3600.0  #: the longest time that a receiver may ask us to wait
PATIENCE_S = 6 * 3600.0  #: a message that could not be sent for so long is given up
REFUSED_S = 600.0  #: the same where the receiver refuses it for good


@dataclass(slots=True)
class Outbox:
    """The messages to one receiver; saved, so that they outlive the engine."""

    title: str = ""  #: its name for people
    pending: list[Note] = field(default_factory=list)
    dropped: int = 0  #: notes beyond NOTES_MAX
    since: float = 0.0  #: when the first of them came
    told: dict[str, float] = field(default_factory=dict)  #: see timed_notes
    sent_at: list[float] = field(default_factory=list)  #: the messages of the last hour
    sent: int = 0  #: messages so far
    failures: int = 0  #: tries that failed so far
    tries: int = 0  #: failed ones in a row
    failing_since: float | None = None
    error: str = ""  #: of the last try
    next_try_at: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SendProblem:
    """Why a message was not accepted."""

    sentence: str  #: without the address
    retry_after_s: float = 0.0  #: the receiver asks for it
    final: bool = False  #: it refuses the message, and will again


def add_notes(box: Outbox, notes: Iterable[Note], now: float) -> None:
    for note in notes:
        if not box.pending and not box.dropped:
            box.since = now
        if len(box.pending) < NOTES_MAX:
            box.pending.append(note)
        else:
            box.dropped += 1


def due_at(box: Outbox, digest_s: float, now: float) -> float:
    """Return when to send what waits; inf if nothing waits."""
    if not box.pending:
        return inf
    recent = [at for at in box.sent_at if at > now - HOUR_S]
    gap_s = LONG_GAP_S if len(recent) >= BRISK else GAP_S
    free_at = max(recent) + gap_s if recent else 0.0
    return max(box.since + digest_s, free_at, box.next_try_at)


def mark_sent(box: Outbox, many: int, dropped: int, now: float) -> None:
    """A message with the first `many` notes, and a word of the dropped ones, was accepted."""
    box.pending = box.pending[many:]
    box.dropped -= dropped
    box.since = now
    box.sent_at = [*(at for at in box.sent_at if at > now - HOUR_S), now]
    box.sent += 1
    box.tries, box.failing_since, box.error, box.next_try_at = 0, None, "", 0.0


def mark_failed(box: Outbox, problem: SendProblem, now: float) -> int:
    """A try failed. Return how many notes are given up with it; 0: it is tried again."""
    box.failures += 1
    box.tries += 1
    box.error = problem.sentence
    if box.failing_since is None:
        box.failing_since = now
    pause_s = min(RETRY_S_MAX, RETRY_S * 2.0 ** min(box.tries - 1, 10))
    box.next_try_at = now + max(pause_s, min(problem.retry_after_s, WAIT_S_MAX))
    patience_s = REFUSED_S if problem.final else PATIENCE_S
    if now - max(box.failing_since, box.since) < patience_s:
        return 0
    many = len(box.pending) + box.dropped
    box.pending, box.dropped = [], 0
    return many
