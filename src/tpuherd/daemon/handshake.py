"""What launcher and daemon must agree on. Imports only os: the launcher is in a hurry."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOCOL = b"herd-keeper-1"  #: raised when the format of requests changes
SOCKET = "keeper.sock"
YES, NO = b"y", b"n"  #: the answers to a request; with NO nothing was started
OTHER = b"o"  #: nothing was started either: another version is loaded, and busy
OWN_COMMAND = "engine daemon"  #: inspects the daemon
VALUED = "--world"  #: the only option before a command that takes a value
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
    """Return which herd is installed: its version and the modification times of its folders.

    Reading the contents would be exact, but take as long as a whole command.
    """
    changed = [os.stat(f"{HERE}/{folder}").st_mtime_ns for folder in package_folders()]
    return " ".join((version, *map(str, changed)))


def module_stamps() -> list[tuple[str, int, int]]:
    """Return the stamps of all modules; unlike a folder's, they survive the compiling of a file."""
    found = [file for folder in package_folders() for file in os.scandir(f"{HERE}/{folder}")]
    files = [(file.path, file.stat()) for file in found if file.name.endswith(".py")]
    return sorted((path, seen.st_mtime_ns, seen.st_size) for path, seen in files)


def first_command(arguments: "Sequence[str]") -> "tuple[str, Sequence[str]]":
    """Return the command's name, or "", and all arguments before a `--`."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    words: list[str] = []
    rest = iter(before)
    for word in rest:
        if word == VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            words.append(word)
    own = " ".join(words[:2]) == OWN_COMMAND
    return OWN_COMMAND if own else words[0] if words else "", before
