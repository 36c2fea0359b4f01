"""A quick call to a host's agent over its current link."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tpuherd.engine.host_watcher import HostWatcher
from tpuherd.errors import NotReached
from tpuherd.ports import RpcRequest

CALL_S = 60.0  #: for a quick answer


async def call_agent(
    watch: HostWatcher, verb: str, arguments: Mapping[str, Any], seconds: float | None
) -> Mapping[str, Any]:
    """Call the agent over the current link."""
    link = watch.link
    if link is None:
        raise NotReached(watch.status.trouble or "it is unreachable")
    async with asyncio.timeout(seconds):
        return await link.call(RpcRequest(name=verb, arguments=arguments))
