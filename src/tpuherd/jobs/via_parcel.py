"""What came along from the machine where a command was said: its code, and values of secrets."""

from collections.abc import Mapping
from pathlib import Path

VARIABLE = "HERD_CARRIED"  #: a folder; the command is done here, and was said elsewhere
SNAPSHOT, SECRETS, MISSING = "snapshot", "secrets", "missing"


def carried_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder; None: the command was said here."""
    found = environ.get(VARIABLE)
    return Path(found) if found else None


def carried_snapshot(environ: Mapping[str, str]) -> str:
    """The code that is meant, which is in the archive; "" where none came along."""
    folder = carried_folder(environ)
    return read_text_file(folder / SNAPSHOT) or "" if folder else ""


def carried_secret(folder: Path, name: str) -> tuple[str | None, str]:
    """A value, or why there is none."""
    return read_text_file(folder / SECRETS / name), read_text_file(
        folder / MISSING / name
    ) or f"{name} did not come"


def read_text_file(file: Path) -> str | None:
    """What it holds; None where it is not there."""
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
