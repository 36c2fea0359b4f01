"""What the user chose once: which cloud is meant, and what may be had there.

contexts.json   {"current": NAME, "contexts": {NAME: {"world"|"project", "account", "login",
                 "ways", "via"}}, "projects": {PROJECT: {"grants": […], "everything": bool,
                 "buckets": {NAME: LOCATION}, "limits": {"creates_per_min", "hedge"}}}}
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuherd.core.grants import Allowed, Grant, as_written
from tpuherd.ports import NotFound, Unfit

FILE = "contexts.json"
ADVICE = "mend it, or remove it"
Json = dict[str, Any]


def load(config: Path) -> Json:
    """All of it; empty where there is none yet."""
    file = config / FILE
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        content = {}
    except (OSError, ValueError) as error:
        raise Unfit(f"{file} can't be used ({error})", hint=ADVICE) from error
    if not isinstance(content, dict):
        raise Unfit(f"{file} can't be used: it is not an object", hint=ADVICE)
    for part in ("contexts", "projects"):
        found = content.setdefault(part, {})
        if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
            raise Unfit(f"{file} can't be used: {part} is not as it should be", hint=ADVICE)
    return content


@contextmanager
def changing(config: Path) -> Iterator[Json]:
    """All of it, to be changed; written whole or not at all, one after the other."""
    try:
        config.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(config / f"{FILE}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = load(config)
            yield content
            draft = config / f"{FILE}.new"
            with open(draft, "w", opener=private) as stream:
                json.dump(content, stream, indent=2, ensure_ascii=False)
                stream.write("\n")
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(config / FILE)
    except OSError as error:
        raise Unfit(f"{config / FILE} can't be written ({error.strerror})") from error


def private(path: str, flags: int) -> int:
    """Opens files that only their owner reads."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def current(config: Path) -> Mapping[str, Any]:
    """The context that is in use; empty where none is."""
    content = load(config)
    name = content.get("current")
    if not name:
        return {}
    if name not in content["contexts"]:
        raise Unfit(f"{config / FILE} can't be used: there is no context {name}", hint=ADVICE)
    found: Mapping[str, Any] = content["contexts"][name]
    return found


def known(content: Json, name: str) -> Json:
    """A context by its name."""
    if name not in content["contexts"]:
        there = ", ".join(sorted(content["contexts"])) or "none"
        raise NotFound(f"there is no context {name}: there is {there}", hint="herd context add")
    found: Json = content["contexts"][name]
    return found


def allowed(config: Path, *, world: Path | None, project: str) -> Allowed:
    """What a project may do. A world grants everything."""
    content = load(config)
    said = content["projects"].get(key(world=world, project=project), {})
    try:
        limits = said.get("limits", {})
        return Allowed(
            everything=world is not None or bool(said.get("everything")),
            grants=()
            if world is not None
            else tuple(Grant(**one) for one in said.get("grants", ())),
            buckets=dict(said.get("buckets", {})),
            creates_per_min=int(limits.get("creates_per_min", Allowed().creates_per_min)),
            hedge=None if limits.get("hedge") is None else int(limits["hedge"]),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise Unfit(f"{config / FILE} can't be used ({error})", hint=ADVICE) from error


def key(*, world: Path | None, project: str) -> str:
    """Under which a project's terms stand: the projects of worlds are all called the same."""
    return project if world is None else str(world.absolute())


def change_project(
    config: Path, *, world: Path | None, project: str, change: Callable[[Json], None]
) -> None:
    """Change what is known of a project."""
    with changing(config) as content:
        change(content["projects"].setdefault(key(world=world, project=project), {}))


def add_grants(config: Path, project: str, grants: Sequence[Grant]) -> int:
    """Remember them; one of the same zone, type and tier is replaced. How many there are now."""

    def change(said: Json) -> None:
        rows = {same(one): one for one in said.get("grants", ())}
        rows |= {same(one): one for one in map(as_written, grants)}
        said["grants"] = list(rows.values())

    change_project(config, world=None, project=project, change=change)
    return len(allowed(config, world=None, project=project).grants)


def same(grant: Mapping[str, Any]) -> tuple[Any, ...]:
    """By which two grants are one."""
    return (grant.get("zone"), grant.get("type"), grant.get("tier"))


def allow_everything(config: Path, project: str) -> None:
    """The user was told the prices and said yes."""
    change_project(
        config, world=None, project=project, change=lambda said: said.update(everything=True)
    )


def remember_bucket(
    config: Path, *, world: Path | None, project: str, bucket: tuple[str, str]
) -> None:
    """Its name and where it is: it never moves."""
    name, location = bucket

    def change(said: Json) -> None:
        said.setdefault("buckets", {})[name] = location

    if allowed(config, world=world, project=project).buckets.get(name) != location:
        change_project(config, world=world, project=project, change=change)


def adopted(config: Path, *, world: Path | None, project: str) -> frozenset[str]:
    """Other owners whose names count as ours here."""
    said = load(config)["projects"].get(key(world=world, project=project), {})
    return frozenset(map(str, said.get("adopted", ())))


def adopt(config: Path, *, world: Path | None, project: str, owner: str) -> None:
    """From now on that owner's names count as ours."""

    def change(said: Json) -> None:
        said["adopted"] = sorted({*said.get("adopted", ()), owner})

    change_project(config, world=world, project=project, change=change)


def clear_grants(config: Path, project: str) -> None:
    """Forget what may be had; who asks for a node is asked again."""

    def change(said: Json) -> None:
        said.pop("grants", None)
        said.pop("everything", None)

    change_project(config, world=None, project=project, change=change)
