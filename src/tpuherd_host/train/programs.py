"""What JAX has compiled travels with the checkpoints: a new node need not compile it again."""

from pathlib import Path

from tpuherd_host.train.late import jax, there
from tpuherd_host.train.places import Folder, Place

BEGINNING = "programs/"
END = "-cache"  #: of JAX's files; the others tell when one was used


def store() -> Path | None:
    """The folder in which JAX keeps them; None where it keeps none, or elsewhere."""
    said = str(jax.config.jax_compilation_cache_dir or "") if there("jax") else ""
    return Path(said) if said and "://" not in said else None


def fetch(place: Place) -> None:
    """Bring here what others have compiled. What can't be had is compiled."""
    folder = store()
    if folder is None:
        return
    try:
        for name in place.names(BEGINNING):
            file = name.removeprefix(BEGINNING)
            if "/" not in file and not (folder / file).exists():
                Folder(str(folder)).write(file, [place.read(name)])
    except OSError:
        return


def give(place: Place) -> None:
    """Put there what was compiled here."""
    folder = store()
    if folder is None or not folder.is_dir():
        return
    try:
        known = set(place.names(BEGINNING))
        for file in sorted(folder.glob(f"*{END}")):
            if BEGINNING + file.name not in known:
                place.write(BEGINNING + file.name, [file.read_bytes()])
    except OSError:
        return
