"""The life of an agent: it takes up what it finds, listens, and ends when another one comes."""

import _thread
import os

from tpuherd_host.agent import deeds, metadata, processes, shelf, words
from tpuherd_host.agent.attach import SOCKET
from tpuherd_host.agent.daemon import Daemon
from tpuherd_host.agent.hello import hello
from tpuherd_host.agent.reports import listen
from tpuherd_host.agent.state import State
from tpuherd_host.agent.thin import Any, Callable, Tuple, signal, socket
from tpuherd_host.agent.works import found, orphan


def live(daemon: Daemon, nurse: Tuple[socket.socket, int], ready: Callable[[], None]) -> None:
    """From the first to the last."""
    daemon.take_on(*nurse)
    take_up(daemon)
    threads(daemon)
    door = listening()
    daemon.files.watch(door.fileno(), False, lambda: daemon.doors.open(door))
    ready()
    daemon.live()
    os.unlink(SOCKET)


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


def take_up(daemon: Daemon) -> None:
    """What an earlier agent left."""
    boot, now = processes.boot_id(), daemon.now()
    works = {}
    for left in daemon.shelf.load():
        work, why = found(left, boot, shelf.same_boot(left), now)
        works[work.id] = deeds.take_up(daemon, work)
        if why:
            daemon.save(work, False)
    for mark in processes.all_marks(daemon.house.folder) - set(works):
        lost = orphan(mark, boot, now)
        if lost is not None:
            works[mark] = lost
    daemon.state = State(
        hello=hello(daemon.doors.version, daemon.house.home, boot),
        boot=boot,
        works=works,
        epochs=daemon.shelf.epochs(),
        stamps=daemon.shelf.stamps(),
    )


def threads(daemon: Daemon) -> None:
    """Those that wait for the metadata server; and what signals mean."""

    where = metadata.address(daemon.house.environment)

    def tell(key: str, value: str) -> None:
        daemon.post(words.News(key, value))

    def last_word() -> None:
        metadata.look("preempted", where, tell)
        daemon.leave()

    def leave(*_: Any) -> None:
        tell("shutdown", "TERM")
        _thread.start_new_thread(last_word, ())

    for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    _thread.stack_size(256 << 10)
    metadata.begin(where, tell)
    listen(daemon)
