"""Process 1 of a host: builds its view, then starts what is asked for and reports what ended."""

import os
import resource
import select
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tpuherd.sim.hosts import accounts, root, sessions, system, wire
from tpuherd.sim.hosts.wire import Message

PROCESSES_MAX, FILES_MAX = 8192, 1 << 16
REBOOT, OFF = (signal.SIGRTMIN + 5,), (signal.SIGRTMIN + 3, signal.SIGRTMIN + 4)
FAREWELL_MS = 500  #: how long processes have between the TERM and the end

Answer = tuple[Message, list[int]]


def run(link: socket.socket, ready: int, plan: Message) -> None:
    """The whole life of it. Never returns while the host lives."""
    system.die_with_parent()
    if not os.read(ready, 1):
        return
    os.close(ready)
    try:
        if not plan["single_id"]:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            system.be_dumpable()
            system.die_with_parent()
        socket.sethostname(plan["name"])
        limit(resource.RLIMIT_NPROC, PROCESSES_MAX)
        limit(resource.RLIMIT_NOFILE, FILES_MAX)
        root.build(plan)
        system.call_ourselves("/sbin/init")
    except (OSError, KeyError, ValueError, TypeError) as error:
        wire.send(link, {"event": "failed", "why": (str(error) or repr(error))[:500]})
        return
    Init(link, single_id=plan["single_id"]).serve()


def limit(kind: int, most: int) -> None:
    """Lower a limit for all that the host will start."""
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


class Init:
    """The loop of process 1."""

    def __init__(self, link: socket.socket, *, single_id: bool) -> None:
        self.link = link
        self.single_id = single_id
        self.ending: int | None = None
        self.awake, wakeup = os.pipe()
        os.set_blocking(self.awake, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        for numbers, how in ((REBOOT, system.RB_AUTOBOOT), (OFF, system.RB_POWER_OFF)):
            for number in numbers:
                signal.signal(number, self.plan_end(how))
        self.verbs: dict[str, Callable[[Message, list[int]], Answer]] = {
            "spawn": self.spawn,
            "terminal": self.terminal,
            "connect": connect,
            "listen": listen,
            "signal": self.signal,
            "account": self.account,
            "holders": self.holders,
            "write": write,
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
        wire.send(self.link, {"event": "up"})
        while True:
            ready = {file for file, _ in poll.poll()}
            if self.awake in ready:
                self.drain()
                self.reap()
                if self.ending is not None:
                    self.end(self.ending)
            if self.link.fileno() in ready:
                ask, files = wire.receive(self.link)
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

    def reap(self) -> None:
        """Bury the dead and report them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            wire.send(self.link, {"event": "exit", "pid": pid, "status": status})

    def end(self, how: int) -> None:
        """TERM to everything, a moment, and off."""
        try:
            os.kill(-1, signal.SIGTERM)
            waiting = select.poll()
            waiting.register(self.awake, select.POLLIN)
            while waiting.poll(FAREWELL_MS):
                self.drain()
                self.reap()
        except ProcessLookupError:
            pass
        system.reboot(how)

    def answer(self, ask: Message, files: list[int]) -> None:
        """Do what is asked; what goes wrong is an answer too."""
        try:
            reply, sent = self.verbs[ask["verb"]](ask, files)
        except (OSError, ValueError, KeyError, TypeError) as error:
            number = getattr(error, "errno", None) or 22
            why = getattr(error, "strerror", None) or str(error)
            reply, sent = {"errno": number, "why": why[:500]}, []
        finally:
            wire.close_all(files)
        wire.send(self.link, {"id": ask["id"], **reply}, sent)
        wire.close_all(sent)

    def spawn(self, ask: Message, files: list[int]) -> Answer:
        start = sessions.read_start(ask, files, single_id=self.single_id)
        return {"pid": sessions.spawn(start)}, []

    def terminal(self, ask: Message, files: list[int]) -> Answer:
        start = sessions.read_start(ask, files, single_id=self.single_id)
        master, slave, name = sessions.open_terminal(
            start.login, ask["size"], single_id=self.single_id
        )
        try:
            env = {**start.env, "SSH_TTY": name}
            start = replace(start, files=[slave], terminal=True, env=env)
            return {"pid": sessions.spawn(start)}, [master]
        finally:
            os.close(slave)

    def signal(self, ask: Message, _: list[int]) -> Answer:
        sessions.signal_all(ask["pid"], ask["number"], whole_session=ask["whole_session"])
        return {}, []

    def account(self, ask: Message, _: list[int]) -> Answer:
        login = accounts.ensure(ask["name"], single_id=self.single_id)
        return {"uid": login.uid, "gid": login.gid, "home": login.home}, []

    def holders(self, _: Message, __: list[int]) -> Answer:
        return {"holders": sessions.holders()}, []


def connect(ask: Message, _: list[int]) -> Answer:
    """A connection under way, made in the host's network."""
    family, address = place(ask["address"], ask["port"])
    link = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        link.connect(address)
    except BlockingIOError:
        pass
    except OSError:
        link.close()
        raise
    return {}, [link.detach()]


def listen(ask: Message, _: list[int]) -> Answer:
    """A listening socket in the host's network."""
    family, address = place(ask["address"] or "0.0.0.0", ask["port"])  # noqa: S104
    link = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        link.bind(address)
        link.listen(128)
    except OSError:
        link.close()
        raise
    return {}, [link.detach()]


def place(address: str, port: int) -> tuple[int, str | tuple[str, int]]:
    """What to give to a socket for an address, a name of /etc/hosts or the path of a socket file."""
    if address.startswith("/"):
        return socket.AF_UNIX, address
    address = named(address)
    return (socket.AF_INET6 if ":" in address else socket.AF_INET), (address, port)


def named(name: str) -> str:
    """The address of a host by its own /etc/hosts; an address is its own."""
    if name == "*":
        return "0.0.0.0"  # noqa: S104
    if ":" in name or name.replace(".", "").isdigit():
        return name
    for line in Path("/etc/hosts").read_text(errors="replace").splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if name.lower() in names:
            return address
    raise OSError(22, f"this host knows no {name}")


def write(ask: Message, files: list[int]) -> Answer:
    """A file with the content of the one that came along, as root."""
    path = Path(ask["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with open(files[0], "rb", closefd=False) as source, new.open("wb") as target:
        while part := source.read(1 << 16):
            target.write(part)
    new.chmod(ask["mode"])
    new.replace(path)
    return {}, []
