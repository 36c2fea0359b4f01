"""Puts notes into one message: a single note as it is, many as a digest."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from tpuherd.model.receivers import Topic
from tpuherd.notify.notes import Note, count_words, join_names
from tpuherd.notify.outbox import Outbox

LINES_MAX = 3  #: notes of a group that are shown in full
GROUPS_MAX = 12
#: How a digest names several notes about one topic.
TOPIC_WORDS = {
    Topic.DONE: "done", Topic.FAILED: "failed", Topic.GAVE_UP: "gave up",
    Topic.PREEMPTED: "preempted", Topic.STALLED: "stalled", Topic.WAITING: "waiting",
    Topic.IDLE: "idle", Topic.COST: "cost", Topic.QUOTA: "refused", Topic.ORPHAN: "orphans",
    Topic.ENGINE: "engine",
}  # fmt: skip
URGENT = {Topic.GAVE_UP, Topic.COST, Topic.QUOTA, Topic.ENGINE}


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """What is sent to a receiver at once."""

    id: str  #: the same if it is sent twice
    title: str
    text: str
    origin: str  #: whose jobs: the project or world, and the machine
    at: float
    notes: tuple[Note, ...]
    more: int = 0  #: notes that were dropped

    @property
    def topics(self) -> tuple[Topic, ...]:
        """What it is about."""
        return tuple(dict.fromkeys(topic for note in self.notes for topic in note.topics))

    @property
    def urgent(self) -> bool:
        """Whether a person should look soon."""
        return bool(URGENT & set(self.topics))


def compose_message(box: Outbox, origin: str, now: float) -> Message:
    """Compose all that waits in the outbox."""
    notes = tuple(box.pending)
    names = "\n".join(f"{note.seq} {note.at} {note.job} {note.slot} {note.title}" for note in notes)
    single = len(notes) == 1 and not box.dropped
    return Message(
        id=sha256(names.encode("utf-8", "replace")).hexdigest()[:16],
        title=notes[0].title if single else digest_title(notes, box.dropped),
        text=notes[0].text if single else digest_text(notes, box.dropped),
        origin=origin,
        at=now,
        notes=notes,
        more=box.dropped,
    )


def digest_title(notes: Sequence[Note], more: int) -> str:
    """gpt: 3 gave up, 1 done"""
    jobs = list(dict.fromkeys(note.job for note in notes if note.job))
    many: dict[str, int] = {}
    for note in notes:
        word = TOPIC_WORDS[note.topics[0]]
        many[word] = many.get(word, 0) + 1
    parts = ", ".join(f"{count} {word}" for word, count in many.items())
    who = f"{join_names(jobs)}: " if jobs else ""
    return f"{who}{parts}" + (f" and {more} more" if more else "")


def digest_text(notes: Sequence[Note], more: int) -> str:
    """A paragraph for each job and topic."""
    groups: dict[tuple[str, Topic], list[Note]] = {}
    for note in notes:
        groups.setdefault((note.job, note.topics[0]), []).append(note)
    lines: list[str] = []
    for at, group in enumerate(groups.values()):
        if at == GROUPS_MAX:
            lines.append(f"… and {count_words(len(groups) - at, 'further subject')}")
            break
        lines += [f"• {note.text}" for note in group[:LINES_MAX]]
        if len(group) > LINES_MAX:
            lines.append(f"  … and {len(group) - LINES_MAX} more of this kind")
    if more:
        lines.append(f"… and {count_words(more, 'more note')} that herd did not keep")
    return "\n".join(lines)
