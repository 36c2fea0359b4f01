"""What commands print, in tests/scenarios/cli: tests compare the files, `make accept` writes them.

A person reads the diff of what `make accept` wrote, as that of any other change.
"""

import os
from collections.abc import Collection
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "scenarios" / "cli"
ACCEPT = bool(os.environ.get("HERD_ACCEPT"))
#: What no user may ever see, accepted or not.
INTERNAL = ("internal error", "Traceback (most recent call last)", "HERD_DEBUG=1")


def check_golden(name: str, text: str) -> None:
    """Compare a text with its file below FOLDER, or write it there when accepting."""
    file = FOLDER / name
    shown = [line for line in text.splitlines() if any(word in line for word in INTERNAL)]
    assert shown == [], name
    if ACCEPT:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert file.exists(), f"{name} is new: `make accept` writes it; read it before committing"
    assert text == file.read_text(), f"{name} differs: if it should, `make accept`; read the diff"


def check_no_other_files(pattern: str, names: Collection[str]) -> None:
    """Find files that belong to no command any more, or delete them when accepting."""
    others = {str(file.relative_to(FOLDER)) for file in FOLDER.glob(pattern)} - set(names)
    if ACCEPT:
        for name in others:
            (FOLDER / name).unlink()
    else:
        assert others == set(), "`make accept` deletes them"
