"""Process 1 of a host: builds its file system, starts programs and reports their end."""

import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tpuherd_sim.hosts import landlock, messages, rootfs, spawn, syscalls
from tpuherd_sim.hosts.messages import Message
from tpuherd_sim.hosts.program_sandbox import NamespaceSandbox, Sandbox, SharedSandbox

PROCESSES_MAX, FILES_MAX = 8192, 1 << 16
REBOOT, OFF, HALT = 5, 4, 3  #: signals of systemd's init, counted from SIGRTMIN
#: There from the begin of a shutdown on, with its target; the host's systemctl reads it.
STOPPING = "/run/stopping"
FAREWELL_MS = 500  #: between SIGTERM and the end

Reply = tuple[Message, list[int]]


def run(link: socket.socket, ready: int, plan: Message) -> None:
    """Run process 1; does not return while the host lives."""
    syscalls.die_with_parent()
    if not os.read(ready, 1):
        return
    os.close(ready)
    try:
        if not plan["single_id"]:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            syscalls.be_dumpable()
            syscalls.die_with_parent()
        socket.sethostname(plan["name"])
        lower_limit(resource.RLIMIT_NPROC, PROCESSES_MAX)
        lower_limit(resource.RLIMIT_NOFILE, FILES_MAX)
        rootfs.build_rootfs(plan)
        syscalls.set_process_name("/sbin/init")
    except (OSError, KeyError, ValueError, TypeError) as error:
        messages.send_message(link, {"event": "failed", "why": (str(error) or repr(error))[:500]})
        return
    Init(link, NamespaceSandbox(single_id=plan["single_id"])).serve_requests()


def run_shared(link: socket.socket, plan: Message) -> None:
    """Run without namespaces, as the leader of all processes of the host."""
    os.setsid()
    syscalls.adopt_orphans()
    syscalls.die_with_parent(signal.SIGTERM)
    syscalls.set_process_name("tpuherd-host")
    try:
        landlock.restrict_host(plan)  # first, as programs may have left links in its folder
        place = SharedSandbox(plan)
        place.file_path(STOPPING).unlink(missing_ok=True)
    except OSError as error:
        messages.send_message(link, {"event": "failed", "why": str(error)[:500]})
        return
    shared = Init(link, place)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        shared.serve_requests()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        syscalls.kill_family(os.getpid())


def lower_limit(kind: int, most: int) -> None:
    """Lower a resource limit for everything that the host starts."""
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


