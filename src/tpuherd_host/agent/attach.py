"""What SSH starts: brings the controller's channel to the agent, which it becomes where needed.

It hands its standard input and output to the agent and waits until that lets go, so that nothing is
copied. Only what the fastest start needs is imported.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import fcntl
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Mapping, Optional

FOLDER = ".tpuherd"
SOCKET = "agent.sock"
START_LOCK = "start.lock"
READY_S = 20.0  #: for a living agent's word
START_S = 300.0  #: for a new one's; should it die meanwhile, we hear of it at once
GREETING = b"\xff"  #: no frame begins like this
PLEASE, STAYS, LEAVES, REFUSES = b"?", b"=", b"-", b"!"
SOL_SOCKET, SCM_RIGHTS = 1, 1
#: What must not reach the agent's own process, nor its commands.
DROPPED = ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SHLVL", "_", "OLDPWD")
ARGUMENTS = slice(45, 47)  #: where they are: of the words in /proc/PID/stat behind the name
PRELOAD = "HERD_LD_PRELOAD"  #: how LD_PRELOAD passes by the agent to its commands


def go_home() -> str:
    """Be in the agent's folder: paths of sockets must be short."""
    folder = os.path.join(os.path.expanduser("~"), FOLDER)
    os.makedirs(folder, 0o700, exist_ok=True)
    os.chdir(folder)
    return folder


def connect_to_agent() -> "Optional[_socket.socket]":
    """A connection to the agent; None when there is none."""
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        line.connect(SOCKET)
    except (FileNotFoundError, ConnectionRefusedError):
        line.close()
        return None
    return line


def receive_byte(line: "_socket.socket", seconds: "Optional[float]") -> bytes:
    """One byte, or nothing where it ends or takes too long."""
    if not select.select([line], [], [], seconds)[0]:
        return b""
    try:
        return line.recv(1)
    except OSError:
        return b""


def hand_over_files(line: "_socket.socket", version: str) -> bytes:
    """Offer our two files; how the agent answers."""
    files = (0).to_bytes(4, sys.byteorder) + (1).to_bytes(4, sys.byteorder)
    word = GREETING + PLEASE + version.encode().ljust(40)[:40]
    try:
        line.sendmsg([word], [(SOL_SOCKET, SCM_RIGHTS, files)])
    except OSError:
        return b""
    return receive_byte(line, READY_S)


def command_environment(login: "Mapping[str, str]") -> "Dict[str, str]":
    """What commands start with: the login's, but for what belongs to this connection."""
    env = {key: value for key, value in login.items() if key not in DROPPED}
    env = {key: value for key, value in env.items() if not key.startswith("HERD_")}
    if login.get(PRELOAD):
        env["LD_PRELOAD"] = login[PRELOAD]
    return env


def is_clean(login: "Mapping[str, str]") -> bool:
    """Whether an agent may live with this: nothing is loaded into it, and it is nobody's work."""
    return not any(key.startswith(("HERD_", "LD_PRELOAD")) and key != PRELOAD for key in login)


def start_agent(pyz: str, serve: "Callable[[], int]") -> bool:
    """Become the agent, in its own session, with nothing of ours; whether it is ready."""
    hear, say = os.pipe()
    if not os.fork():
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for file in (0, 1):
                os.dup2(null, file)
            log = os.open("agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log if os.fstat(log).st_size < 1 << 20 else null, 2)
            os.dup2(say, 3)
            os.closerange(4, 1 << 12)
            if is_clean(os.environ):
                set_process_title(pyz, "serve")
                os._exit(serve())
            elif not os.fork():  # else an agent that a command starts would end with it
                env = command_environment(os.environ)
                env[PRELOAD] = env.pop("LD_PRELOAD", "")
                os.execve(sys.executable, [sys.executable, "-I", "-S", pyz, "serve"], env)
            os._exit(0)
        finally:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    os.close(say)
    ready = bool(select.select([hear], [], [], START_S)[0]) and os.read(hear, 1) == b"r"
    os.close(hear)
    return ready


def set_process_title(pyz: str, word: str) -> None:
    """What lists of processes show instead of a program that fills the screen, if there is room."""
    words = "\0".join((sys.executable, pyz, word, "")).encode()
    try:
        with open("/proc/self/stat", "rb") as stat, open("/proc/self/mem", "r+b", 0) as memory:
            first, end = map(int, stat.read().rpartition(b")")[2].split()[ARGUMENTS])
            if len(words) <= end - first:
                memory.seek(first)
                memory.write(words.ljust(end - first, b"\0"))
    except OSError:
        pass  # it may not


def wait_until_gone(line: "_socket.socket") -> None:
    """The older agent closes its side when it is gone."""
    receive_byte(line, READY_S)
    line.close()


def attach(pyz: str, version: str, serve: "Callable[[], int]") -> int:
    """The exit status of `attach`."""
    set_process_title(pyz, "attach")
    go_home()
    for _ in range(3):
        line = connect_to_agent()
        if line is None:
            lock = os.open(START_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)  # others wait here and find it started
            line = connect_to_agent()
            if line is None and not start_agent(pyz, serve):
                sys.stderr.write("the agent did not start; ~/.tpuherd/agent.log says why\n")
                return 69
            os.close(lock)
            line = line or connect_to_agent()
        if line is None:
            continue
        # A host that goes down tells all to end. The agent has a last word, and ends us.
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
        answer = hand_over_files(line, version)
        if answer == STAYS:
            for file in (0, 1):
                os.close(file)
            receive_byte(line, None)
            return 0
        wait_until_gone(line) if answer == LEAVES else line.close()
    sys.stderr.write("the agent does not answer; ~/.tpuherd/agent.log may say why\n")
    return 69
