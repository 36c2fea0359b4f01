"""Finds the program that runs containers on this host: docker, or podman where docker is missing.

Docker may need root, which a login of a TPU VM has by sudo without a password. Podman is tried as
root first too, since a user's own podman may not pass on every device.
"""

import os
import shutil
import subprocess
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin"
SUDO = "sudo"
ANSWER_S = 60.0


class ContainerEngine(NamedTuple):
    """How to call it. Without a name there is none, and `trouble` says why."""

    name: str = ""  #: docker or podman
    program: str = ""
    sudo: bool = False
    trouble: str = ""
    options: Tuple[str, ...] = ()  #: of every call

    @property
    def is_rootless(self) -> bool:
        return self.name == "podman" and not self.sudo and os.getuid() != 0

    def words(self, *rest: str, variables: Sequence[str] = ()) -> List[str]:
        """Return a call's words. `variables`: names in our environment that it needs."""
        before: List[str] = []
        if self.sudo:
            kept = [f"--preserve-env={','.join(variables)}"] if variables else []
            before = [SUDO, "-n", *kept]
        return [*before, self.program, *self.options, *rest]


def find_engine(environ: Mapping[str, str]) -> ContainerEngine:
    """Return the first engine that answers."""
    path = f"{environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"
    found = False
    trouble = ""
    for name in ("docker", "podman"):
        program = shutil.which(name, path=path)
        if program is None:
            continue
        found = True
        for sudo in sudo_order(name, path):
            engine = ContainerEngine(name, program, sudo, "", own_login(name, sudo, environ))
            said = ask_engine(engine, environ)
            if not said:
                return engine
            trouble = trouble or f"{name} does not answer: {said}"
    if not found:
        return ContainerEngine()
    return ContainerEngine(trouble=trouble)


def sudo_order(name: str, path: str) -> List[bool]:
    """Return whether to call it by sudo: the better way first."""
    if os.getuid() == 0 or shutil.which(SUDO, path=path) is None:
        return [False]
    return [False, True] if name == "docker" else [True, False]


def own_login(name: str, sudo: bool, environ: Mapping[str, str]) -> Tuple[str, ...]:
    """Let root's docker use the registries that this user has logged in to."""
    folder = os.path.join(environ.get("HOME", ""), ".docker")
    return ("--config", folder) if name == "docker" and sudo and os.path.isdir(folder) else ()


def ask_engine(engine: ContainerEngine, environ: Mapping[str, str]) -> str:
    """Return "" if it answers, else the last line of what it says."""
    try:
        done = subprocess.run(
            engine.words("ps", "--quiet"),
            env=client_environment(environ, ()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=ANSWER_S,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {ANSWER_S:.0f} s"
    except OSError as error:
        return str(error.strerror)
    return "" if done.returncode == 0 else last_line(done.stderr) or f"status {done.returncode}"


def client_environment(environ: Mapping[str, str], job: Sequence[str]) -> Dict[str, str]:
    """Return the login's variables: the job's are the container's and say nothing to the engine.

    What the engine leaves running is not marked as the job's, or it could not tidy up.
    """
    mine = {
        name: value
        for name, value in environ.items()
        if name not in job and not name.startswith("HERD_")
    }
    return {**mine, "PATH": f"{mine.get('PATH', os.defpath)}:{SYSTEM_PATH}", "LC_ALL": "C.UTF-8"}


def last_line(text: bytes) -> str:
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "")
