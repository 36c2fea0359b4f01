"""Starts a notebook server or TensorBoard on this host for `herd open`, and tells where it is.

`python3 - serve PROGRAM FOLDER`: becomes the server, which shows FOLDER.
`python3 - look PROGRAM`: prints its port, token and folder as JSON; exits 1 if it does not answer.
The server listens on this host's loopback address only. The record of it is a file of its user's.
"""

import json
import os
import secrets
import shutil
import socket
import sys
from typing import Any, Dict, List, Mapping, NamedTuple

TOKEN = "HERD_OPEN_TOKEN"  #: the token to use, so that an address stays valid on the next node
ENVIRONMENT = "herd/.environments/current"  #: the job's Python environment
RECORDS = ".tpuherd/open"
LOOPBACK = "127.0.0.1"
MISSING = 127
ANSWER_S = 5.0


class Program(NamedTuple):
    """A server that can be opened."""

    names: List[str]  #: of its executable, the best first
    port: int  #: tried first
    advice: str


PROGRAMS: Dict[str, Program] = {
    "jupyter": Program(
        ["jupyter-lab", "jupyter-notebook", "jupyter-server"], 8888, "pip install jupyterlab"
    ),
    "tensorboard": Program(["tensorboard"], 6006, "pip install tensorboard"),
}


def server_words(name: str, port: int, folder: str) -> List[str]:
    """Return the arguments of the server."""
    if name == "tensorboard":
        return ["--logdir", folder, "--host", LOOPBACK, "--port", str(port)]
    words = ["--no-browser", f"--ip={LOOPBACK}", f"--port={port}", "--ServerApp.port_retries=0"]
    return [*words, "--allow-root"] if os.getuid() == 0 else words


def activate_environment(home: str, environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables of the job's Python environment, or the same if there is none."""
    folder = os.path.realpath(os.path.join(home, ENVIRONMENT))
    places = [os.path.join(home, ".local/bin")]
    found = dict(environ)
    if os.path.exists(os.path.join(folder, "bin", "python")):
        places.insert(0, os.path.join(folder, "bin"))
        found.update(VIRTUAL_ENV=folder)
        found.pop("PYTHONHOME", None)
    found["PATH"] = ":".join([*places, environ.get("PATH", os.defpath)])
    return found


def choose_port(wanted: int) -> int:
    """Return this port if it is free, else another."""
    for port in (wanted, 0):
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(attempt.getsockname()[1])
    raise OSError("no port is free")


def record_path(home: str, name: str) -> str:
    return os.path.join(home, RECORDS, f"{name}.json")


def serve(name: str, folder: str) -> int:
    """Become the server; returns only if it can't be started."""
    program, home = PROGRAMS[name], os.path.expanduser("~")
    environ = activate_environment(home, os.environ)
    token = environ.pop(TOKEN, "") or secrets.token_hex(24)
    found = [shutil.which(one, path=environ["PATH"]) for one in program.names]
    path = next(filter(None, found), None)
    if path is None:
        sys.stderr.write(f"{name} is not installed; get it with: {program.advice}\n")
        return MISSING
    if "://" not in folder:
        if not os.path.isdir(folder):
            sys.stderr.write(f"there is no folder {folder}\n")
            return 1
        os.chdir(folder)
    if name == "jupyter":
        environ["JUPYTER_TOKEN"] = token
    port = choose_port(program.port)
    record = {"pid": os.getpid(), "port": port, "folder": folder}
    record["token"] = token if name == "jupyter" else ""
    write_record(record_path(home, name), record)
    os.execve(path, [path, *server_words(name, port, folder)], environ)
    return 1


def write_record(file: str, record: Mapping[str, Any]) -> None:
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    draft = f"{file}.{os.getpid()}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(record, stream)
    os.replace(draft, file)


def look(name: str) -> int:
    """Print the record if the server answers."""
    try:
        with open(record_path(os.path.expanduser("~"), name)) as file:
            record = json.load(file)
        os.kill(record["pid"], 0)
        socket.create_connection((LOOPBACK, record["port"]), ANSWER_S).close()
    except (OSError, ValueError, KeyError, TypeError):
        return 1
    print(json.dumps(record))
    return 0


def main(words: List[str]) -> int:
    if words[0] == "serve":
        return serve(words[1], words[2])
    return look(words[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
