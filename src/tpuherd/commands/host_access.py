"""What a command that works on hosts is given: where it runs, and its way to them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from tpuherd.commands.console import Console

if TYPE_CHECKING:
    from tpuherd.remote.resolve_hosts import Reach
    from tpuherd.settings.project_access import Place


class Home(Protocol):
    """Where errands are done: it has the ways to hosts, and keeps them."""

    async def reach(self, console: Console) -> "tuple[Place, Reach]":
        """The place that is meant, and the ways to its hosts."""
        ...

    def standing(self) -> Mapping[str, object] | None:
        """How the keeper is; None where this is none."""
        ...

    def leave(self, *, now: bool) -> bool:
        """End the keeper: at once, or only if nothing is under way. Whether it ends."""
        ...
