"""What `python3 agent-<hash>.pyz` does: attach, serve, version."""

import gc
import sys

TYPE_CHECKING = False  #: `typing` takes longer to load than all that attaching needs
if TYPE_CHECKING:
    from typing import Any, List

PREFIX, SUFFIX = "agent-", ".pyz"
USAGE = "usage: agent.pyz attach|serve|version|holders\n"


def main(words: "List[str]", pyz: str, protocol: int) -> int:
    """One word says what; only what that needs is loaded. The file's name says which one it is."""
    word = words[0] if len(words) == 1 else ""
    name = pyz.rpartition("/")[2]
    version = f"{protocol}.{name[len(PREFIX) : -len(SUFFIX)]}"
    if word == "attach":
        return int(agent_module("attach").attach(pyz, version, lambda: serve_agent(version)))
    if word == "serve":
        return serve_agent(version)
    if word == "holders":
        return int(agent_module("holders").print_all())
    if word == "version":
        sys.stdout.write(version + "\n")
        return 0
    sys.stderr.write(USAGE)
    return 64


def serve_agent(version: str) -> int:
    """The life of an agent."""
    gc.disable()  # nothing that is loaded now will ever be garbage: to look for it takes 5 ms
    return int(agent_module("serve").serve(version))


def agent_module(name: str) -> "Any":
    """A module of ours."""
    whole = f"{__package__}.{name}"
    __import__(whole)
    return sys.modules[whole]
