"""Process 1 of a host: builds its view, then starts what is asked for and reports what ended."""

import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace

from tpuherd_sim.hosts import landlock, messages, rootfs, spawn, syscalls
from tpuherd_sim.hosts.messages import Message
from tpuherd_sim.hosts.program_sandbox import Own, Place, Shared

PROCESSES_MAX, FILES_MAX = 8192, 1 << 16
REBOOT, OFF, HALT = 5, 4, 3  #: signals of systemd's init, counted from SIGRTMIN
FAREWELL_MS = 500  #: how long processes have between the TERM and the end

Answer = tuple[Message, list[int]]


def run(link: socket.socket, ready: int, plan: Message) -> None:
    """The whole life of it. Never returns while the host lives."""
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
        limit(resource.RLIMIT_NPROC, PROCESSES_MAX)
        limit(resource.RLIMIT_NOFILE, FILES_MAX)
        rootfs.build(plan)
        syscalls.call_ourselves("/sbin/init")
    except (OSError, KeyError, ValueError, TypeError) as error:
        messages.send(link, {"event": "failed", "why": (str(error) or repr(error))[:500]})
        return
    Init(link, Own(single_id=plan["single_id"])).serve()


def run_shared(link: socket.socket, plan: Message) -> None:
    """The same without a place of its own: the leader of everything that belongs to the host."""
    os.setsid()
    syscalls.adopt_orphans()
    syscalls.die_with_parent(signal.SIGTERM)
    syscalls.call_ourselves("tpuherd-host")
    try:
        place = Shared(plan)
        landlock.around(plan)
    except OSError as error:
        messages.send(link, {"event": "failed", "why": str(error)[:500]})
        return
    shared = Init(link, place)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        shared.serve()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        syscalls.kill_family(os.getpid())


def limit(kind: int, most: int) -> None:
    """Lower a limit for all that the host will start."""
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


class Init:
    """The loop of process 1."""

    def __init__(self, link: socket.socket, place: Place) -> None:
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
        if isinstance(place, Own):
            ends = {
                REBOOT: syscalls.RB_AUTOBOOT,
                OFF: syscalls.RB_POWER_OFF,
                HALT: syscalls.RB_POWER_OFF,
            }
            for offset, how in ends.items():
                signal.signal(signal.SIGRTMIN + offset, self.plan_end(how))
        self.verbs: dict[str, Callable[[Message, list[int]], Answer]] = {
            "spawn": self.spawn,
            "terminal": self.terminal,
            "connect": self.connect,
            "listen": self.listen,
            "signal": self.signal,
            "account": self.account,
            "holders": self.holders,
            "write": self.write,
            "read": self.read,
            "connect_unix": self.connect_unix,
            "terminate": self.terminate,
        }

    def plan_end(self, how: int) -> Callable[..., None]:
        """A signal's effect: remember how the host is to end."""

        def plan(*_: object) -> None:
            self.ending = how

        return plan

    def serve(self) -> None:
        """Until the controller hangs up."""
        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        poll.register(self.awake, select.POLLIN)
        messages.send(self.link, {"event": "up"})
        while True:
            ready = {file for file, _ in poll.poll()}
            if self.awake in ready:
                self.drain()
                self.reap()
                if self.ending is not None:
                    self.end(self.ending)
            if self.link.fileno() in ready:
                ask, files = messages.receive(self.link)
                if ask is None:
                    return
                self.answer(ask, files)

    def drain(self) -> None:
        """Forget the wakeups."""
        try:
            while os.read(self.awake, 4096):
                pass
        except BlockingIOError:
            pass

    def reap(self) -> bool:
        """Bury the dead and report them; whether some are still alive."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            messages.send(self.link, {"event": "exit", "pid": pid, "status": status})

    def end(self, how: int) -> None:
        """TERM to everything, a moment, and off."""
        try:
            os.kill(-1, signal.SIGTERM)
            waiting = select.poll()
            waiting.register(self.awake, select.POLLIN)
            while self.reap() and waiting.poll(FAREWELL_MS):
                self.drain()
        except ProcessLookupError:
            pass
        syscalls.reboot(how)

    def answer(self, ask: Message, files: list[int]) -> None:
        """Do what is asked; what goes wrong is an answer too."""
        try:
            reply, sent = self.verbs[ask["verb"]](ask, files)
        except (OSError, ValueError, KeyError, TypeError) as error:
            number = getattr(error, "errno", None) or 22
            why = getattr(error, "strerror", None) or str(error)
            reply, sent = {"errno": number, "why": why[:500]}, []
        finally:
            messages.close_all(files)
        messages.send(self.link, {"id": ask["id"], **reply}, sent)
        messages.close_all(sent)

    def spawn(self, ask: Message, files: list[int]) -> Answer:
        start = spawn.read_start(ask, files, self.place)
        return {"pid": spawn.spawn(start)}, []

    def terminal(self, ask: Message, files: list[int]) -> Answer:
        start = spawn.read_start(ask, files, self.place)
        master, slave, name = spawn.open_terminal(start.login, ask["size"], self.place)
        try:
            env = {**start.env, "SSH_TTY": name}
            start = replace(start, files=[slave], terminal=True, env=env)
            return {"pid": spawn.spawn(start)}, [master]
        finally:
            os.close(slave)

    def signal(self, ask: Message, _: list[int]) -> Answer:
        whole_session = ask["whole_session"]
        spawn.signal_all(ask["pid"], ask["number"], self.place, whole_session=whole_session)
        return {}, []

    def account(self, ask: Message, _: list[int]) -> Answer:
        login = self.place.ensure(ask["name"])
        return {"uid": login.uid, "gid": login.gid, "home": login.home}, []

    def holders(self, _: Message, __: list[int]) -> Answer:
        return {"holders": spawn.holders(self.place)}, []

    def connect(self, ask: Message, _: list[int]) -> Answer:
        """A connection under way, made in the host's network."""
        return {}, [self.place.dial(ask["address"], ask["port"]).detach()]

    def listen(self, ask: Message, _: list[int]) -> Answer:
        """A listening socket in the host's network."""
        family, address = self.place.stand(ask["address"], ask["port"])
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

    def connect_unix(self, ask: Message, _: list[int]) -> Answer:
        """A connection to a socket file, made by a child with the rights of a user."""
        login = self.place.find(ask["user"])
        if login is None:
            raise OSError(2, f"this host has no user {ask['user']}")
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.setblocking(False)
        status = spawn.try_as(login, self.place, lambda: link.connect(ask["path"]))
        if status:
            link.close()
            raise OSError(status, os.strerror(status))
        return {}, [link.detach()]

    def terminate(self, _: Message, __: list[int]) -> Answer:
        spawn.terminate(self.place)
        return {}, []

    def read(self, ask: Message, _: list[int]) -> Answer:
        """A file, opened as root."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        return {}, [os.open(self.place.file(ask["path"]), flags)]

    def write(self, ask: Message, files: list[int]) -> Answer:
        """A file with the content of the one that came along, as root."""
        path = self.place.file(ask["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        with open(files[0], "rb", closefd=False) as source, new.open("wb") as target:
            while part := source.read(1 << 16):
                target.write(part)
        new.chmod(ask["mode"])
        new.replace(path)
        return {}, []
