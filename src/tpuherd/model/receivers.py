"""Who is told about a job, and of what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Topic(StrEnum):
    """What a message is about; `on` of a receiver selects among these."""

    DONE = "done"
    FAILED = "failed"
    GAVE_UP = "gave_up"
    PREEMPTED = "preempted"
    STALLED = "stalled"
    WAITING = "waiting"
    IDLE = "idle"
    COST = "cost"
    QUOTA = "quota"
    ORPHAN = "orphan"
    ENGINE = "engine"


#: For the docs.
TOPIC_MEANINGS: Mapping[Topic, str] = {
    Topic.DONE: "all of the job has ended, and some or all of it succeeded",
    Topic.FAILED: "the command or its setup failed and is tried again: told for the first three"
    " failures, then for the 4th, 8th, 16th …; of a sweep or map, the 1st, 10th, 100th …"
    " failed trial or item",
    Topic.GAVE_UP: "a slot is not tried again: too many failures, its lifetime or its cost",
    Topic.PREEMPTED: "it was preempted `preemptions` times, then twice, four times … as often",
    Topic.STALLED: "the command hung and is restarted; told as often as failures",
    Topic.WAITING: "it has waited for capacity for `waiting`, then for twice, four times … as long",
    Topic.IDLE: "nothing runs on a node that costs money",
    Topic.COST: "its cost has reached the share `cost` of `max_cost`, or all of it",
    Topic.QUOTA: "the cloud refuses a request for its quota, permissions or reservation",
    Topic.ORPHAN: "something of herd's in the cloud belongs to no job",
    Topic.ENGINE: "the engine has a problem, or has recovered from a crash or a damaged store",
}


class ReceiverKind(StrEnum):
    """How a receiver is told."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    DISCORD = "discord"
    NTFY = "ntfy"
    EMAIL = "email"
    COMMAND = "command"
    APPRISE = "apprise"


@dataclass(frozen=True, kw_only=True, slots=True)
class HiddenText:
    """A value that is never shown: where it comes from, or the value itself as the user gave it."""

    source: str  #: env, file, command; given: the value itself; kept: herd has it already
    value: str = field(repr=False)  #: of `kept`: what may be shown of it


@dataclass(frozen=True, kw_only=True, slots=True)
class Receiver:
    """Who is told, as the user wrote it."""

    kind: ReceiverKind | None = None  #: None: the address says it
    url: HiddenText | None = None
    token: HiddenText | None = None
    run: str | tuple[str, ...] = ""
    host: str = ""  #: of the mail server
    port: int = 0  #: 0: the usual one
    user: str = ""
    password: HiddenText | None = None
    sender: str = ""  #: `from`
    to: tuple[str, ...] = ()
    tls: str = "starttls"
    on: tuple[Topic, ...] = tuple(Topic)
    digest: float = 5.0  #: gather for so long
    preemptions: int = 5
    waiting: float = 3600.0
    cost: float = 0.8

    @property
    def hidden(self) -> dict[str, HiddenText]:
        """Its hidden values, by field."""
        values = {"url": self.url, "token": self.token, "password": self.password}
        return {name: value for name, value in values.items() if value is not None}
