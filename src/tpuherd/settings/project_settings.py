"""The settings of a project: its grants, limits, bucket locations and adopted owners.

contexts.json   {…, "projects": {PROJECT: {"grants": […], "everything": bool,
                 "buckets": {NAME: LOCATION}, "limits": {"creates_per_min", "hedge"}}}}
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tpuherd.errors import InvalidInput
from tpuherd.jobfile.grants import Allowance, Grant, grant_document
from tpuherd.settings.contexts_file import ADVICE, FILE, Json, edit_contexts, load_contexts


def load_allowance(config: Path, *, world: Path | None, project: str) -> Allowance:
    """Return what a project may use. A world allows everything; its grants say how much."""
    content = load_contexts(config)
    said = content["projects"].get(project_key(world=world, project=project), {})
    try:
        limits = said.get("limits", {})
        return Allowance(
            everything=world is not None or bool(said.get("everything")),
            grants=tuple(Grant(**one) for one in said.get("grants", ())),
            buckets=dict(said.get("buckets", {})),
            creates_per_min=int(limits.get("creates_per_min", Allowance().creates_per_min)),
            hedge=None if limits.get("hedge") is None else int(limits["hedge"]),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{config / FILE} can't be used ({error})", hint=ADVICE) from error


def project_key(*, world: Path | None, project: str) -> str:
    """Return the key of a project's settings; worlds are keyed by folder, since all share one
    project.
    """
    return project if world is None else str(world.absolute())


def change_project(
    config: Path, *, world: Path | None, project: str, change: Callable[[Json], None]
) -> None:
    with edit_contexts(config) as content:
        change(content["projects"].setdefault(project_key(world=world, project=project), {}))


def add_grants(config: Path, *, world: Path | None, project: str, grants: Sequence[Grant]) -> None:
    """Add grants, replacing those of the same zone, type and tier."""

    def change(said: Json) -> None:
        rows = {grant_key(one): one for one in said.get("grants", ())}
        rows |= {grant_key(one): one for one in map(grant_document, grants)}
        said["grants"] = list(rows.values())

    change_project(config, world=world, project=project, change=change)


def grant_key(grant: Mapping[str, Any]) -> tuple[Any, ...]:
    """Two grants with the same key replace each other."""
    return (grant.get("zone"), grant.get("type"), grant.get("tier"))


def allow_everything(config: Path, project: str) -> None:
    """Record that the user saw the prices and agreed."""
    change_project(
        config, world=None, project=project, change=lambda said: said.update(everything=True)
    )


def remember_bucket(
    config: Path, *, world: Path | None, project: str, bucket: tuple[str, str]
) -> None:
    """Record a bucket's location, which never changes."""
    name, location = bucket

    def change(said: Json) -> None:
        said.setdefault("buckets", {})[name] = location

    if load_allowance(config, world=world, project=project).buckets.get(name) != location:
        change_project(config, world=world, project=project, change=change)


def tells_others(config: Path, *, world: Path | None, project: str) -> bool:
    """Whether an engine of this account sends messages of jobs that others submitted."""
    said = load_contexts(config)["projects"].get(project_key(world=world, project=project), {})
    return said.get("notify_others") is True


def allow_telling_others(config: Path, *, world: Path | None, project: str, allowed: bool) -> None:
    change_project(
        config, world=world, project=project, change=lambda said: said.update(notify_others=allowed)
    )


def adopted_owners(config: Path, *, world: Path | None, project: str) -> frozenset[str]:
    """Return the other owners whose resources count as ours here."""
    said = load_contexts(config)["projects"].get(project_key(world=world, project=project), {})
    return frozenset(map(str, said.get("adopted", ())))


def adopt_owner(config: Path, *, world: Path | None, project: str, owner: str) -> None:
    """Treat that owner's resources as ours from now on."""

    def change(said: Json) -> None:
        said["adopted"] = sorted({*said.get("adopted", ()), owner})

    change_project(config, world=world, project=project, change=change)


def clear_grants(config: Path, *, world: Path | None, project: str) -> None:
    """Forget the grants; of a project, the user is asked again before a request."""

    def change(said: Json) -> None:
        said.pop("grants", None)
        said.pop("everything", None)

    change_project(config, world=world, project=project, change=change)
