"""What ssh runs to reach one of our hosts: asks herd for the way, then carries the bytes.

    herd ssh-proxy FILE NAME LOGIN       (config_text.py writes this line)
    herd ssh-proxy --refuse SENTENCE

Imports the standard library only, as the launcher does. The bytes go through this process and not
through the daemon, so that a long copy slows no command down, and a new daemon ends no session.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    RunCommand = Callable[[list[str], Mapping[str, str]], int]

CONNECT, EXEC, CARRY = "connect", "exec", "carry"
PIECE = 1 << 18
CONNECT_S = 10.0
FAREWELL_S = 5.0  #: for ssh to read why we end
FAILED = 255
#: Of ssh's wire format (RFC 4253): a first line, and the packet that ends a connection.
GREETING = b"SSH-2.0-herd\r\n"
DISCONNECT, NOT_AVAILABLE = 1, 7
SENTENCE_MAX = 380  #: ssh prints no more
#: Unset unless the project's file sets them: see ssh_projects.py.
DECIDING = "HERD_WORLD HERD_CONTEXT GOOGLE_CLOUD_PROJECT CLOUDSDK_CORE_PROJECT".split()


def run(arguments: "Sequence[str]", environ: "Mapping[str, str]", run_command: "RunCommand") -> int:
    """Be ssh's ProxyCommand; `run_command` runs a line of herd and returns its exit status."""
    if arguments[:1] == ["--refuse"]:
        return refuse(" ".join(arguments[1:]))
    try:
        environ = choose_project(environ, arguments[0])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return refuse(f"{arguments[0]} can't be read; run herd ssh --config")
    status, out, err = capture_command(lambda: run_command(["ssh-proxy", *arguments], environ))
    if status:
        return refuse(err.removeprefix("herd ssh-proxy: ") or "herd could not find the host")
    os.write(2, err.encode())
    how, *words = out.splitlines()
    if how == EXEC:
        os.execvpe(words[0], words, environ)
    if how == CARRY:
        return run_command(["ssh-proxy", "--carry", *arguments], environ)
    try:
        connection = connect_socket(words[0], int(words[1]))
    except OSError as error:
        return refuse(f"no answer at {words[0]} ({error.strerror or error})")
    relay_bytes(connection)
    return 0


def choose_project(environ: "Mapping[str, str]", project: str) -> "dict[str, str]":
    """Return the environment with the project of this file, whatever program started ssh."""
    import json

    with open(project, "rb") as file:
        chosen = json.load(file)["environ"]
    others = {name: text for name, text in environ.items() if name not in DECIDING}
    return others | {str(name): str(text) for name, text in chosen.items()}


def capture_command(run_command: "Callable[[], int]") -> tuple[int, str, str]:
    """Run a command; return its exit status, and what it wrote to stdout and stderr."""
    import signal

    kept = [os.dup(number) for number in range(3)]
    pipes = [os.pipe(), os.pipe()]
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        for number, (_, end) in enumerate(pipes, 1):
            os.dup2(end, number)
            os.close(end)
        status = run_command()
    finally:
        for number, file in enumerate(kept):
            os.dup2(file, number)
            os.close(file)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # the launcher passes them to the daemon
    out, err = (read_to_end(end).strip() for end, _ in pipes)
    return status, out, err


def read_to_end(file: int) -> str:
    with open(file, "rb") as stream:
        return stream.read().decode(errors="replace")


def connect_socket(address: str, port: int) -> "socket.socket":
    import socket

    connection = socket.create_connection((address, port), CONNECT_S)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def relay_bytes(connection: "socket.socket") -> None:
    """Carry bytes both ways until the host ends, or ssh reads no more."""
    import socket
    import threading

    def send_input() -> None:
        try:
            while piece := os.read(0, PIECE):
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the host is gone: the other direction ends, too

    threading.Thread(target=send_input, daemon=True).start()
    try:
        while piece := connection.recv(PIECE):
            left = memoryview(piece)
            while left:
                left = left[os.write(1, left) :]
    except OSError:
        pass  # a reset, or ssh has ended


def refuse(sentence: str) -> int:
    """End the connection as an SSH server does that says why, so that every program shows it."""
    import select

    text = sentence.encode()[:SENTENCE_MAX]
    content = bytes([DISCONNECT]) + NOT_AVAILABLE.to_bytes(4, "big")
    content += len(text).to_bytes(4, "big") + text + bytes(4)
    padding = 8 - (5 + len(content)) % 8
    padding += 8 if padding < 4 else 0
    length = (1 + len(content) + padding).to_bytes(4, "big")
    try:
        os.write(1, GREETING + length + bytes([padding]) + content + bytes(padding))
        while select.select([0], [], [], FAREWELL_S)[0] and os.read(0, PIECE):
            pass  # an end before ssh has read it would be an error of its own
    except OSError:
        pass
    return FAILED
