"""How commands on hosts end for their user: exit statuses, and what else ends them."""

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
    """Whoever read the output reads no more."""


class Declined(Exception):
    """The user was asked and said no; nothing was changed, and that was said."""


FAILED, MISUSED, PARTLY, ABSENT, FORBIDDEN, UNREACHED, ABORTED = 1, 2, 3, 4, 6, 7, 8
INTERRUPTED, BROKEN_PIPE = 130, 141
#: The exit status for what stopped a command as a whole. docs/reference/exit-codes.md
STATUS: Mapping[type[HerdError], int] = {
    NotFound: ABSENT,
    NotAllowed: FORBIDDEN,
    NotReached: UNREACHED,
    IdentityMismatch: FORBIDDEN,
    InvalidInput: MISUSED,
    HerdError: FAILED,  # Broken, Outdated, Refused
}
