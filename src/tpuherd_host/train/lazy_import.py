"""Packages that are loaded when something of them is used, so that nobody waits for the others."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


class MissingPackage(ImportError):
    """A package that is wanted here is not installed."""


class LazyModule:
    """Stands for a module until something of it is asked for."""

    def __init__(self, name: str, install: str = "") -> None:
        self._name = name
        self._install = install or name.partition(".")[0]

    def __getattr__(self, item: str) -> Any:
        try:
            module = import_module(self._name)
        except ModuleNotFoundError as error:
            if error.name is None or not self._name.startswith(error.name):
                raise
            raise MissingPackage(f"this needs {self._name}: pip install {self._install}") from None
        return getattr(module, item)


def is_installed(name: str) -> bool:
    """Whether a package is installed; it is not loaded for that."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


jax = LazyModule("jax")
numpy = LazyModule("numpy")
multihost = LazyModule("jax.experimental.multihost_utils")
