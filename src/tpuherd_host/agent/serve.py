"""The beginning and end of an agent: one for each user and host, taking up what it finds."""

import fcntl
import os
import select
import signal
import socket
import threading
from typing import Any

from tpuherd_host.agent import deeds, metadata, shelf, words
from tpuherd_host.agent.attach import FOLDER, PRELOAD, SOCKET, knock
from tpuherd_host.agent.daemon import Daemon
from tpuherd_host.agent.hello import hello
from tpuherd_host.agent.processes import boot_id
from tpuherd_host.agent.reports import listen
from tpuherd_host.agent.state import State
from tpuherd_host.agent.works import found

LOCK = "agent.lock"
LEAVING_TRIES = 500


def serve(version: str) -> int:
    """The life of an agent; at once over where another one lives."""
    home = os.path.expanduser("~")
    folder = os.path.join(home, FOLDER)
    os.makedirs(folder, 0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    os.chdir(folder)
    os.umask(0o022)
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not alone(lock):
        return ready()
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()} {version}\n".encode())
    environment = dict(os.environ)
    if PRELOAD in environment:
        environment["LD_PRELOAD"] = environment.pop(PRELOAD)
    daemon = Daemon(folder, home, version, environment)
    daemon.hire()
    take_up(daemon)
    threads(daemon)
    door = listening()
    daemon.files.watch(door.fileno(), False, lambda: daemon.doors.open(door))
    ready()
    daemon.live()
    os.unlink(SOCKET)
    return 0


def alone(lock: int) -> bool:
    """Whether no other agent lives; one that is just leaving is waited for."""
    for _ in range(LEAVING_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            line = knock()
        if line is not None:
            line.close()
            return False
        select.select([], [], [], 0.02)
    return False


def listening() -> socket.socket:
    """The socket at which controllers knock; only their own user may."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.path.exists(SOCKET):
        os.unlink(SOCKET)
    old = os.umask(0o177)
    door.bind(SOCKET)
    os.umask(old)
    door.listen(128)
    door.setblocking(False)
    return door


def ready() -> int:
    """Tell `attach`, which waits at file 3."""
    try:
        os.write(3, b"r")
        os.close(3)
    except OSError:
        pass  # started by hand
    return 0


def take_up(daemon: Daemon) -> None:
    """What an earlier agent left."""
    boot, now = boot_id(), daemon.now()
    works = {}
    for left in daemon.shelf.load():
        work, why = found(left, boot, shelf.same_boot(left), now)
        works[work.id] = deeds.take_up(daemon, work)
        if why:
            daemon.save(work, False)
    daemon.state = State(
        hello=hello(daemon.doors.version, daemon.house.home, boot),
        boot=boot,
        works=works,
        epochs=daemon.shelf.epochs(),
        stamps=daemon.shelf.stamps(),
    )


def threads(daemon: Daemon) -> None:
    """Those that wait for the disk and the metadata server; and what signals mean."""

    environment = daemon.house.environment

    def tell(key: str, value: str) -> None:
        daemon.post(words.News(key, value))

    def last_word() -> None:
        metadata.look("preempted", metadata.address(environment), tell)
        daemon.leave()

    def leave(*_: Any) -> None:
        tell("shutdown", "TERM")
        threading.Thread(target=last_word, name="last word", daemon=True).start()

    for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    threading.stack_size(256 << 10)
    threading.Thread(target=daemon.syncing, name="syncing", daemon=True).start()
    metadata.begin(environment, tell)
    listen(daemon)
