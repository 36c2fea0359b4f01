"""The entry point of `herd`; imports the standard library only, so that quick answers are quick.

Commands on hosts are sent to the daemon, a resident process that has loaded the slow libraries and
holds SSH connections. It receives the arguments, the folder, the environment and our three files,
and writes to these files itself; the launcher passes signals on and waits for the exit status.

`_socket` and `_signal` are the C halves of `socket` and `signal`, which take 7 ms to load.
"""

import os
import sys

from tpuherd._version import __version__
from tpuherd.daemon.handshake import (
    OTHER,
    OWN_COMMAND,
    PROTOCOL,
    SOCKET,
    YES,
    first_command,
    install_stamp,
)

#: Commands that the daemon runs. All others, and help, run here.
IN_DAEMON = {
    *(OWN_COMMAND, "exec", "ssh", "cp", "sync", "clean", "logs", "hosts", "forward"),
    *("smi", "chips", "outputs", "ssh-proxy"),
}
FOLLOWING = {"-f", "--follow"}  #: `herd logs` reads files alone: it need not end with the daemon
STARTING, LOG = "keeper.start", "keeper.txt"
PATH_MAX = 100  #: the limit for a socket's path is a little above
ACK_S = 10.0
IDLE_S = "600"  #: the daemon ends this long after its last command
TRANSPORT = 255
BUSY = -1  #: not an exit status
ALONE = (
    b"herd: the daemon runs another version of herd and is busy;"
    b" this command runs without it (see `herd engine daemon status`)\n"
)
#: What the daemon gets of our environment. No secret is in it but the password of the store.
VARIABLES = (
    "HOME USER LOGNAME PATH TERM COLORTERM NO_COLOR FORCE_COLOR CLICOLOR_FORCE LANG LC_ALL LC_CTYPE"
    " XDG_CONFIG_HOME XDG_STATE_HOME XDG_CACHE_HOME XDG_RUNTIME_DIR HERD_WORLD HERD_CONTEXT"
    " HERD_STORE PGPASSWORD PGPASSFILE HERD_DEBUG GOOGLE_APPLICATION_CREDENTIALS"
    " GOOGLE_CLOUD_PROJECT CLOUDSDK_CORE_PROJECT CLOUDSDK_CONFIG GCE_METADATA_HOST NO_GCE_CHECK"
    " GIT_DIR GIT_CONFIG_GLOBAL"
).split()
#: What the daemon must not inherit: it serves every world.
NOT_ITS_OWN = frozenset(
    "HERD_WORLD HERD_CONTEXT HERD_STORE PGPASSWORD HERD_DEBUG PWD OLDPWD TERM".split()
)


def main() -> None:
    """Answer what needs no library; hand everything else to via, the daemon or the CLI."""
    arguments, environ = sys.argv[1:], dict(os.environ)
    if arguments == ["--version"]:
        print(f"herd {__version__}")
        return
    if arguments in (["--help"], ["-h"], ["--all"]):
        from tpuherd.cli.command_table import all_commands_page, help_page

        print(all_commands_page() if arguments == ["--all"] else help_page(), end="")
        return
    if arguments[:1] == ["ssh-proxy"] and len(arguments) > 2:
        from tpuherd import ssh_proxy

        os._exit(ssh_proxy.run(arguments[1:], environ, run_command))
    if may_run_elsewhere(environ):
        from tpuherd.cli import via_client

        done = via_client.run(arguments, environ)
        if done is not None:
            sys.exit(done)
    if is_for_daemon(arguments):
        status = run_in_daemon(arguments, environ)
        if status is not None:
            os._exit(status)  # nothing was printed here that must be flushed
    sys.exit(run_in_process(arguments, environ))


def run_in_process(arguments: list[str], environ: "Mapping[str, str]") -> int:
    from tpuherd.cli.main import run

    return run(arguments, environ)


