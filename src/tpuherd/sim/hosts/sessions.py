"""Starting and watching programs in a host: what its init does on request."""

import fcntl
import os
import signal
import struct
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuherd.sim.hosts import accounts, devices, filters
from tpuherd.sim.hosts.wire import Message

PATH_OF_ROOT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PATH_OF_USERS = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
WHAT_DIES_FIRST = "300"  #: of the machine's memory runs short: a session, not the init
HOLDERS_MAX = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How a program begins: what, as whom, where, on what."""

    argv: Sequence[str]
    executable: str
    env: Mapping[str, str]
    directory: str
    login: accounts.Login
    single_id: bool
    files: Sequence[int]  #: three, or one terminal
    terminal: bool = False


def read_start(ask: Message, files: Sequence[int], *, single_id: bool) -> Start:
    """A request to start something."""
    login = accounts.find(ask["user"])
    if login is None:
        raise OSError(2, f"this host has no user {ask['user']}")
    argv = [str(word) for word in ask["argv"]]
    env = {
        "PATH": PATH_OF_USERS if login.uid else PATH_OF_ROOT,
        "HOME": login.home,
        "USER": login.name,
        "LOGNAME": login.name,
        "SHELL": login.shell,
        **environment_file(),
        **ask["env"],
    }
    return Start(
        argv=argv,
        executable=ask["executable"] or argv[0],
        env=env,
        directory=ask["directory"] or login.home,
        login=login,
        single_id=single_id,
        files=files,
    )


def environment_file() -> dict[str, str]:
    """What /etc/environment gives to every session."""
    found = {}
    try:
        lines = Path("/etc/environment").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.isidentifier():
            found[name] = value.strip("\"'")
    return found


def spawn(start: Start) -> int:
    """Start it as the leader of a session of its own; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        become(start)
        path = start.executable
        if "/" in path:
            os.execve(path, list(start.argv), dict(start.env))
        os.execvpe(path, list(start.argv), dict(start.env))
    except (OSError, ValueError, KeyError) as error:
        os.write(2, f"{start.executable}: {getattr(error, 'strerror', None) or error}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def become(start: Start) -> None:
    """Turn a fresh child into what is to be started."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    if start.terminal:
        fcntl.ioctl(start.files[0], termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(start.files[0 if start.terminal else number], number + 10, inheritable=True)
    for number in range(3):
        os.dup2(number + 10, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 8192 else 8192)
    Path("/proc/self/oom_score_adj").write_text(WHAT_DIES_FIRST)
    os.umask(0o022)
    if start.single_id:
        filters.fake_root()
    elif start.login.uid or start.login.gid:
        os.setgroups(accounts.groups_of(start.login))
        os.setresgid(start.login.gid, start.login.gid, start.login.gid)
        os.setresuid(start.login.uid, start.login.uid, start.login.uid)
    try:
        os.chdir(start.directory)
    except OSError:
        os.chdir("/")


def open_terminal(login: accounts.Login, size: Sequence[int], *, single_id: bool) -> tuple[int, int, str]:
    """A new terminal of that size: its two ends and its name."""
    master, slave = os.openpty()
    rows, columns, width, height = (max(0, min(int(number), 0xFFFF)) for number in size)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))
    if not single_id:
        os.fchown(slave, login.uid, login.gid)
    os.fchmod(slave, 0o620)
    return master, slave, os.ttyname(slave)


def signal_all(pid: int, number: int, *, whole_session: bool) -> None:
    """A signal to one process, to all of its session, or (-1) to everything in the host."""
    targets = session_of(pid) if whole_session and pid > 1 else [pid]
    for target in targets:
        if target == 1:
            continue
        try:
            os.kill(target, number)
        except ProcessLookupError:
            pass


def session_of(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for pid in processes():
        fields = stat_fields(pid)
        if fields and int(fields[3]) == leader:
            found.append(pid)
    return found


def processes() -> list[int]:
    """All that run in the host."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat from the state on; nothing when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def holders() -> list[Message]:
    """Who has which chip open."""
    found: list[Message] = []
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    for pid in processes():
        chips = {target for target in open_files(pid) if devices.is_chip(target)}
        fields = stat_fields(pid)
        if not chips or not fields:
            continue
        cpu_s = (int(fields[11]) + int(fields[12])) / tick
        resident = int(fields[21]) * page
        for chip in sorted(chips):
            found.append({"device": chip, "pid": pid, "resident": resident, "cpu_s": cpu_s})
    return found[:HOLDERS_MAX]


def open_files(pid: int) -> list[str]:
    """What its descriptors point to."""
    folder = f"/proc/{pid}/fd"
    found = []
    try:
        for name in os.listdir(folder):  # noqa: PTH208
            found.append(os.readlink(f"{folder}/{name}"))  # noqa: PTH115
    except OSError:
        pass  # it ended meanwhile
    return found
