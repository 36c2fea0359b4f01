"""Finds the folders that hosts must see for a virtual environment to work in them."""

import stat
from collections.abc import Iterable
from pathlib import Path

SEEN_ANYWAY = Path("/usr")


def shared_folders(*folders: Path) -> list[str]:
    """Return the folders, their interpreters' and their source folders, outermost first."""
    wanted = [folder.absolute() for folder in folders]
    wanted += filter(None, map(base_prefix, folders))
    for folder in folders:
        wanted += editable_sources(folder)
    places = {place for path in wanted for place in (path, path.resolve()) if place.is_dir()}
    kept: list[Path] = []
    for path in sorted(places, key=lambda place: (len(place.parts), place)):
        if not path.is_relative_to(SEEN_ANYWAY) and not any(map(path.is_relative_to, kept)):
            kept.append(path)
    return [str(path) for path in kept]


def closed_folders(paths: Iterable[str]) -> list[str]:
    """Return the outermost folders on these paths that keep other users of the machine out."""
    closed = []
    for path in map(Path, paths):
        for folder in (*reversed(path.parents), path):
            if not folder.stat().st_mode & stat.S_IXOTH:
                closed.append(str(folder))
                break
    return list(dict.fromkeys(closed))


def base_prefix(folder: Path) -> Path | None:
    """Return the folder of a virtual environment's interpreter."""
    try:
        text = (folder / "pyvenv.cfg").read_text(errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() == "home":
            return Path(value.strip()).parent
    return None


def editable_sources(folder: Path) -> list[Path]:
    """Return the folders in the .pth files: packages in development mode."""
    found = []
    for path in folder.glob("lib/python3*/site-packages/*.pth"):
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("/"):
                found.append(Path(line.strip()))
    return found
