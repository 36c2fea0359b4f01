"""Imports JAX before the program that will use it, so that the program can't tell.

The modules are taken out of `sys.modules` again, and return at the program's own import of JAX. So
variables that the program sets before its import still count: those that JAX reads when it is
imported are applied then. Libraries like NumPy can't be configured later, so nothing is imported
for a program whose code sets a variable that they read.
"""

import importlib
import os
import re
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence

PACKAGES = ("jax", "jax.experimental.multihost_utils", "tpuherd_host.train")
HIDDEN = ("jax", "jaxlib")
CONFIGURATION = "JAX_"
#: What libraries read when they are loaded, in code that sets variables.
READ_AT_LOAD = re.compile(rb"\b(?:OMP|OPENBLAS|MKL|KMP|NPY|LIBTPU|TPU|MALLOC|LD)_[A-Z_]+\b")
SETS = re.compile(rb"\benviron\b|\bputenv\b")
FILES_MAX, BYTES_MAX = 2000, 1 << 20  #: of the program's folder; of a file


def import_ahead(folder: str) -> bool:
    """Import what is installed; False if that failed halfway and the process is of no use."""
    if sys.version_info < (3, 10) or any(map(sets_variables, python_files(folder))):
        return True
    before = jax_variables()
    for name in PACKAGES:
        try:
            if find_spec(name.partition(".")[0]) is None:
                continue
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in ancestors(name):  # of this version, it is no part
                return False
        except Exception:  # noqa: BLE001  # the program meets it by itself
            return False
    hidden = {name: sys.modules[name] for name in list(sys.modules) if is_hidden(name)}
    if "jax" in hidden:
        for name in hidden:
            del sys.modules[name]
        sys.meta_path.insert(0, HiddenModules(hidden, before))
    return True


def ancestors(name: str) -> Sequence[str]:
    """a.b.c → a.b, a.b.c"""
    words = name.split(".")
    return [".".join(words[:many]) for many in range(2, len(words) + 1)]


def is_hidden(name: str) -> bool:
    return name.partition(".")[0] in HIDDEN


def python_files(folder: str) -> Iterator[str]:
    """Return the program's files, without hidden folders; at most FILES_MAX."""
    many = 0
    for above, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".")]
        for name in names:
            if name.endswith(".py"):
                many += 1
                if many > FILES_MAX:
                    return
                yield os.path.join(above, name)


def sets_variables(path: str) -> bool:
    """Whether a file sets a variable that a library reads when it is loaded, as far as it shows."""
    try:
        with open(path, "rb") as file:
            content = file.read(BYTES_MAX)
    except OSError:
        return False
    return bool(READ_AT_LOAD.search(content) and SETS.search(content))


def jax_variables() -> Dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(CONFIGURATION)}


class HiddenModules(MetaPathFinder, Loader):
    """Gives the hidden modules back at the first import of one of them."""

    def __init__(self, hidden: Mapping[str, ModuleType], before: Mapping[str, str]) -> None:
        self.hidden = hidden
        self.before = before  #: JAX's variables when it was imported
        self.specs: Dict[str, Any] = {}

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if not is_hidden(fullname):
            return None
        sys.meta_path.remove(self)
        # Not the module itself: the import system would load it by its own specification.
        rest = {name: module for name, module in self.hidden.items() if name != fullname}
        sys.modules.update(rest)
        if fullname not in self.hidden:
            return find_spec(fullname)
        self.specs[fullname] = self.hidden[fullname].__spec__
        return ModuleSpec(fullname, self, is_package=hasattr(self.hidden[fullname], "__path__"))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.hidden[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        spec = self.specs[module.__name__]
        module.__spec__ = spec
        module.__loader__ = spec.loader
        apply_variables(self.before)


def apply_variables(before: Mapping[str, str]) -> None:
    """Configure JAX by the variables that the program has set since it was imported."""
    config, now = sys.modules["jax"].config, jax_variables()
    for name in {*before, *now}:
        if before.get(name) == now.get(name) or not hasattr(config, name.lower()):
            continue
        value = now.get(name)
        if value is not None:
            config.update(name.lower(), parse_setting(value, getattr(config, name.lower())))


def parse_setting(text: str, like: Any) -> Any:
    """Return a variable's text as a value of the setting's type, as JAX reads it."""
    if isinstance(like, bool):
        return text.lower() in ("y", "yes", "t", "true", "on", "1")
    for kind in (int, float):
        if isinstance(like, kind):
            return kind(text)
    return text
