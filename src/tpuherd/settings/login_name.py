"""The login name on hosts."""

import re

NOBODY = "herd"  #: login if the local name is root or not valid on a host
LOGIN = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def host_login(user: str) -> str:
    """Return a valid Linux login for a local user, never root."""
    plain = re.sub(r"[^a-z0-9_-]", "_", user.lower())[:32]
    if plain == "root" or not LOGIN.fullmatch(plain):
        return NOBODY
    return plain
