"""Tells the user of a command what was changed in the cloud on the way, such as an added key."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar


async def ignore_notice(sentence: str) -> None:
    """Drop the message: the engine has no waiting user."""


#: How to tell the user; each command sets it to its own console. Shared work, such as adding a key
#: to a node, tells the command that started it.
notify_user: ContextVar[Callable[[str], Awaitable[None]]] = ContextVar(
    "notify_user", default=ignore_notice
)
