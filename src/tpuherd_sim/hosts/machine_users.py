"""Finds other people on this machine, for hosts that run as processes of the world's user."""

import os
import pwd
import sys
from collections.abc import Iterable
from pathlib import Path

FIRST_PERSON = 501 if sys.platform == "darwin" else 1000
LAST_PERSON = 59999  #: higher ids belong to system users
NO_LOGIN = frozenset({"nologin", "false", "sync", "halt", "shutdown", ""})
HOMES = ("/home", "/Users")
REACHABLE = (
    "hosts run as your own processes here, and programs in them can reach your unix sockets "
    "(ssh-agent, docker, the session bus)"
)


def find_other_people() -> list[str]:
    """Return the names of other people with a login or a home on this machine."""
    return other_people(os.getuid(), pwd.getpwall(), home_owners(HOMES))


def other_people(
    me: int, accounts: Iterable[pwd.struct_passwd], owners: Iterable[int]
) -> list[str]:
    """Return the people among these accounts and home owners; those without a name by number."""
    named = {one.pw_uid: one for one in accounts}
    may_log_in = {uid for uid, one in named.items() if Path(one.pw_shell).name not in NO_LOGIN}
    people = {
        uid for uid in may_log_in | set(owners) if FIRST_PERSON <= uid <= LAST_PERSON and uid != me
    }
    return sorted(named[uid].pw_name if uid in named else str(uid) for uid in people)


def home_owners(folders: Iterable[str]) -> set[int]:
    """Return the owners of homes: a directory service may have users that no list of accounts
    shows.
    """
    found = set()
    for folder in folders:
        try:
            found |= {entry.stat().st_uid for entry in os.scandir(folder)}
        except OSError:
            continue
    return found
