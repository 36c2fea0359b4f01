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


class ReceiverKind(StrEnum):
    """How a receiver is told."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    DISCORD = "discord"
    NTFY = "ntfy"
    EMAIL = "email"
    COMMAND = "command"
    APPRISE = "apprise"


class WithheldCode(StrEnum):
    """Why an engine does not use a receiver of a job that its account has not submitted."""

    NO = ""
    COMMAND = "command"
    OTHERS = "others"


#: By code, with a place for who the engine is; people read these.
WITHHELD_REASONS: Mapping[WithheldCode, str] = {
    WithheldCode.COMMAND: "the engine of {engine} leads, and a command runs only in the account and"
    " on the machine that submitted its job: `herd run FILE` there",
    WithheldCode.OTHERS: "the engine of {engine} leads, which sends messages of jobs that others"
    " submitted only after `herd notify allow` in that account",
}


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
