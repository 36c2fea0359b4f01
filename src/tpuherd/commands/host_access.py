"""What a command gets to reach hosts: the daemon, or this process."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from tpuherd.commands.console import Console

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import RemoteSession
    from tpuherd.settings.project_access import ProjectAccess


class HostAccess(Protocol):
    """Opens and keeps the connections to hosts."""

    async def open_remote(self, console: Console) -> "tuple[ProjectAccess, RemoteSession]":
        """Return the project or world, and the session that reaches its hosts."""
        ...

    def daemon_status(self) -> Mapping[str, object] | None:
        """Return the daemon's status; None if this process is not the daemon."""
        ...

    def stop_daemon(self, *, now: bool) -> bool:
        """Stop the daemon, at once or only if no command runs; whether it stops."""
        ...
