"""What a front and a keeper must agree on. Imports nothing new: the front is in a hurry."""

import os

PROTOCOL = b"herd-keeper-1"  #: raised when one could not read the other's letter
SOCKET = "keeper.sock"
YES, NO = b"y", b"n"  #: a letter's answer; with NO nothing was begun
OTHER = b"o"  #: the same: it has another herd loaded, and is busy
HERE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
#: Where the modules are that a keeper may have loaded.
ROOMS = (
    "tpuherd", "tpuherd/accounting", "tpuherd/catalogue", "tpuherd/cli", "tpuherd/cloud",
    "tpuherd/commands", "tpuherd/daemon", "tpuherd/engine", "tpuherd/history", "tpuherd/jobfile",
    "tpuherd/jobs", "tpuherd/model", "tpuherd/planner", "tpuherd/remote", "tpuherd/settings",
    "tpuherd/store", "tpuherd/sweeps", "tpuherd/sync", "tpuherd/views", "tpuherd_host",
    "tpuherd_host/agent",
)  # fmt: skip


def install_stamp(version: str) -> str:
    """Which herd is installed: its version, and when files came to its folders or left them.

    The contents would tell more exactly, and take as long to read as a whole command takes.
    """
    changed = [os.stat(f"{HERE}/{room}").st_mtime_ns for room in ROOMS]
    return " ".join((version, *map(str, changed)))


def module_stamps() -> list[tuple[str, int, int]]:
    """The same exactly, for a keeper: when a file is compiled its folder changes, too."""
    found = [file for room in ROOMS for file in os.scandir(f"{HERE}/{room}")]
    files = [(file.path, file.stat()) for file in found if file.name.endswith(".py")]
    return sorted((path, seen.st_mtime_ns, seen.st_size) for path, seen in files)
