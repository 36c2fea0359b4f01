"""Finds what is private below a directory such as /usr, and remembers it until the next boot.

Reading the mode of every file there takes up to a second, at each start of a world. A directory
that has not changed keeps what was found in it: only a later chmod of an existing file is missed.
"""

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

MEMORY = Path("/run/tpuherd/private-files.json")  #: only root writes in /run, and a boot clears it


class Listing(NamedTuple):
    """What a directory had when it was last read."""

    changed_ns: int
    folders: list[str]  #: public ones, to look into
    private: list[str]  #: names that not everyone may read


def find_private_files(top: Path, memory: Path = MEMORY) -> list[Path]:
    """Everything below `top` that not everyone may read; folders without what is in them."""
    known = load_listings(memory)
    seen: dict[str, Listing] = {}
    private = []
    left = [str(top)]
    while left:
        folder = left.pop()
        try:
            changed_ns = Path(folder).stat().st_mtime_ns
            listing = known.get(folder)
            if listing is None or listing.changed_ns != changed_ns:
                listing = read_folder(folder, changed_ns)
        except FileNotFoundError:
            continue  # removed meanwhile
        seen[folder] = listing
        left += [f"{folder}/{name}" for name in listing.folders]
        private += [Path(folder, name) for name in listing.private]
    if seen != known:
        save_listings(memory, seen)
    return private


def read_folder(folder: str, changed_ns: int) -> Listing:
    """Look at everything in a folder, with the time of change from before that."""
    folders, private = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                continue
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(mode) and mode & 0o5 == 0o5:
                folders.append(entry.name)
            elif not mode & 0o4 or stat.S_ISDIR(mode):
                private.append(entry.name)
    return Listing(changed_ns=changed_ns, folders=folders, private=private)


def load_listings(memory: Path) -> dict[str, Listing]:
    """What an earlier world found; nothing if that can't be read."""
    try:
        found: Any = json.loads(memory.read_text())
        return {
            folder: Listing(changed_ns=int(changed), folders=list(folders), private=list(private))
            for folder, (changed, folders, private) in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def save_listings(memory: Path, listings: dict[str, Listing]) -> None:
    """Remember what was found; without rights or space the next world reads everything again."""
    draft = memory.with_name(f"{memory.name}.{os.getpid()}")
    with suppress(OSError):
        memory.parent.mkdir(mode=0o700, exist_ok=True)
        draft.write_text(json.dumps(listings))
        draft.replace(memory)
