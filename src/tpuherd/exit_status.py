"""Exit statuses of commands."""

from collections.abc import Mapping

from tpuherd.errors import (
    HerdError,
    IdentityMismatch,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotReached,
)

TIMED_OUT, SIGNALLED, TRANSPORT = 124, 128, 255


class ReaderGone(Exception):
    """The reader of our output is gone."""


class Declined(Exception):
    """The user said no; nothing was changed, and a message said so."""


FAILED, MISUSED, PARTLY, ABSENT, FORBIDDEN, UNREACHED, ABORTED = 1, 2, 3, 4, 6, 7, 8
INTERRUPTED, BROKEN_PIPE = 130, 141
#: Exit statuses of errors that stop a whole command. docs/reference/exit-codes.md
STATUS: Mapping[type[HerdError], int] = {
    NotFound: ABSENT,
    NotAllowed: FORBIDDEN,
    NotReached: UNREACHED,
    IdentityMismatch: FORBIDDEN,
    InvalidInput: MISUSED,
    HerdError: FAILED,  # OperationFailed, Superseded, BidRefused
}
