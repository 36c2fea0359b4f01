"""The errors that users see: one sentence, and a hint."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self


class HerdError(Exception):
    """An error for the user, in one sentence; `hint` says what to do next."""

    status: int = 0  #: the HTTP status of the cloud's reply that it stands for; 0: of none
    reply: Mapping[str, Any] = MappingProxyType({})  #: that reply's error object

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint

    def carry_reply(self, status: int, reply: Mapping[str, Any]) -> Self:
        """Keep the cloud's reply, which decides what follows; the sentence is for people."""
        self.status, self.reply = status, reply
        return self


class NotFound(HerdError):
    """The name is unknown."""


class NotAllowed(HerdError):
    """The account or the host denies access."""


class NoLogin(NotAllowed):
    """There is no login, or it has expired."""


class NotReached(HerdError):
    """No answer: a network problem, or the host is down."""


class NotListening(NotReached):
    """The connection is refused at once: no process listens there."""


class IdentityMismatch(HerdError):
    """A different machine answers: the address was reassigned, or the connection is intercepted."""


class InvalidInput(HerdError):
    """The request makes no sense."""


class NotConfirmed(InvalidInput):
    """The call needs a confirmation, and the caller gave none."""


class Superseded(HerdError):
    """Another process is in charge now: an engine stops, a command reads again."""


class OutcomeUnknown(Superseded):
    """Nobody can tell whether a write was recorded: to repeat it might record it twice."""


class OperationFailed(HerdError):
    """The other side tried and failed."""


class DiskFilled(OperationFailed):
    """A copy would fill this machine's disk."""


class StoreDamaged(OperationFailed):
    """The store's file is damaged; the process that has it open closes it, so that it can be set
    aside.
    """