def run_command(arguments: list[str], environ: "Mapping[str, str]") -> int:
    """Run it in the daemon, or else in this process."""
    status = run_in_daemon(arguments, environ)
    return run_in_process(arguments, environ) if status is None else status


def may_run_elsewhere(environ: "Mapping[str, str]") -> bool:
    """Whether a context may name another machine to run on, judged by a glance at the file."""
    if environ.get("HERD_WORLD"):
        return False
    home = environ.get("HOME") or os.path.expanduser("~")
    try:
        with open(f"{environ.get('XDG_CONFIG_HOME') or home + '/.config'}/tpuherd/contexts.json",
                  "rb") as file:  # fmt: skip
            return b'"via"' in file.read()
    except OSError:
        return False


def is_for_daemon(arguments: list[str]) -> bool:
    """Whether the daemon runs this command line, as far as can be seen without parsing it."""
    word, rest = first_command(arguments)
    if word == "logs" and FOLLOWING.intersection(rest):
        return False
    return word in IN_DAEMON and "--help" not in rest and "-h" not in rest


def run_in_daemon(arguments: list[str], environ: "Mapping[str, str]") -> int | None:
    """Return the exit status that the daemon reports; None: there is no daemon."""
    try:
        folder = os.getcwdb()
    except OSError:
        folder = b"/"  # it was removed
    place = runtime_folder(environ)
    try:
        for starting in (False, True):
            connection = connect_to_daemon(place) or (
                start_daemon(place, arguments, environ) if starting else None
            )
            if connection is None:
                continue
            status = send_request(connection, encode_request(arguments, folder, environ))
            if status == BUSY:
                os.write(2, ALONE)
                return None
            if status is not None:
                return status
    except OSError:
        return None
    return None


def runtime_folder(environ: "Mapping[str, str]") -> str:
    """Return the folder of the daemon's socket; the same as settings.folders."""
    run = environ.get("XDG_RUNTIME_DIR")
    if run:
        return f"{run}/tpuherd"
    home = environ.get("HOME") or os.path.expanduser("~")
    return f"{environ.get('XDG_STATE_HOME') or home + '/.local/state'}/tpuherd/run"


def connect_to_daemon(place: str) -> "_socket.socket | None":
    """Return a connection to the daemon, if one of this user listens."""
    import _socket

    path = f"{place}/{SOCKET}"
    here = None
    try:
        found = os.stat(place)
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            return None
        if len(os.fsencode(path)) > PATH_MAX:
            here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
            os.chdir(place)
            path = SOCKET
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.connect(path)
        return connection
    except OSError:
        return None
    finally:
        if here is not None:
            os.fchdir(here)
            os.close(here)


def encode_request(arguments: list[str], folder: bytes, environ: "Mapping[str, str]") -> bytes:
    """Return the request: texts separated by zero bytes."""
    said = [
        PROTOCOL,
        install_stamp(__version__).encode(),
        folder,
        str(len(arguments)).encode(),
        *map(os.fsencode, arguments),
    ]
    said += [os.fsencode(f"{name}={environ[name]}") for name in VARIABLES if name in environ]
    text = b"\0".join(said)
    return len(text).to_bytes(4, "big") + text


