"""The agent's other half: it starts processes and sees them end, even if the agent is killed.

The agent forks it. It does nothing else, so that it stays small and robust. It writes how a process
ended into the file `exit` of its folder, and tells the agent. Processes that a command leaves
behind become its children.
"""

import ctypes
import errno
import fcntl
import gc
import json
import marshal
import os
import select
import signal
import socket
import stat
import struct
import termios
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from tpuherd_host.agent.processes import rename_process

LENGTH = struct.Struct(">I")
LINGER_S = 120.0  #: it keeps the last output of its commands this long for another agent
SUBREAPER = 36
RESET = (
    signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
)  # fmt: skip
StartProgram = Callable[
    [str, List[str]], int
]  #: takes a program's file and arguments; returns the process id


def start_ticks(pid: int) -> int:
    """Return when a process started, in the kernel's ticks since boot; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            words = (file.read(4096) or b"").rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] in (b"Z", b"X") else int(words[19])


def pack_message(content: Dict[str, Any]) -> bytes:
    """Pack a message between agent and supervisor, which run the same Python."""
    text = marshal.dumps(content)
    return LENGTH.pack(len(text)) + text


def take_messages(rest: bytearray) -> List[Dict[str, Any]]:
    """Return the complete messages and remove them from `rest`."""
    found = []
    while len(rest) >= LENGTH.size:
        end = LENGTH.size + LENGTH.unpack_from(rest)[0]
        if len(rest) < end:
            break
        found.append(marshal.loads(rest[LENGTH.size : end]))
        del rest[:end]
    return found


def write_file(path: str, content: Any, hard: bool = False) -> None:
    """Write JSON atomically; `hard` waits until it is on the disk."""
    text = json.dumps(content).encode()
    file = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        if os.write(file, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if hard:
            os.fsync(file)
    finally:
        os.close(file)


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class StartError(Exception):
    """A process could not start: the step that failed, and the errno."""


def spawn_on_pipes(order: Mapping[str, Any]) -> int:
    """Start a process by posix_spawn: none of our code runs in it, which is fast."""
    files: List[int] = []
    try:
        open_ends(order, files)
        change_folder(order["directory"])
        actions = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(files)]

        def begin(path: str, argv: List[str]) -> int:
            return os.posix_spawn(
                path, argv, order["env"], file_actions=actions, setsid=True, setsigdef=RESET
            )

        return exec_program(order["argv"], order["env"], begin)
    finally:
        os.chdir("/")
        for file in files:
            os.close(file)


def open_ends(order: Mapping[str, Any], files: List[int]) -> None:
    """Open a process's input and outputs, and add them to `files`."""
    # The writer may be gone already: do not block.
    files.append(os.open(order["in"] or os.devnull, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    if order["in"]:
        os.set_blocking(files[0], True)
    for end in ("out", "err"):  # also for reading: it outlives the agent
        files.append(os.open(order[end], os.O_RDWR | os.O_CLOEXEC))


def spawn_on_terminal(order: Mapping[str, Any]) -> int:
    """Start a process on a terminal, which becomes its controlling terminal."""
    hear, report = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        exec_on_terminal(order, report)
    os.close(report)
    failure = os.read(hear, 4096)
    os.close(hear)
    if failure:
        os.waitpid(pid, 0)
        raise StartError(*json.loads(failure))
    return pid


def exec_on_terminal(order: Mapping[str, Any], report: int) -> None:
    """In the child: make a session, take the terminal, change the folder, execute the program."""
    why = ["argv", errno.EIO]
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for sign in RESET:
            signal.signal(sign, signal.SIG_DFL)
        tty = os.open(order["tty"], os.O_RDWR)
        fcntl.ioctl(tty, termios.TIOCSCTTY, 0)
        for number in range(3):
            os.dup2(tty, number)
        change_folder(order["directory"])
        env = order["env"]
        exec_program(order["argv"], env, lambda path, argv: os.execve(path, argv, env))
    except StartError as unborn:
        why = list(unborn.args)
    except OSError as error:
        why = ["argv", error.errno or 0]
    finally:
        os.write(report, json.dumps(why).encode())
        os._exit(127)


def change_folder(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise StartError("directory", error.errno) from error


def exec_program(argv: List[str], env: Mapping[str, str], begin: StartProgram) -> int:
    """Execute as a shell does: search PATH, and use /bin/sh for a script without #!."""
    name, refused = argv[0], 0
    folders = [""] if "/" in name else env.get("PATH", os.defpath).split(":")
    for folder in folders:
        path = os.path.join(folder, name)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        try:
            if stat.S_ISDIR(mode):
                raise PermissionError(errno.EACCES, "a folder")
            return begin(path, argv)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                return begin("/bin/sh", ["sh", path, *argv[1:]])
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                refused = refused or error.errno or 0
    raise StartError("argv", refused or errno.ENOENT)


class Supervisor:
    """Owns its processes and the connection to the agent."""

    def __init__(self, line: socket.socket, login: Mapping[str, str]) -> None:
        self.line: Optional[socket.socket] = line
        self.login = login  #: the environment of every process, unless its order overrides it
        self.children: Dict[int, Mapping[str, Any]] = {}
        self.kept: Dict[str, List[int]] = {}  #: read ends: output is not lost with the agent
        self.poll = select.poll()
        self.rest = bytearray()
        self.left_at = 0.0

    def run(self) -> None:
        """Run until the agent and all processes are gone."""
        wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        self.poll.register(wake_in, select.POLLIN)
        if self.line is not None:
            self.poll.register(self.line, select.POLLIN)
        while self.line is not None or self.children or time.monotonic() < self.left_at + LINGER_S:
            # A signal between reaping and poll is in the pipe: no end is missed.
            for file, _ in self.poll.poll(None if self.line is not None else 1000):
                if file == wake_in:
                    with suppress(BlockingIOError):
                        os.read(wake_in, 4096)
                    self.reap_children()
                elif self.line is not None and not self.read_orders():
                    self.poll.unregister(file)
                    self.line = None
                    self.left_at = time.monotonic()

    def read_orders(self) -> bool:
        """Handle the agent's messages; return False when the agent is gone."""
        assert self.line is not None
        try:
            piece = self.line.recv(1 << 20)
        except OSError:
            piece = b""
        self.rest += piece
        for order in take_messages(self.rest):
            for id in order["let"]:
                self.release_output(id)
            self.spawn_child(order)
        return bool(piece)

    def send_message(self, content: Dict[str, Any]) -> None:
        """Send to the agent if it is alive."""
        if self.line is not None:
            with suppress(OSError):
                self.line.sendall(pack_message(content))

    def release_output(self, id: str) -> None:
        for file in self.kept.pop(id, []):
            os.close(file)

    def spawn_child(self, order: Dict[str, Any]) -> None:
        """Start a process and report it."""
        id = order["id"]
        self.release_output(id)
        order["env"] = self.merge_variables(order)
        try:
            if not order["tty"]:
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self.kept[id] = [os.open(order[end], flags) for end in ("out", "err")]
            pid = spawn_on_terminal(order) if order["tty"] else spawn_on_pipes(order)
        except StartError as unborn:
            self.release_output(id)
            self.send_message({"id": id, "failed": unborn.args})
            return
        except OSError as error:
            self.release_output(id)
            self.send_message({"id": id, "failed": ["fork", error.errno]})
            return
        ticks = start_ticks(pid)
        self.children[pid] = order
        self.send_message({"id": id, "began": pid, "ticks": ticks})
        with suppress(OSError):  # a full disk: the agent still knows it
            write_file(os.path.join(order["folder"], "pid"), [pid, ticks])

    def merge_variables(self, order: Mapping[str, Any]) -> Dict[str, str]:
        env = {**self.login, **order["env"]}
        return {name: value for name, value in env.items() if value is not None}

    def reap_children(self) -> None:
        """Report processes that ended; also reap orphans."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid not in self.children:
                continue
            order = self.children.pop(pid)
            signalled = os.WIFSIGNALED(status)
            content = {
                "id": order["id"],
                "pid": pid,
                "ended": time.time(),
                "exit": None if signalled else os.WEXITSTATUS(status),
                "signal": os.WTERMSIG(status) if signalled else None,
                "rusage": {
                    "user_s": round(usage.ru_utime, 6),
                    "system_s": round(usage.ru_stime, 6),
                    "memory_bytes": usage.ru_maxrss * 1024,
                },
            }
            self.send_message(content)
            with suppress(OSError):  # a full disk: the agent records it when it can
                write_file(os.path.join(order["folder"], "exit"), content)


def fork_supervisor(login: Mapping[str, str]) -> Tuple[socket.socket, int]:
    """Fork a supervisor; return the agent's end of the connection and the process id."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    gc.freeze()  # a collection would write to all memory that both share
    pid = os.fork()
    if not pid:
        try:
            run_supervisor(its, login)
        finally:
            os._exit(0)
    its.close()
    return ours, pid


def run_supervisor(line: socket.socket, login: Mapping[str, str]) -> None:
    """Be the supervisor in a fresh fork; close all files of the agent but the connection."""
    rename_process("herd-supervisor")
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(3, line.fileno())
    os.closerange(line.fileno() + 1, 1 << 16)
    with suppress(OSError, AttributeError):  # adopted orphans keep their environment
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    Supervisor(line, login).run()
