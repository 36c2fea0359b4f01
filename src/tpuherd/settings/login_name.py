"""The name by which we log in."""

import re

NOBODY = "herd"  #: who logs in where the local user has no name that a host would have, or is root
LOGIN = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def host_login(user: str) -> str:
    """The name on hosts of a local user: what Linux takes, and never root."""
    plain = re.sub(r"[^a-z0-9_-]", "_", user.lower())[:32]
    if plain == "root" or not LOGIN.fullmatch(plain):
        return NOBODY
    return plain
