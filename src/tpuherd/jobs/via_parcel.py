"""Code and secret values sent along by the machine where the command was typed (`via:`)."""

from collections.abc import Mapping
from pathlib import Path

VARIABLE = "HERD_CARRIED"  #: a folder, set if the command was typed on another machine
SNAPSHOT, SECRETS, MISSING = "snapshot", "secrets", "missing"
GUESSED = "guessed"  #: a file that is there if herd chose the job's name


def carried_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder; None if the command was typed here."""
    found = environ.get(VARIABLE)
    return Path(found) if found else None


def carried_snapshot(environ: Mapping[str, str]) -> str:
    """Return the id of the sent snapshot, which is in the archive; "" without one."""
    folder = carried_folder(environ)
    return read_text_file(folder / SNAPSHOT) or "" if folder else ""


def has_guessed_name(environ: Mapping[str, str]) -> bool:
    folder = carried_folder(environ)
    return folder is not None and (folder / GUESSED).exists()


def carried_secret(folder: Path, name: str) -> tuple[str | None, str]:
    """Return the value and, if it is None, the reason."""
    return read_text_file(folder / SECRETS / name), read_text_file(
        folder / MISSING / name
    ) or f"{name} was not sent"


def read_text_file(file: Path) -> str | None:
    """Return the content; None if the file does not exist."""
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
