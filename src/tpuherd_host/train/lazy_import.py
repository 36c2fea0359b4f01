"""Imports packages only when they are used."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


class MissingPackage(ImportError):
    """A package that is needed here is not installed."""


class LazyModule:
    """Stands for a module and imports it at the first access."""

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
    """Whether a package is installed; it is not imported."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


jax = LazyModule("jax")
numpy = LazyModule("numpy")
multihost = LazyModule("jax.experimental.multihost_utils")
