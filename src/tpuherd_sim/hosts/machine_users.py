"""Who else uses this machine, where hosts would be mere processes of the world's user."""

import os
import pwd
import sys
from collections.abc import Iterable
from pathlib import Path

FIRST_PERSON = 501 if sys.platform == "darwin" else 1000
LAST_PERSON = 59999  #: above are users that systems make for themselves
NO_LOGIN = frozenset({"nologin", "false", "sync", "halt", "shutdown", ""})
HOMES = ("/home", "/Users")
REACHABLE = (
    "hosts run as your own processes here, and programs in them can reach your unix sockets "
    "(ssh-agent, docker, the session bus)"
)


def find_other_people() -> list[str]:
    """The names of the other people who have a login or a home on this machine."""
    return other_people(os.getuid(), pwd.getpwall(), home_owners(HOMES))


def other_people(
    me: int, accounts: Iterable[pwd.struct_passwd], owners: Iterable[int]
) -> list[str]:
    """The same of these accounts, and of these owners of homes; who has no name is a number."""
    named = {one.pw_uid: one for one in accounts}
    may_log_in = {uid for uid, one in named.items() if Path(one.pw_shell).name not in NO_LOGIN}
    people = {
        uid for uid in may_log_in | set(owners) if FIRST_PERSON <= uid <= LAST_PERSON and uid != me
    }
    return sorted(named[uid].pw_name if uid in named else str(uid) for uid in people)


def home_owners(folders: Iterable[str]) -> set[int]:
    """To whom the homes belong: a directory service names people whom no list of accounts has."""
    found = set()
    for folder in folders:
        try:
            found |= {entry.stat().st_uid for entry in os.scandir(folder)}
        except OSError:
            continue
    return found
