"""Reads and writes the metadata of a Compute project, which every host sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpuherd.clock import Clock
from tpuherd.cloud import parse
from tpuherd.cloud.compute_calls import wait_for_compute
from tpuherd.cloud.parse import ProjectMetadata, parse_shape
from tpuherd.cloud.rest import CloudConflict, RestClient
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")

TRIES = 5  #: to write metadata that others write at the same time
Items = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeProject:
    """A project as Compute shows it."""

    number: str
    account: str  #: of nodes that name none
    metadata: ProjectMetadata

    @property
    def os_login(self) -> bool:
        """Whether hosts ignore SSH keys in metadata, unless a node says otherwise."""
        return self.metadata.items.get("enable-oslogin", "").upper() == "TRUE"


async def get_compute_project(rest: RestClient, project: str) -> ComputeProject:
    content = await rest.call_compute("GET", f"projects/{project}")
    about = parse_shape(content, reply_shapes.ApiProject)
    return ComputeProject(
        number=str(about.id),
        account=about.default_service_account,
        metadata=parse.parse_project(content),
    )


async def change_metadata(
    rest: RestClient, project: str, change: Callable[[Items], Items | None], clock: Clock
) -> bool:
    """Write changed items, or nothing if `change` returns None; whether it wrote.

    It reads again if another client wrote between our read and our write.
    """
    for _ in range(TRIES - 1):
        try:
            return await try_change_metadata(rest, project, change, clock)
        except CloudConflict:
            continue
    return await try_change_metadata(rest, project, change, clock)


async def try_change_metadata(
    rest: RestClient, project: str, change: Callable[[Items], Items | None], clock: Clock
) -> bool:
    before = (await get_compute_project(rest, project)).metadata
    wanted = change(before.items)
    if wanted is None:
        return False
    path = f"projects/{project}/setCommonInstanceMetadata"
    body = parse.project_metadata_body(replace(before, items=wanted))
    await wait_for_compute(rest, project, await rest.call_compute("POST", path, body), clock)
    return True
