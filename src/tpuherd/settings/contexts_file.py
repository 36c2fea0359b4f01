"""Reads and writes contexts.json, where the user chose the current cloud.

contexts.json   {"current": NAME, "contexts": {NAME: {"world"|"project", "account", "login",
                 "ways", "keys", "via", "store", "user"}},
                 "projects": {PROJECT: see project_settings.py}}
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuherd.errors import InvalidInput, NotFound
from tpuherd.files import atomic_write, file_lock, make_private_folder

FILE = "contexts.json"
ADVICE = "fix or delete it"
Json = dict[str, Any]


def load_contexts(config: Path) -> Json:
    """Return the whole file; empty if it does not exist."""
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
            raise InvalidInput(
                f"{file} can't be used: {part} is not an object of objects", hint=ADVICE
            )
    return content


@contextmanager
def edit_contexts(config: Path) -> Iterator[Json]:
    """Change the file under a lock; it is written completely or not at all."""
    try:
        make_private_folder(config)
        with file_lock(config / f"{FILE}.lock"):
            content = load_contexts(config)
            yield content
            text = json.dumps(content, indent=2, ensure_ascii=False)
            atomic_write(config / FILE, f"{text}\n", durable=True)
    except OSError as error:
        raise InvalidInput(f"{config / FILE} can't be written ({error.strerror})") from error


def current_name(content: Json, environ: Mapping[str, str]) -> str:
    """Return the name of HERD_CONTEXT, else of the current context; "" if there is none."""
    return str(environ.get("HERD_CONTEXT", content.get("current")) or "")


def current_context(config: Path, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the context of HERD_CONTEXT, else the current one; empty if there is none."""
    content = load_contexts(config)
    name = current_name(content, environ)
    if not name:
        return {}
    if name not in content["contexts"] and not environ.get("HERD_CONTEXT"):
        raise InvalidInput(f"{config / FILE} can't be used: it has no context {name}", hint=ADVICE)
    found: Mapping[str, Any] = find_context(content, name)
    return found


def find_context(content: Json, name: str) -> Json:
    if name not in content["contexts"]:
        names = ", ".join(sorted(content["contexts"]))
        there = f"the contexts are {names}" if names else "no contexts exist"
        raise NotFound(f"there is no context {name}: {there}", hint="add one with herd context add")
    found: Json = content["contexts"][name]
    return found
