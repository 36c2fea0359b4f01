"""Imports slow modules when they are first used, because many commands never use them."""

from importlib import import_module
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stands for a module, which is imported when an attribute is first used.

    Python's own importlib.util.LazyLoader shows half-loaded modules to other threads before 3.12;
    a plain import makes them wait.
    """

    def __getattr__(self, name: str) -> Any:
        """Called for attributes that were not used yet."""
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def import_lazily(name: str) -> ModuleType:
    """A module whose code runs when one of its attributes is first used."""
    return LazyModule(name)
