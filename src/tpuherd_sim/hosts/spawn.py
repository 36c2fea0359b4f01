"""Starts and watches programs in a host, for its init."""

import fcntl
import os
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuherd_sim.hosts import sftp_server
from tpuherd_sim.hosts.accounts import Login
from tpuherd_sim.hosts.messages import Message
from tpuherd_sim.hosts.program_sandbox import Sandbox

WHAT_DIES_FIRST = "300"  #: when the machine is out of memory: a session, not the init
HOLDERS_MAX, FILES_MAX = 200, 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramStart:
    """How to start a program: command, user, folder, files."""

    argv: Sequence[str]
    executable: str
    env: Mapping[str, str]
    directory: str
    login: Login
    place: Sandbox
    files: Sequence[int]  #: three, or one terminal
    terminal: bool = False


def read_start(ask: Message, files: Sequence[int], place: Sandbox) -> ProgramStart:
    login = place.find_login(ask["user"])
    if login is None:
        raise OSError(2, f"this host has no user {ask['user']}")
    argv = [str(word) for word in ask["argv"]]
    return ProgramStart(
        argv=argv,
        executable=ask["executable"] or argv[0],
        env={**place.session_environment(login), **ask["env"]},
        directory=ask["directory"] or login.home,
        login=login,
        place=place,
        files=files,
    )


def spawn_program(start: ProgramStart) -> int:
    """Start a program as the leader of its own session; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        become_program(start)
        path = start.executable
        if path == sftp_server.INTERNAL:
            sftp_server.serve_files()
            os._exit(0)
        if "/" in path:
            os.execve(path, list(start.argv), dict(start.env))
        os.execvpe(path, list(start.argv), dict(start.env))
    except (OSError, ValueError, KeyError) as error:
        os.write(2, f"{start.executable}: {getattr(error, 'strerror', None) or error}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def become_program(start: ProgramStart) -> None:
    """Become the program in a new child."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    if start.terminal:
        fcntl.ioctl(start.files[0], termios.TIOCSCTTY, 0)
    set_standard_files(start)
    os.umask(0o022)
    try:
        Path("/proc/self/oom_score_adj").write_text(WHAT_DIES_FIRST)
    except OSError:
        pass  # best effort
    start.place.switch_user(start.login)
    try:
        os.chdir(start.directory)
    except OSError:
        os.chdir("/")


def set_standard_files(start: ProgramStart) -> None:
    """Set descriptors 0, 1 and 2, and close all others."""
    given = [start.files[0 if start.terminal else number] for number in range(3)]
    safe = [fcntl.fcntl(file, fcntl.F_DUPFD, 10) for file in given]
    for number, file in enumerate(safe):
        os.dup2(file, number)
    os.closerange(3, FILES_MAX)


def open_terminal(login: Login, size: Sequence[int], place: Sandbox) -> tuple[int, int, str]:
    """Open a terminal of that size; return its two ends and its name."""
    master, slave = os.openpty()
    rows, columns, width, height = (max(0, min(int(number), 0xFFFF)) for number in size)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))
    place.give_terminal(slave, login)
    return master, slave, os.ttyname(slave)


def signal_all(pid: int, number: int, place: Sandbox, *, whole_session: bool) -> None:
    """Send a signal to a process, its session, or (-1) all processes of the host."""
    running = place.process_ids()
    if pid == -1:
        targets = running
    elif whole_session:
        targets = [each for each in running if session_leader(each) == pid]
    else:
        targets = [each for each in running if each == pid]
    for target in targets:
        try:
            os.kill(target, number)
        except ProcessLookupError:
            pass


def terminate_all(place: Sandbox) -> None:
    """Send SIGTERM to all processes, and SIGHUP to those on a terminal."""
    for pid in place.process_ids():
        fields = stat_fields(pid)
        numbers = [signal.SIGTERM, signal.SIGCONT]
        if fields and int(fields[4]):
            numbers.append(signal.SIGHUP)
        for number in numbers:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                break


def run_as_user(login: Login, place: Sandbox, deed: Callable[[], None]) -> int:
    """Call a function in a child with the user's rights; return its errno, or 0."""
    pid = os.fork()
    if pid == 0:
        try:
            place.switch_user(login)
            deed()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 5)
        finally:
            os._exit(5)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def session_leader(pid: int) -> int:
    """Return the leader of the process's session; 0 if the process has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def chip_holders(place: Sandbox) -> list[Message]:
    """Return the processes that have a chip open."""
    found: list[Message] = []
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    for pid in place.process_ids():
        chips = {chip for target in open_file_paths(pid) if (chip := place.chip_name(target))}
        fields = stat_fields(pid)
        if not chips or not fields:
            continue
        cpu_s = (int(fields[11]) + int(fields[12])) / tick
        resident = int(fields[21]) * page
        for chip in sorted(chips):
            found.append({"device": chip, "pid": pid, "resident": resident, "cpu_s": cpu_s})
    return found[:HOLDERS_MAX]


def stat_fields(pid: int) -> list[str]:
    """Return /proc/PID/stat from the state on; empty if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def open_file_paths(pid: int) -> list[str]:
    """Return the targets of the process's descriptors."""
    found = []
    try:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            found.append(str(path.readlink()))
    except OSError:
        pass  # it ended meanwhile
    return found
