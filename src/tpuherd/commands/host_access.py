"""What a command that works on hosts is given: where it runs, and its way to them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from tpuherd.commands.console import Console

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings.project_access import ProjectAccess


class HostAccess(Protocol):
    """Where errands are done: it has the ways to hosts, and keeps them."""

    async def open_remote(self, console: Console) -> "tuple[ProjectAccess, RemoteSession]":
        """The place that is meant, and the ways to its hosts."""
        ...

    def daemon_status(self) -> Mapping[str, object] | None:
        """How the keeper is; None where this is none."""
        ...

    def stop_daemon(self, *, now: bool) -> bool:
        """End the keeper: at once, or only if nothing is under way. Whether it ends."""
        ...
