"""Imports slow modules when they are first used, because many commands never use them."""

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType


def import_lazily(name: str) -> ModuleType:
    """A module whose code runs when one of its attributes is first used."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    assert spec is not None and spec.loader is not None, name
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