class Init:
    """The main loop of process 1."""

    def __init__(self, link: socket.socket, place: Sandbox) -> None:
        self.link = link
        self.place = place
        self.ending: int | None = None
        self.awake, wakeup = os.pipe()
        os.set_blocking(self.awake, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        if isinstance(place, NamespaceSandbox):
            ends = {
                REBOOT: syscalls.RB_AUTOBOOT,
                OFF: syscalls.RB_POWER_OFF,
                HALT: syscalls.RB_POWER_OFF,
            }
            for offset, how in ends.items():
                signal.signal(signal.SIGRTMIN + offset, self.plan_end(how))
        self.verbs: dict[str, Callable[[Message, list[int]], Reply]] = {
            "spawn": self.spawn_program,
            "terminal": self.spawn_on_terminal,
            "connect": self.connect,
            "listen": self.open_listener,
            "signal": self.send_signal,
            "account": self.ensure_account,
            "holders": self.chip_holders,
            "write": self.write,
            "read": self.read,
            "connect_unix": self.connect_unix,
            "terminate": self.terminate_all,
        }

    def plan_end(self, how: int) -> Callable[..., None]:
        """Return a signal handler that records how the host is to end."""

        def plan(*_: object) -> None:
            self.ending = how

        return plan

    def serve_requests(self) -> None:
        """Answer requests until the controller disconnects."""
        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        poll.register(self.awake, select.POLLIN)
        messages.send_message(self.link, {"event": "up"})
        while True:
            ready = {file for file, _ in poll.poll()}
            if self.awake in ready:
                self.clear_wakeups()
                self.reap_children()
                if self.ending is not None:
                    self.shut_down(self.ending)
            if self.link.fileno() in ready:
                ask, files = messages.receive_message(self.link)
                if ask is None:
                    return
                self.answer_request(ask, files)

    def clear_wakeups(self) -> None:
        try:
            while os.read(self.awake, 4096):
                pass
        except BlockingIOError:
            pass

    def reap_children(self) -> bool:
        """Reap and report ended children; return whether some are still alive."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            messages.send_message(self.link, {"event": "exit", "pid": pid, "status": status})

    def announce_end(self, *, reboot: bool) -> None:
        """Let the host's systemctl say that the host is stopping, and what comes then."""
        mark = self.place.file_path(STOPPING)
        with suppress(OSError):  # a full disk, or a root user who broke the files
            mark.parent.mkdir(exist_ok=True)
            mark.write_text("reboot.target\n" if reboot else "poweroff.target\n")

    def shut_down(self, how: int) -> None:
        """Send SIGTERM to all processes, wait a moment and power off."""
        self.announce_end(reboot=how == syscalls.RB_AUTOBOOT)
        try:
            os.kill(-1, signal.SIGTERM)
            waiting = select.poll()
            waiting.register(self.awake, select.POLLIN)
            while self.reap_children() and waiting.poll(FAREWELL_MS):
                self.clear_wakeups()
        except ProcessLookupError:
            pass
        syscalls.reboot_namespace(how)

    def answer_request(self, ask: Message, files: list[int]) -> None:
        """Answer a request, also with its error."""
        try:
            reply, sent = self.verbs[ask["verb"]](ask, files)
        except (OSError, ValueError, KeyError, TypeError) as error:
            number = getattr(error, "errno", None) or 22
            why = getattr(error, "strerror", None) or str(error)
            reply, sent = {"errno": number, "why": why[:500]}, []
        finally:
            messages.close_all(files)
        messages.send_message(self.link, {"id": ask["id"], **reply}, sent)
        messages.close_all(sent)

    def spawn_program(self, ask: Message, files: list[int]) -> Reply:
        start = spawn.read_start(ask, files, self.place)
        return {"pid": spawn.spawn_program(start)}, []

    def spawn_on_terminal(self, ask: Message, files: list[int]) -> Reply:
        start = spawn.read_start(ask, files, self.place)
        master, slave, name = spawn.open_terminal(start.login, ask["size"], self.place)
        try:
            env = {**start.env, "SSH_TTY": name}
            start = replace(start, files=[slave], terminal=True, env=env)
            return {"pid": spawn.spawn_program(start)}, [master]
        finally:
            os.close(slave)

    def send_signal(self, ask: Message, _: list[int]) -> Reply:
        whole_session = ask["whole_session"]
        spawn.signal_all(ask["pid"], ask["number"], self.place, whole_session=whole_session)
        return {}, []

    def ensure_account(self, ask: Message, _: list[int]) -> Reply:
        login = self.place.ensure_login(ask["name"])
        return {"uid": login.uid, "gid": login.gid, "home": login.home}, []

    def chip_holders(self, _: Message, __: list[int]) -> Reply:
        return {"holders": spawn.chip_holders(self.place)}, []

    def connect(self, ask: Message, _: list[int]) -> Reply:
        """Open a connection in the host's network without waiting for it."""
        return {}, [self.place.connect_socket(ask["address"], ask["port"]).detach()]

    def open_listener(self, ask: Message, _: list[int]) -> Reply:
        """Open a listening socket in the host's network."""
        family, address = self.place.listen_address(ask["address"], ask["port"])
        link = socket.socket(family, socket.SOCK_STREAM)
        link.setblocking(False)
        try:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            link.bind(address)
            link.listen(128)
        except OSError:
            link.close()
            raise
        return {}, [link.detach()]

    def connect_unix(self, ask: Message, _: list[int]) -> Reply:
        """Connect to a socket file, in a child with the user's rights."""
        login = self.place.find_login(ask["user"])
        if login is None:
            raise OSError(2, f"this host has no user {ask['user']}")
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.setblocking(False)
        status = spawn.run_as_user(login, self.place, lambda: link.connect(ask["path"]))
        if status:
            link.close()
            raise OSError(status, os.strerror(status))
        return {}, [link.detach()]

    def terminate_all(self, ask: Message, _: list[int]) -> Reply:
        self.announce_end(reboot=bool(ask["reboot"]))
        spawn.terminate_all(self.place)
        return {}, []

    def read(self, ask: Message, _: list[int]) -> Reply:
        """Open a file as root."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        return {}, [os.open(self.place.file_path(ask["path"]), flags)]

    def write(self, ask: Message, files: list[int]) -> Reply:
        """Write the content of the received file as root."""
        path = self.place.file_path(ask["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        with open(files[0], "rb", closefd=False) as source, new.open("wb") as target:
            while part := source.read(1 << 16):
                target.write(part)
        new.chmod(ask["mode"])
        new.replace(path)
        return {}, []
