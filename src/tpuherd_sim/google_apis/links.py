"""Names and links of Compute's resources."""

import re

from tpuherd_sim.model.compute_errors import invalid_value_error, not_found_error
from tpuherd_sim.model.http_types import ApiCall, Json
from tpuherd_sim.model.world import World

SELF = "https://www.googleapis.com/compute/v1/"
NAME = r"(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"


def is_own_project(world: World, project: str) -> bool:
    """Whether the project of a path is the world's, by id or number."""
    return project in (world.settings.project, str(world.settings.project_number))


def own_project_path(world: World, call: ApiCall) -> str:
    """Return `projects/demo`; refuse a path of another project."""
    if not is_own_project(world, call.path["project"]):
        raise not_found_error(f"projects/{call.path['project']}")
    return f"projects/{world.settings.project}"


def resource_url(world: World, path: str) -> str:
    """Return the full URL of a project resource such as global/networks/default."""
    home = f"{SELF}projects/{world.settings.project}"
    return f"{home}/{path}" if path else home


def requested_name(body: Json) -> str:
    """Return the name of the resource to create."""
    name = body.get("name")
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        raise invalid_value_error("resource.name", name, f"Must be a match of regex '{NAME}'")
    return name
