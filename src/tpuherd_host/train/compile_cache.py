"""Keeps what JAX compiled beside the checkpoints, so that a new node need not compile again."""

from pathlib import Path

from tpuherd_host.train.lazy_import import LazyModule, is_installed, jax
from tpuherd_host.train.storage import Folder, Place

BEGINNING = "programs/"
END = "-cache"  #: of JAX's files; the others show when one was used
MENDED = ".herd-mended"  #: its mtime is the time of the last check
cache = LazyModule("jax._src.compilation_cache", "jax")


def cache_folder() -> Path | None:
    """Return JAX's cache folder; None if it has none or keeps it elsewhere."""
    configured = str(jax.config.jax_compilation_cache_dir or "") if is_installed("jax") else ""
    return Path(configured) if configured and "://" not in configured else None


def is_whole(content: bytes) -> bool:
    """Whether a cached program is complete: JAX writes in place, so a crash leaves a part."""
    try:
        cache.decompress_executable(content)
    except AttributeError:
        return True  # a version of JAX with another format
    except Exception:  # noqa: BLE001  # each compression has its own exception
        return False
    return True


def remove_damaged(folder: Path) -> None:
    """Remove incomplete programs: JAX would neither use nor replace them."""
    stamp = folder / MENDED
    since = stamp.stat().st_mtime if stamp.exists() else 0.0
    for file in folder.glob(f"*{END}"):
        if file.stat().st_mtime >= since and not is_whole(file.read_bytes()):
            file.unlink(missing_ok=True)
    stamp.touch()


def fetch_programs(place: Place) -> None:
    """Fetch what other nodes compiled. What cannot be fetched is compiled here."""
    folder = cache_folder()
    if folder is None:
        return
    try:
        if folder.is_dir():
            remove_damaged(folder)
        for name in place.names(BEGINNING):
            file = name.removeprefix(BEGINNING)
            if "/" not in file and not (folder / file).exists():
                Folder(str(folder)).write(file, [place.read(name)])
    except OSError:
        return


def upload_programs(place: Place) -> None:
    folder = cache_folder()
    if folder is None or not folder.is_dir():
        return
    try:
        known = set(place.names(BEGINNING))
        for file in sorted(folder.glob(f"*{END}")):
            if BEGINNING + file.name not in known and is_whole(content := file.read_bytes()):
                place.write(BEGINNING + file.name, [content])
    except OSError:
        return
