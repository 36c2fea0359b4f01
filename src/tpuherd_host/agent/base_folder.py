"""Where relative paths of commands and copies begin: in the job's code folder, if the host has it.

Until this release they began in the login's home. What only the home has is still taken from there,
with a warning; from the next release on it is not: `only_home` and `words_only_in_home` go then.
"""

import glob
import os
import re
from pathlib import Path
from typing import List, NamedTuple, Sequence

BETWEEN = re.compile(r"[\s;|&<>()'\"=`]+")  #: words of a line for a shell
SHELL_WORDS = 3  #: $SHELL -c LINE


class PlacedPath(NamedTuple):
    """A user's path, as one that begins in the home."""

    path: str
    only_home: bool  #: the home has it, and the code folder does not


def place_path(home: Path, text: str, code: str) -> PlacedPath:
    """Return where a path leads. `code`: the job's code folder, relative to the home; "": none."""
    folder = home / code
    top = text.split("/")[0]
    if not code or top in ("", "~") or not folder.is_dir():
        return PlacedPath(text, False)
    for path in (text, top):  # of a new file, its folder decides
        if is_there(folder, path):
            break
        if is_there(home, path):
            return PlacedPath(text, True)
    return PlacedPath(f"{code}/{text}", False)


def is_there(folder: Path, text: str) -> bool:
    """Whether a folder has this path, or one that fits this pattern."""
    if os.path.lexists(str(folder / text)):
        return True
    return any(True for _ in glob.iglob(os.path.join(glob.escape(str(folder)), text)))


def words_only_in_home(home: Path, argv: Sequence[str], code: str) -> List[str]:
    """Return the words of a command that name files of the home; none, if one names a file of the
    code folder."""
    line = len(argv) == SHELL_WORDS and argv[:2] == ("$SHELL", "-c")
    words = BETWEEN.split(argv[2]) if line else [*argv[1:], *(argv[:1] if "/" in argv[0] else ())]
    above = code.split("/")[0]  # as in `chown herd`: a login or a command of that name is meant
    paths = [word for word in words if word != above and re.match(r"[^-/~$]", word)]
    placed = [(word, place_path(home, word, code).only_home) for word in paths]
    if any(not only_home and is_there(home / code, word) for word, only_home in placed):
        return []
    return [word for word, only_home in placed if only_home]
