"""Makes importable what came in one piece: from an archive each import costs as much as ten."""

import marshal
import sys
from _frozen_importlib import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Dict, List, Optional

PACKAGE, START = "tpuherd_host", "tpuherd_host.agent.start"


class Pack:
    """Finds our modules. What is needed later is a piece in the piece, down to the last."""

    def __init__(self, pieces: "List[Any]", pyz: str) -> None:
        self.codes: Dict[str, CodeType] = {}
        self.pieces = pieces
        self.pyz = pyz  #: has the rest

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Optional[Any]":
        """As the import system asks for it."""
        if not name.startswith(PACKAGE):
            return None
        while name not in self.codes and self.pieces:
            self.codes.update(marshal.loads(self.pieces.pop(0)))
        if name not in self.codes:
            return None
        package = name.count(".") < 2
        spec = ModuleSpec(name, self, is_package=package)  # type: ignore[arg-type]
        if package:
            spec.submodule_search_locations = [self.pyz + "/" + name.replace(".", "/")]
        return spec

    def create_module(self, spec: "Any") -> None:
        """As usual."""

    def exec_module(self, module: "ModuleType") -> None:
        """Once."""
        exec(self.codes.pop(module.__name__), module.__dict__)


def begin(pieces: "List[Any]", pyz: str, protocol: int) -> int:
    """What __main__ does where modules are imported one by one."""
    sys.meta_path.insert(0, Pack(pieces, pyz))
    __import__(START)
    return int(sys.modules[START].main(sys.argv[1:], pyz, protocol))
