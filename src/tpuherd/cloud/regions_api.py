"""Reads how many external addresses each region allows and has in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuherd.cloud.compute_calls import list_compute_pages
from tpuherd.cloud.parse import parse_shape
from tpuherd.cloud.rest import RestClient
from tpuherd.lazy_modules import import_lazily

if TYPE_CHECKING:
    from tpuherd.cloud import reply_shapes
else:
    reply_shapes = import_lazily("tpuherd.cloud.reply_shapes")

IN_USE_ADDRESSES = "IN_USE_ADDRESSES"


@dataclass(frozen=True, kw_only=True, slots=True)
class AddressLimit:
    """The external addresses of a region."""

    allowed: int
    used: int


async def list_address_limits(rest: RestClient, project: str) -> Mapping[str, AddressLimit]:
    """Return the limits of all regions that state one."""
    found: dict[str, AddressLimit] = {}
    async for content in list_compute_pages(rest, f"projects/{project}/regions"):
        for region in parse_shape(content, reply_shapes.RegionListReply).items:
            for quota in region.quotas:
                if quota.metric == IN_USE_ADDRESSES:
                    limit = AddressLimit(allowed=int(quota.limit), used=int(quota.usage))
                    found[region.name] = limit
    return found
