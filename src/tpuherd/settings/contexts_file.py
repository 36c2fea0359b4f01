"""The file in which the user chose which cloud is meant: read and written as a whole.

contexts.json   {"current": NAME, "contexts": {NAME: {"world"|"project", "account", "login",
                 "ways", "keys", "via"}}, "projects": {PROJECT: as config.py says}}
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuherd.errors import InvalidInput, NotFound

FILE = "contexts.json"
ADVICE = "mend it, or remove it"
Json = dict[str, Any]


def load_contexts(config: Path) -> Json:
    """All of it; empty where there is none yet."""
    file = config / FILE
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        content = {}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{file} can't be used ({error})", hint=ADVICE) from error
    if not isinstance(content, dict):
        raise InvalidInput(f"{file} can't be used: it is not an object", hint=ADVICE)
    for part in ("contexts", "projects"):
        found = content.setdefault(part, {})
        if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
            raise InvalidInput(f"{file} can't be used: {part} is not as it should be", hint=ADVICE)
    return content


@contextmanager
def edit_contexts(config: Path) -> Iterator[Json]:
    """All of it, to be changed; written whole or not at all, one after the other."""
    try:
        config.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(config / f"{FILE}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = load_contexts(config)
            yield content
            draft = config / f"{FILE}.new"
            with open(draft, "w", opener=open_private_file) as stream:
                json.dump(content, stream, indent=2, ensure_ascii=False)
                stream.write("\n")
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(config / FILE)
    except OSError as error:
        raise InvalidInput(f"{config / FILE} can't be written ({error.strerror})") from error


def open_private_file(path: str, flags: int) -> int:
    """Opens files that only their owner reads."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def current_context(config: Path) -> Mapping[str, Any]:
    """The context that is in use; empty where none is."""
    content = load_contexts(config)
    name = content.get("current")
    if not name:
        return {}
    if name not in content["contexts"]:
        raise InvalidInput(
            f"{config / FILE} can't be used: there is no context {name}", hint=ADVICE
        )
    found: Mapping[str, Any] = content["contexts"][name]
    return found


def find_context(content: Json, name: str) -> Json:
    """A context by its name."""
    if name not in content["contexts"]:
        there = ", ".join(sorted(content["contexts"])) or "none"
        raise NotFound(f"there is no context {name}: there is {there}", hint="herd context add")
    found: Json = content["contexts"][name]
    return found
