"""What `python3 agent-<hash>.pyz` does: attach, serve, and what USAGE lists."""

import sys
from typing import List

PREFIX, SUFFIX = "agent-", ".pyz"
USAGE = (
    "usage: agent.pyz attach|serve|version|holders|listeners PORT…|environment RECIPE|image NAME"
    "|container PLAN COMMAND…\n"
)


def main(words: List[str], pyz: str, protocol: int) -> int:
    """Run one subcommand and return its exit status; the file name has the version.

    Each subcommand imports only what it needs: `attach` stays as long as its connection does.
    """
    word = words[0] if len(words) == 1 else ""
    name = pyz.rpartition("/")[2]
    version = f"{protocol}.{name[len(PREFIX) : -len(SUFFIX)]}"
    if word == "attach":
        from tpuherd_host.agent.attach import attach

        return attach(pyz, version)
    if word == "serve":
        from tpuherd_host.agent.singleton import serve

        return serve(version)
    if word == "holders":
        from tpuherd_host.agent.host.chip_users import print_all

        return print_all()
    if word == "version":
        sys.stdout.write(version + "\n")
        return 0
    if words[:1] == ["environment"] and len(words) == 2:
        from tpuherd_host.agent.environments.installation import run_installation

        return run_installation(words[1])
    if words[:1] == ["image"] and len(words) == 2:
        from tpuherd_host.agent.containers.pull_image import run_pull

        return run_pull(words[1])
    if words[:1] == ["container"] and len(words) > 2:
        from tpuherd_host.agent.containers.run_container import run_container

        return run_container(words[1], words[2:])
    if words[:1] == ["listeners"]:
        from tpuherd_host.agent.host.listeners import print_listeners

        return print_listeners(words[1:])
    sys.stderr.write(USAGE)
    return 64
