"""What the environment says about the user's terminal: whether to use color, and Unicode."""

from collections.abc import Mapping

BARE_TERMINALS = frozenset({"dumb", "linux"})  #: have no braille and few blocks


def choose_colour(environment: Mapping[str, str]) -> bool | None:
    """Whether to colour; None: only on a terminal."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    if environment.get("FORCE_COLOR") or environment.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return None


def has_unicode(environment: Mapping[str, str]) -> bool:
    """Whether the terminal shows Unicode, by its locale."""
    if environment.get("TERM") in BARE_TERMINALS:
        return False
    names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((name for name in names if name), "")
    return locale.lower().replace("-", "").endswith(("utf8", "utf8@euro"))
