"""What a front and a keeper must agree on. Imports nothing new: the front is in a hurry."""

import os

PROTOCOL = b"herd-keeper-1"  #: raised when one could not read the other's letter
SOCKET = "keeper.sock"
YES, NO = b"y", b"n"  #: a letter's answer; with NO nothing was begun
OTHER = b"o"  #: the same: it has another herd loaded, and is busy
HERE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
#: The packages whose modules a daemon may have loaded.
PACKAGES = ("tpuherd", "tpuherd_host")


def package_folders() -> list[str]:
    """Return these packages and all packages in them, relative to HERE."""
    found: list[str] = []
    waiting = list(PACKAGES)
    while waiting:
        folder = waiting.pop()
        found.append(folder)
        with os.scandir(f"{HERE}/{folder}") as entries:
            waiting += [f"{folder}/{one.name}" for one in entries
                        if one.name != "__pycache__" and one.is_dir()]  # fmt: skip
    return sorted(found)


def install_stamp(version: str) -> str:
    """Which herd is installed: its version, and when files came to its folders or left them.

    The contents would tell more exactly, and take as long to read as a whole command takes.
    """
    changed = [os.stat(f"{HERE}/{folder}").st_mtime_ns for folder in package_folders()]
    return " ".join((version, *map(str, changed)))


def module_stamps() -> list[tuple[str, int, int]]:
    """The same exactly, for a keeper: when a file is compiled its folder changes, too."""
    found = [file for folder in package_folders() for file in os.scandir(f"{HERE}/{folder}")]
    files = [(file.path, file.stat()) for file in found if file.name.endswith(".py")]
    return sorted((path, seen.st_mtime_ns, seen.st_size) for path, seen in files)