def send_request(connection: "_socket.socket", text: bytes) -> int | None:
    """Send a request; None: the daemon ends and started nothing; BUSY: it can't end yet."""
    import _socket

    files = b"".join(file.to_bytes(4, sys.byteorder) for file in (open_file(n) for n in range(3)))
    restore = save_terminal()
    relay = SignalRelay(connection)
    try:
        connection.settimeout(ACK_S)
        sent = connection.sendmsg([text], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
        if sent < len(text):  # sending b"" fails, too, if a quick daemon has finished
            connection.sendall(text[sent:])
        said = connection.recv(1)
    except OSError:
        said = b""
    if said != YES:
        connection.close()  # so that a slow daemon does not start it later
        relay.withdraw()
        return BUSY if said == OTHER else None
    connection.settimeout(None)
    relay.begin()
    answer = connection.recv(1)
    if answer:
        return answer[0]
    restore()
    sentence = (
        "herd: the daemon ended unexpectedly; commands on hosts keep running:"
        " `herd exec --list` shows them"
    )
    os.write(2, sentence.encode() + b"\n")
    return TRANSPORT


class SignalRelay:
    """Passes signals on to the daemon. It starts before the request is sent: the command may print,
    and its user press Ctrl+C, before this process has read the daemon's answer."""

    def __init__(self, connection: "_socket.socket") -> None:
        import _signal  # type: ignore[import-not-found]  # typeshed has only what wraps it

        self.signal, self.connection = _signal, connection
        self.begun = False
        self.early: list[int] = []
        self.before = self.take_over(_signal.SIGINT, _signal.SIGTERM)

    def take_over(self, *numbers: int) -> "Mapping[int, Any]":
        """Handle these unless they are ignored, as by nohup or a shell's `&`."""
        before = {number: self.signal.getsignal(number) for number in numbers}
        before = {n: one for n, one in before.items() if one != self.signal.SIG_IGN}
        for number in before:
            self.signal.signal(number, self.handle)
        return before

    def handle(self, number: int, _: object) -> None:
        if self.begun:
            self.pass_on(number)
        elif self.early:  # the second one does not wait for the daemon
            self.withdraw()
        else:
            self.early.append(number)

    def pass_on(self, number: int) -> None:
        try:
            self.connection.send(bytes([number]))
            if number == self.signal.SIGTSTP:
                os.kill(os.getpid(), self.signal.SIGSTOP)
                self.connection.send(bytes([self.signal.SIGCONT]))
        except OSError:
            pass  # the daemon is gone: recv tells

    def begin(self) -> None:
        self.begun = True
        for number in self.early:
            self.pass_on(number)
        self.take_over(self.signal.SIGWINCH, self.signal.SIGTSTP)

    def withdraw(self) -> None:
        """Handle signals as before, also one that no command has got."""
        for number, handler in self.before.items():
            self.signal.signal(number, handler)
        for number in self.early:
            os.kill(os.getpid(), number)


def open_file(number: int) -> int:
    """Return one of the three standard files, or /dev/null if it is closed."""
    try:
        os.fstat(number)
        return number
    except OSError:
        return os.open(os.devnull, os.O_RDWR)


def save_terminal() -> "Callable[[], None]":
    """Return a function that restores the terminal, in case a dying daemon leaves it raw."""
    if not os.isatty(0):
        return lambda: None
    import termios

    state = termios.tcgetattr(0)
    return lambda: termios.tcsetattr(0, termios.TCSADRAIN, state)


def start_daemon(
    place: str, arguments: list[str], environ: "Mapping[str, str]"
) -> "_socket.socket | None":
    """Start a daemon, unless another process is doing so, and return a connection to it."""
    import fcntl
    from pathlib import Path

    from tpuherd.files import make_private_folder

    if first_command(arguments)[0] == OWN_COMMAND:
        return None  # its status or its end need no new one
    make_private_folder(Path(place))
    lock = os.open(f"{place}/{STARTING}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = connect_to_daemon(place)
        if connection is None and spawn_daemon(place, environ):
            connection = connect_to_daemon(place)
        return connection
    finally:
        os.close(lock)


def spawn_daemon(place: str, environ: "Mapping[str, str]") -> bool:
    """Start a daemon; true once it listens."""
    from tpuherd.background import start_and_hear

    idle = environ.get("HERD_KEEPER_IDLE_S", IDLE_S)
    its_own = {name: value for name, value in environ.items() if name not in NOT_ITS_OWN}
    return start_and_hear(["tpuherd.daemon", place, idle], its_own, log=f"{place}/{LOG}") == YES


TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Mapping
    from typing import Any

if __name__ == "__main__":
    main()
