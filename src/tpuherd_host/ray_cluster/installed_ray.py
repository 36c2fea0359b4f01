"""The Ray that is installed on this host: its versions, and how its part of the cluster starts."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tpuherd_host.ray_cluster.child_processes import core_processes

LOGS = "/tmp/ray/session_latest/logs"  #: Ray's own place
START_S = 300.0  #: for `ray start`; it takes seconds
LINES = 15  #: of what `ray start` printed, if it fails
VERSIONS = (
    "import importlib.metadata, platform;"
    "print(importlib.metadata.version('ray'), platform.python_version())"
)


class Ray(NamedTuple):
    """The installed Ray."""

    program: str
    version: str
    python: str  #: the version of its Python


def find_ray(command: Sequence[str], path: str) -> Optional[Ray]:
    """Find Ray on the PATH, else beside a program that the command names with its folder."""
    folders = [os.path.dirname(word) for word in command_words(command) if "/" in word]
    for where in [path, *folders]:
        program = shutil.which("ray", path=where)
        versions = ray_versions(program) if program else None
        if program and versions:
            return Ray(program, *versions)
    return None


def command_words(command: Sequence[str]) -> List[str]:
    """Return the words of a command; those of shell text as far as they can be told."""
    if len(command) != 3 or command[1] != "-c":
        return [os.path.expanduser(word) for word in command]
    try:
        words = shlex.split(command[2])
    except ValueError:
        return []
    return [os.path.expandvars(os.path.expanduser(word)) for word in words]


def ray_versions(program: str) -> Optional[Tuple[str, str]]:
    """Return the versions of Ray and of its Python, without the second that importing Ray takes."""
    try:
        with open(program, "rb") as file:
            first = file.readline(4096).decode("utf-8", "replace").strip()
    except OSError:
        return None
    beside = os.path.join(os.path.dirname(program), "python3")
    named = shlex.split(first[2:]) if first.startswith("#!") and "python" in first else [beside]
    done = subprocess.run(
        [*named, "-c", VERSIONS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    words = done.stdout.decode("utf-8", "replace").split()
    return (words[0], words[1]) if done.returncode == 0 and len(words) == 2 else None


def start_ray(ray: Ray, words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Start this host's part of the cluster; return what is wrong, or "".

    Its output goes to a file: Ray's processes would hold a pipe open.
    """
    plain = {name: value for name, value in environ.items() if name != "RAY_ADDRESS"}
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                [ray.program, "start", *words], env=plain, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, timeout=START_S, check=False,
            )  # fmt: skip
            how = f"`ray start` failed with exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            how = f"`ray start` did not end within {START_S:.0f} s"
        else:
            if not done.returncode and "raylet" in core_processes().values():
                return ""
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").strip().splitlines()
    sys.stderr.write("".join(f"{line}\n" for line in lines[-LINES:]))
    return f"{how}; more is in {LOGS}"
