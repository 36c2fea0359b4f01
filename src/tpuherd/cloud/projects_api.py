"""Reads what Resource Manager knows of a project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuherd.cloud.parse import parse_shape
from tpuherd.cloud.rest import RestClient
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectState:
    number: str
    state: str  #: ACTIVE, DELETE_REQUESTED, …


async def get_project(rest: RestClient, project: str) -> ProjectState:
    """Raise NotAllowed or NotFound for a project that is not there, or not for this account."""
    content = await rest.call_projects("GET", f"projects/{project}")
    found = parse_shape(content, reply_shapes.ResourceProject)
    return ProjectState(number=str(found.project_number), state=found.lifecycle_state)
