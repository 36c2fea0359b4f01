"""How commands on hosts end for their user: exit statuses, and what else ends them."""

TIMED_OUT, SIGNALLED, TRANSPORT = 124, 128, 255


class Gone(Exception):
    """Whoever read the output reads no more."""


class Declined(Exception):
    """The user was asked and said no; nothing was changed, and that was said."""
