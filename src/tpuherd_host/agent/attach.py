"""What SSH starts: connects the SSH channel to the agent, starting the agent if necessary.

It hands its standard input and output to the agent and waits until the agent closes them, so that
no bytes are copied between processes.
"""

import fcntl
import os
import select
import signal
import socket
import sys
from typing import Dict, Mapping, Optional

FOLDER = ".tpuherd"
SOCKET = "agent.sock"
START_LOCK = "start.lock"
READY_S = 20.0  #: for a running agent's answer
START_S = 300.0  #: for a new agent; if it dies meanwhile, we notice at once
GREETING = b"\xff"  #: not a frame of this protocol
PLEASE, STAYS, LEAVES, REFUSES = b"?", b"=", b"-", b"!"
#: Variables that reach neither the agent nor its commands.
DROPPED = ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SHLVL", "_", "OLDPWD")
PRELOAD = "HERD_LD_PRELOAD"  #: carries LD_PRELOAD past the agent to its commands


def go_home() -> str:
    """Change into the agent's folder: paths of sockets must be short."""
    folder = os.path.join(os.path.expanduser("~"), FOLDER)
    os.makedirs(folder, 0o700, exist_ok=True)
    os.chdir(folder)
    return folder


def connect_to_agent() -> Optional[socket.socket]:
    """Return a connection to the running agent, or None."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(SOCKET)
    except (FileNotFoundError, ConnectionRefusedError):
        line.close()
        return None
    return line


def receive_byte(line: socket.socket, seconds: Optional[float]) -> bytes:
    """Return one byte, or nothing at the end or after a timeout."""
    if not select.select([line], [], [], seconds)[0]:
        return b""
    try:
        return line.recv(1)
    except OSError:
        return b""


def hand_over_files(line: socket.socket, version: str) -> bytes:
    """Offer the agent our standard input and output, and return its answer."""
    files = (0).to_bytes(4, sys.byteorder) + (1).to_bytes(4, sys.byteorder)
    word = GREETING + PLEASE + version.encode().ljust(40)[:40]
    try:
        line.sendmsg([word], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    except OSError:
        return b""
    return receive_byte(line, READY_S)


def command_environment(login: Mapping[str, str]) -> Dict[str, str]:
    """Return the login's environment for commands, without what belongs to this connection."""
    env = {key: value for key, value in login.items() if key not in DROPPED}
    env = {key: value for key, value in env.items() if not key.startswith("HERD_")}
    if login.get(PRELOAD):
        env["LD_PRELOAD"] = login[PRELOAD]
    return env


def start_agent(pyz: str) -> bool:
    """Start the agent in a session of its own and return whether it is ready.

    It is forked twice, so that an agent that a command starts outlives that command.
    """
    hear, say = os.pipe()
    if not os.fork():
        try:
            if not os.fork():
                exec_agent(pyz, say)
            os._exit(0)
        finally:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    os.close(say)
    os.wait()
    ready = bool(select.select([hear], [], [], START_S)[0]) and os.read(hear, 1) == b"r"
    os.close(hear)
    return ready


def exec_agent(pyz: str, ready: int) -> None:
    """Become the agent, which writes to file 3 when it is ready."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1):
        os.dup2(null, file)
    log = os.open("agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log if os.fstat(log).st_size < 1 << 20 else null, 2)
    os.dup2(ready, 3)
    os.set_inheritable(3, True)  # also if it was 3 before
    os.closerange(4, 1 << 12)
    env = command_environment(os.environ)
    env[PRELOAD] = env.pop("LD_PRELOAD", "")
    os.execve(sys.executable, [sys.executable, "-I", "-S", pyz, "serve"], env)


def wait_as_shell(line: socket.socket) -> None:
    """Wait until the agent closes its side: as a shell, which needs a tenth of Python's memory."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(line.fileno(), 0)
    os.dup2(null, 1)
    try:
        os.execv("/bin/sh", ["sh", "-c", "read -r end; exit 0", "tpuherd-attach"])
    except OSError:
        receive_byte(line, None)


def wait_until_gone(line: socket.socket) -> None:
    """Wait for the older agent, which closes its side when it ends."""
    receive_byte(line, READY_S)
    line.close()


def attach(pyz: str, version: str) -> int:
    """Serve one SSH channel and return the exit status."""
    go_home()
    for _ in range(3):
        line = connect_to_agent()
        if line is None:
            lock = os.open(START_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)  # others wait here and find a running agent
            line = connect_to_agent()
            if line is None and not start_agent(pyz):
                sys.stderr.write("the agent did not start; see ~/.tpuherd/agent.log\n")
                return 69
            os.close(lock)
            line = line or connect_to_agent()
        if line is None:
            continue
        # A host that shuts down signals all processes; the agent reports that, and ends us.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        answer = hand_over_files(line, version)
        if answer == STAYS:
            wait_as_shell(line)
            return 0
        wait_until_gone(line) if answer == LEAVES else line.close()
    sys.stderr.write("the agent does not answer; see ~/.tpuherd/agent.log\n")
    return 69
