"""The verb that fetches a run's checkpoint to this host's disk, in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, Mapping, Optional

from tpuherd_host.agent.state_machine.transition import CallRefused, parse_fields
from tpuherd_host.agent.threaded_rpc import CallAbandoned, ThreadedCall

MODULE = "tpuherd_host.train.fetch_ahead"
OLDEST, NEWEST = 10, 14  #: versions of Python 3 that can run it
LOOK_S = 0.5
TROUBLE_MAX = 300


def fetch_checkpoint(call: ThreadedCall) -> Mapping[str, Any]:
    """Fetch what a run's attempt will load: its checkpoint and compiled programs."""
    given = parse_fields(call.content, env=dict).get("env", {})
    env = {**call.paths.environment, **{key: str(value) for key, value in given.items()}}
    python = find_python(env.get("PATH", os.defpath))
    if python is None:
        raise CallRefused("unfit", f"this host has no Python 3.{OLDEST} or newer")
    env["PYTHONPATH"] = os.path.dirname(sys.modules["tpuherd_host"].__path__[0])
    env.pop("LD_PRELOAD", None)
    child = subprocess.Popen(
        [python, "-m", MODULE, call.paths.folder],
        env=env,
        cwd=call.paths.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return parse_result(*wait_for_child(call, child), child.returncode)


def find_python(path: str) -> Optional[str]:
    """Return the agent's own Python, else another one that is new enough."""
    if sys.version_info >= (3, OLDEST):
        return sys.executable
    names = (f"python3.{minor}" for minor in range(NEWEST, OLDEST - 1, -1))
    return next(filter(None, (shutil.which(name, path=path) for name in names)), None)


def wait_for_child(call: ThreadedCall, child: "subprocess.Popen[str]") -> "tuple[str, str]":
    """Return its output and its errors; end it if the caller is gone."""
    while True:
        try:
            return child.communicate(timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            try:
                call.raise_if_cut()
            except CallAbandoned:
                child.kill()
                child.communicate()
                raise


def parse_result(said: str, errors: str, status: int) -> Dict[str, Any]:
    """Return what it printed; CallRefused with its last line if it failed."""
    try:
        found = json.loads(said)
        if status == 0 and isinstance(found, dict):
            return found
    except ValueError:
        pass
    last = (errors.strip().splitlines() or [f"it ended with status {status}"])[-1]
    raise CallRefused("broken", last[:TROUBLE_MAX])
