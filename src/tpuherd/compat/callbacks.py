"""The user's callbacks: their signatures are checked before anything is created."""

import inspect
from collections.abc import Callable
from typing import Any

from tpuherd.errors import HerdError, InvalidInput, OperationFailed

CreationCallback = Callable[[str, Any], Any]
StartFunction = Callable[[Any, Any], object]


class CallbackFailed(OperationFailed):
    """The user's callback raised; the cause is the error itself."""


def check_callback(name: str, callback: object, *arguments: str) -> None:
    """Raise InvalidInput if it can't be called with these positional arguments."""
    wants = f"{name}({', '.join(arguments)})"
    if not callable(callback):
        raise InvalidInput(f"{name} should be a function {wants}, not {callback!r}")
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):
        return  # of a builtin: nothing is known
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise InvalidInput(
            f"{name} is called as {wants}, but {describe(callback)}{signature} can't be: {error}"
        ) from None


def choose_callback(creation: object, created: object) -> Any:
    """Return the callback, which may be given by either spelling of its name."""
    if (creation is None) == (created is None):
        many = "both" if creation is not None else "neither"
        raise InvalidInput(
            f"pass the callback as creation_callback or as created_callback, not {many}"
        )
    return created if creation is None else creation


def call_creation_callback(callback: CreationCallback, host: str, context: Any) -> Any:
    try:
        return callback(host, context)
    except HerdError:
        raise
    except Exception as error:
        raise CallbackFailed(
            f"{describe(callback)} raised {type(error).__name__} for {host}: {error};"
            f" {host} stays, and nothing was started on it"
        ) from error


def describe(callback: object) -> str:
    return str(getattr(callback, "__name__", type(callback).__name__))
