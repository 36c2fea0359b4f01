"""The errors that users see: one sentence, and a hint."""


class HerdError(Exception):
    """An error for the user, in one sentence; `hint` says what to do next."""

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint


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


class Superseded(HerdError):
    """Another process is in charge now: an engine stops, a command reads again."""


class OutcomeUnknown(Superseded):
    """Nobody can tell whether a write was recorded: to repeat it might record it twice."""


class OperationFailed(HerdError):
    """The other side tried and failed."""


class StoreDamaged(OperationFailed):
    """The store's file is damaged; the process that has it open closes it, so that it can be set
    aside.
    """
