"""What `python3 agent-<hash>.pyz` does: attach, serve, version."""

import gc
import sys
from importlib import import_module

TYPE_CHECKING = False  #: `typing` takes longer to load than all that attaching needs
if TYPE_CHECKING:
    from typing import List

PREFIX, SUFFIX = "agent-", ".pyz"
USAGE = "usage: agent.pyz attach|serve|version|holders\n"


def main(words: "List[str]", pyz: str, protocol: int) -> int:
    """One word says what; only what that needs is loaded. The file's name says which one it is."""
    word = words[0] if len(words) == 1 else ""
    name = pyz.rpartition("/")[2]
    version = f"{protocol}.{name[len(PREFIX) : -len(SUFFIX)]}"
    room = f"{__package__}."
    if word == "attach":
        return int(import_module(room + "attach").attach(pyz, version))
    if word == "serve":
        gc.disable()  # nothing that is loaded now will ever be garbage: to look for it takes 5 ms
        serve = import_module(room + "serve").serve
        gc.freeze()
        gc.enable()
        return int(serve(version))
    if word == "holders":
        return int(import_module(room + "holders").print_all())
    if word == "version":
        sys.stdout.write(version + "\n")
        return 0
    sys.stderr.write(USAGE)
    return 64
