"""The agent's other half: it begins processes and sees them end, also when the agent is killed.

It is forked by the agent and does nothing else, so that it is small and nothing can break it. How a
process ended it writes into the file `exit` of its folder, and says it to the agent. What a command
leaves behind becomes a child of it.
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import termios
import time
from importlib import import_module
from typing import Any, Callable, Dict, List, Mapping, Optional

LENGTH = struct.Struct(">I")
LINGER_S = 120.0  #: it keeps the last output of its commands so long for another agent
SUBREAPER = 36
RESET = (
    signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
)  # fmt: skip
Begin = Callable[[str, List[str]], int]  #: a program's file and its words; its process id


def ticks_of(pid: int) -> int:
    """When a process was born, in the kernel's ticks since boot; 0: there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] in (b"Z", b"X") else int(words[19])


def packed(content: Mapping[str, Any]) -> bytes:
    """A message between agent and nurse."""
    text = json.dumps(content).encode()
    return LENGTH.pack(len(text)) + text


def unpacked(rest: bytearray) -> List[Dict[str, Any]]:
    """The messages that are whole; they leave `rest`."""
    found = []
    while len(rest) >= LENGTH.size:
        end = LENGTH.size + LENGTH.unpack_from(rest)[0]
        if len(rest) < end:
            break
        found.append(json.loads(bytes(rest[LENGTH.size : end])))
        del rest[:end]
    return found


def write_file(path: str, text: str) -> None:
    """Whole or not at all."""
    with open(f"{path}.new", "w", opener=private) as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def private(path: str, flags: int) -> int:
    """Only its owner may read it."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class Unborn(Exception):
    """A process that could not begin: at what, and the errno."""


def on_pipes(order: Mapping[str, Any]) -> int:
    """Begin a process. Until it is its program nothing of us runs in it: that is what is quick."""
    files = []
    try:
        # Whoever feeds it may be gone already: that must not hold us up.
        files.append(os.open(order["in"] or os.devnull, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        os.set_blocking(files[0], True)
        for end in ("out", "err"):  # also as a reader: it outlives the agent
            files.append(os.open(order[end], os.O_RDWR | os.O_CLOEXEC))
        enter(order["directory"])
        actions = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(files)]

        def begin(path: str, argv: List[str]) -> int:
            return os.posix_spawn(
                path, argv, order["env"], file_actions=actions, setsid=True, setsigdef=RESET
            )

        return executed(order["argv"], order["env"], begin)
    finally:
        os.chdir("/")
        for file in files:
            os.close(file)


def on_terminal(order: Mapping[str, Any]) -> int:
    """The same on a terminal, which only the process itself can make its own."""
    hear, report = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        become(order, report)
    os.close(report)
    said = os.read(hear, 4096)
    os.close(hear)
    if said:
        os.waitpid(pid, 0)
        raise Unborn(*json.loads(said))
    return pid


def become(order: Mapping[str, Any], report: int) -> None:
    """In the child: its own session, its terminal, its folder, and then the program."""
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
        enter(order["directory"])
        env = order["env"]
        executed(order["argv"], env, lambda path, argv: os.execve(path, argv, env))
    except Unborn as unborn:
        why = list(unborn.args)
    except OSError as error:
        why = ["argv", error.errno or 0]
    finally:
        os.write(report, json.dumps(why).encode())
        os._exit(127)


def enter(folder: str) -> None:
    """Be there."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise Unborn("directory", error.errno) from error


def executed(argv: List[str], env: Mapping[str, str], begin: Begin) -> int:
    """As a shell does: found by PATH, and by /bin/sh where it begins with no #!."""
    name, refused = argv[0], 0
    folders = [""] if "/" in name else env.get("PATH", os.defpath).split(":")
    for folder in folders:
        path = os.path.join(folder, name)
        try:
            if os.path.isdir(path):
                raise PermissionError(errno.EACCES, "a folder")
            if os.path.exists(path):
                return begin(path, argv)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                return begin("/bin/sh", ["sh", path, *argv[1:]])
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                refused = refused or error.errno or 0
    raise Unborn("argv", refused or errno.ENOENT)


class Nurse:
    """Its processes, and the line to its agent."""

    def __init__(self, line: socket.socket) -> None:
        self.line: Optional[socket.socket] = line
        self.wards: Dict[int, Mapping[str, Any]] = {}
        self.kept: Dict[str, List[int]] = {}  #: read ends: output is not lost with the agent
        self.rest = bytearray()
        self.left_at = 0.0

    def live(self) -> None:
        """Until there is nothing more to do."""
        wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(wake_in, select.POLLIN)
        if self.line is not None:
            poll.register(self.line, select.POLLIN)
        while self.line is not None or self.wards or time.monotonic() < self.left_at + LINGER_S:
            # A signal between the reaping and the poll is in the pipe: nothing is overslept.
            for file, _ in poll.poll(None if self.line is not None else 1000):
                if file == wake_in:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_in, 4096)
                elif self.line is not None and not self.hear():
                    poll.unregister(file)
                    self.line = None
                    self.left_at = time.monotonic()
            self.reap()

    def hear(self) -> bool:
        """What the agent says; False when it is gone."""
        assert self.line is not None
        try:
            piece = self.line.recv(1 << 20)
        except OSError:
            piece = b""
        self.rest += piece
        for order in unpacked(self.rest):
            if order["do"] == "spawn":
                self.spawn(order)
            else:
                self.let(order["id"])
        return bool(piece)

    def say(self, content: Mapping[str, Any]) -> None:
        """To the agent, if there is one."""
        if self.line is not None:
            with contextlib.suppress(OSError):
                self.line.sendall(packed(content))

    def let(self, id: str) -> None:
        """Its output is not needed any more."""
        for file in self.kept.pop(id, []):
            os.close(file)

    def spawn(self, order: Mapping[str, Any]) -> None:
        """Begin a process, and say so when it has become its program."""
        id = order["id"]
        self.let(id)
        try:
            if not order["tty"]:
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self.kept[id] = [os.open(order[end], flags) for end in ("out", "err")]
            pid = on_terminal(order) if order["tty"] else on_pipes(order)
        except Unborn as unborn:
            self.let(id)
            self.say({"id": id, "failed": unborn.args})
            return
        except OSError as error:
            self.let(id)
            self.say({"id": id, "failed": ["fork", error.errno]})
            return
        ticks = ticks_of(pid)
        self.wards[pid] = order
        self.say({"id": id, "began": pid, "ticks": ticks})
        with contextlib.suppress(OSError):  # a full disk: the agent still knows it
            write_file(os.path.join(order["folder"], "pid"), json.dumps([pid, ticks]))

    def reap(self) -> None:
        """Those who have ended, and orphans."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            order = self.wards.pop(pid, None)
            if order is None:
                continue
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
            self.say(content)
            with contextlib.suppress(OSError):
                write_file(os.path.join(order["folder"], "exit"), json.dumps(content))


def nurse(line: socket.socket) -> None:
    """The life of a nurse, in a fresh fork: it keeps nothing of the agent's open but its line."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(3, line.fileno())
    os.closerange(line.fileno() + 1, 1 << 16)
    with contextlib.suppress(OSError, AttributeError):  # orphans are found by their environment too
        import_module("ctypes").CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0)
    Nurse(line).live()
