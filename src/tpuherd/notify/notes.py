"""The nouns of being told: notes for people, what is remembered to choose them, and their jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tpuherd.model.receivers import Receiver, Topic


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """One thing to tell; a message carries one or more."""

    topics: tuple[Topic, ...]  #: a receiver that wants any of these gets it
    title: str  #: gpt is done
    text: str  #: a sentence or two
    at: float
    job: str = ""
    slot: str = ""
    seq: int = 0  #: the number of its event; 0: time alone has led to it
    count: int = 0  #: of preemptions, so that each receiver can choose


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFacts:
    """A job as far as notes need it."""

    job: str
    slots: tuple[str, ...]
    sweep: bool = False  #: its slots work on trials
    items: bool = False  #: its trials are the items of a map
    made_at: float = 0.0
    cost: float = 0.0  #: dollars so far
    max_cost: float | None = None


@dataclass(slots=True)
class JobMemory:
    """What is remembered of one job since it was submitted."""

    preemptions: int = 0
    failures: int = 0
    stalls: int = 0
    trials: dict[str, int] = field(default_factory=dict)  #: ended ones, by outcome
    done: dict[str, float] = field(default_factory=dict)  #: slots that succeeded, and when
    gave_up: dict[str, float] = field(default_factory=dict)
    stopped: bool = False
    map_ended: bool = False
    nodes: dict[str, list[str]] = field(default_factory=dict)  #: granted and not lost, by slot
    waits: dict[str, float] = field(default_factory=dict)  #: slots without a node, and since when
    silent: dict[str, float] = field(default_factory=dict)  #: nodes with silent hosts, the same
    refused: dict[str, float] = field(default_factory=dict)  #: when it was told, by refusal


@dataclass(slots=True)
class NotifyMemory:
    """What is remembered of all jobs; folded from the event log."""

    jobs: dict[str, JobMemory] = field(default_factory=dict)


def is_power(many: int, base: int) -> bool:
    """Whether it is 1, base, base², …"""
    while many > 1 and many % base == 0:
        many //= base
    return many == 1


def wants_note(receiver: Receiver, note: Note) -> bool:
    """Whether a receiver is told: of preemptions, each n-th, 2n-th, 4n-th … time."""
    if not set(receiver.on) & set(note.topics):
        return False
    if note.topics != (Topic.PREEMPTED,):
        return True
    times, rest = divmod(note.count, receiver.preemptions)
    return rest == 0 and is_power(times, 2)


def count_words(many: int, one: str, several: str = "") -> str:
    """1 copy, 3 copies"""
    return f"{many} {one if many == 1 else several or one + 's'}"


def join_names(names: Sequence[str], most: int = 3) -> str:
    """a, b, c and 4 more"""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
