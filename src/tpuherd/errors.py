"""What goes wrong, as a user is told it: one sentence, and a hint."""


class HerdError(Exception):
    """Something that a user can be told in one sentence; `hint` says what to do next."""

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint


class NotFound(HerdError):
    """Nothing has that name."""


class NotAllowed(HerdError):
    """The account or the host refuses us."""


class NoLogin(NotAllowed):
    """Nobody is logged in, or the login does not count any more."""


class NotReached(HerdError):
    """No answer came: the network, or the host is down."""


class NotListening(NotReached):
    """Nobody listens there: the connection is refused at once."""


class IdentityMismatch(HerdError):
    """Somebody else answers at that address: another node has it now, or somebody is in between."""


class InvalidInput(HerdError):
    """What was asked makes no sense."""


class Superseded(HerdError):
    """Somebody else is in charge by now: an engine stops, a command looks again."""


class OperationFailed(HerdError):
    """The other side tried and failed."""


class StoreDamaged(OperationFailed):
    """The store's file is damaged. Who has it open closes it, so that it can be set aside."""
