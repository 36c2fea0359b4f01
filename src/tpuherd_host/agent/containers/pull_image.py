"""Says whether this host has an image, and pulls it: a verb, and a setup step.

The agent runs `agent.pyz image NAME` as a process of its own, so that it has a log and can be
stopped.
"""

import os
import re
import subprocess
import sys
from collections import deque
from typing import Any, Deque, Dict, Mapping

from tpuherd_host.agent.containers.engine_program import (
    ContainerEngine,
    client_environment,
    find_engine,
)
from tpuherd_host.agent.environments.installer_output import FAILED, FULL, UNFIT
from tpuherd_host.agent.threaded_rpc import ThreadedCall

LINES_KEPT = 50
DISK = re.compile(r"no space left on device|disk quota exceeded", re.I)
REFUSED = re.compile(r"\bdenied\b|unauthorized|authentication required", re.I)
ABSENT = re.compile(
    r"manifest unknown|name unknown|not found|no matching manifest|invalid reference"
    r"|no image found|repository does not exist",
    re.I,
)
#: What engines say before the cause.
LEAD = re.compile(r"^(?:Error(?: response from daemon)?:\s*)+", re.I)


def look_for_image(call: ThreadedCall) -> Mapping[str, Any]:
    """Return the engine's name, "" if there is none, and the image's id, "" if it is not here."""
    environ = call.paths.environment
    engine = find_engine(environ)
    id = find_image(engine, str(call.content.get("image")), environ) if engine.name else ""
    return {"engine": engine.name, "trouble": engine.trouble, "id": id}


def find_image(engine: ContainerEngine, image: str, environ: Mapping[str, str]) -> str:
    """Return the id of an image that is on this host, else ""."""
    done = subprocess.run(
        engine.words("image", "inspect", "--format", "{{.Id}}", "--", image),
        env=client_environment(environ, ()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    lines = done.stdout.decode("utf-8", "replace").split()
    return lines[0].rpartition(":")[2] if done.returncode == 0 and lines else ""


def run_pull(image: str) -> int:
    """Pull an image unless it is here; return the exit status."""
    engine = find_engine(os.environ)
    if not engine.name:
        sys.stderr.write(f"{engine.trouble or 'this host has neither docker nor podman'}\n")
        return FAILED if engine.trouble else UNFIT
    if find_image(engine, image, os.environ):
        return 0
    lines: Deque[str] = deque(maxlen=LINES_KEPT)
    with subprocess.Popen(
        engine.words("pull", image),
        env=client_environment(os.environ, ()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        for piece in process.stdout:
            line = piece.decode("utf-8", "replace")
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line.strip())
    if process.returncode == 0:
        return 0
    failure = explain_pull(image, [line for line in lines if line])
    sys.stderr.write(f"{failure['sentence']}\n")
    return int(failure["status"])


def explain_pull(image: str, lines: "list[str]") -> Dict[str, Any]:
    """Say why it failed, and whether another try can help."""
    cause = LEAD.sub("", lines[-1])[:300] if lines else "the engine printed nothing"
    if any(DISK.search(line) for line in lines):
        return {"sentence": f"the disk is full: {image} can't be pulled", "status": FULL}
    sentence = f"{image} can't be pulled: {cause}"
    if REFUSED.search(cause):
        sentence += "; check its name, or log in to its registry in setup"
        return {"sentence": sentence, "status": UNFIT}
    return {"sentence": sentence, "status": UNFIT if ABSENT.search(cause) else FAILED}
