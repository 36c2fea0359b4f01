"""The Ray that is installed on this host: its versions, and how its part of the cluster starts."""

import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import IO, List, Mapping, NamedTuple, Optional, Sequence, Tuple

LOGS = "/tmp/ray/session_latest/logs"  #: Ray's own place
START_S = 300.0  #: for `ray start`; it takes seconds
LOOK_S = 0.05
LINES = 15  #: of what `ray start` printed, if it fails
#: The dashboard can run where a package is installed that only ray[default] needs.
VERSIONS = (
    "import importlib.metadata, importlib.util, platform;"
    "print(importlib.metadata.version('ray'), platform.python_version(),"
    " bool(importlib.util.find_spec('aiohttp_cors')))"
)
#: The command `ray`, which imports for a second or more before it waits for a word to begin.
IMPORT_AHEAD = (
    "import sys; sys.path[:] = [one for one in sys.path if one];"
    "from ray.scripts.scripts import main;"
    "sys.stdin.readline() and sys.exit(main())"
)


class Ray(NamedTuple):
    """The installed Ray."""

    interpreter: Tuple[str, ...]  #: the words that start its Python
    version: str
    python: str  #: the version of its Python
    has_dashboard: bool


class StartingRay(NamedTuple):
    """A `ray start` that waits for a word to begin, and the file of what it prints."""

    process: "subprocess.Popen[bytes]"
    output: IO[bytes]


def find_ray(command: Sequence[str], path: str) -> Optional[Ray]:
    """Find Ray on the PATH, else beside a program that the command names with its folder."""
    folders = [os.path.dirname(word) for word in command_words(command) if "/" in word]
    for where in [path, *folders]:
        program = shutil.which("ray", path=where)
        found = ask_ray(program) if program else None
        if found:
            return found
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


def ask_ray(program: str) -> Optional[Ray]:
    """Ask the Python of this program `ray`, without the second that importing Ray takes."""
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
    if done.returncode or len(words) != 3:
        return None
    return Ray(tuple(named), words[0], words[1], words[2] == "True")


def prepare_start(ray: Ray, words: Sequence[str], environ: Mapping[str, str]) -> StartingRay:
    """Let the `ray start` of this host's part import what it needs, and wait.

    Its output goes to a file: Ray's processes would hold a pipe open.
    """
    plain = {name: value for name, value in environ.items() if name != "RAY_ADDRESS"}
    output = tempfile.TemporaryFile()  # noqa: SIM115 - finish_start closes it
    process = subprocess.Popen(
        [*ray.interpreter, "-c", IMPORT_AHEAD, "start", *words],
        env=plain, stdin=subprocess.PIPE, stdout=output, stderr=output,
    )  # fmt: skip
    return StartingRay(process, output)


def finish_start(starting: StartingRay, line: Optional[socket.socket] = None) -> str:
    """Start this host's part of the cluster; return what is wrong, or "".

    A word on the line, or its end, ends the start: the caller reads what it is.
    """
    process, until = starting.process, time.monotonic() + START_S
    with starting.output as output:
        try:
            process.communicate(b"begin\n", timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            pass
        while process.poll() is None and time.monotonic() < until:
            if select.select([line] if line else [], [], [], LOOK_S)[0]:
                process.kill()
                process.wait()
                return ""
        how = f"`ray start` failed with exit status {process.returncode}"
        if process.returncode is None:
            how = f"`ray start` did not end within {START_S:.0f} s"
            process.kill()
            process.wait()
        elif not process.returncode:
            return ""
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").strip().splitlines()
    sys.stderr.write("".join(f"{line}\n" for line in lines[-LINES:]))
    return f"{how}; more is in {LOGS}"
