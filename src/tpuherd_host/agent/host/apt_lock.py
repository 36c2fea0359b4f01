"""Finds who holds apt's lock: unattended upgrades do in a new VM's first minutes."""

import os

from tpuherd_host.agent.host.chip_users import listed_holder
from tpuherd_host.agent.processes import command_line

LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)


def lock_holder() -> str:
    """Return the holder's name for a message; "" if the lock is free."""
    for path in LOCKS:
        pid = listed_holder(path)
        if pid is not None:
            name = os.path.basename(command_line(pid).split(" ")[0]) if pid else ""
            return f"{name or 'a process'} ({pid})"
    return ""
