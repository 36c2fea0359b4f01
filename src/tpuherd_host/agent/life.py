"""The life of an agent: it takes up what it finds, listens, and ends when another one comes."""

import _thread
import os
import signal
import socket
from typing import Any, Callable, Tuple

from tpuherd_host.agent import deeds, metadata, processes, shelf, words
from tpuherd_host.agent.attach import SOCKET
from tpuherd_host.agent.daemon import Daemon
from tpuherd_host.agent.hello import make_hello
from tpuherd_host.agent.reports import listen_for_reports
from tpuherd_host.agent.state import AgentState
from tpuherd_host.agent.works import adopt_previous, orphan_task


def live(daemon: Daemon, nurse: Tuple[socket.socket, int], ready: Callable[[], None]) -> None:
    """From the first to the last."""
    daemon.use_supervisor(*nurse)
    adopt_tasks(daemon)
    start_background(daemon)
    door = open_listener()
    daemon.files.watch_file(door.fileno(), False, lambda: daemon.doors.accept_client(door))
    ready()
    daemon.run_loop()
    os.unlink(SOCKET)


def open_listener() -> socket.socket:
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


def adopt_tasks(daemon: Daemon) -> None:
    """What an earlier agent left."""
    boot, now = processes.boot_id(), daemon.current_time()
    works = {}
    for left in daemon.shelf.load():
        work, why = adopt_previous(left, boot, shelf.is_same_process(left), now)
        works[work.id] = deeds.adopt_task(daemon, work)
        if why:
            daemon.save_task(work, False)
    for mark in processes.all_marks(daemon.house.folder) - set(works):
        lost = orphan_task(mark, boot, now)
        if lost is not None:
            works[mark] = lost
    daemon.state = AgentState(
        hello=make_hello(daemon.doors.version, daemon.house.home, boot),
        boot=boot,
        works=works,
        epochs=daemon.shelf.load_epochs(),
        stamps=daemon.shelf.list_stamps(),
    )


def start_background(daemon: Daemon) -> None:
    """Those that wait for the metadata server; and what signals mean."""

    where = metadata.server_address(daemon.house.environment)

    def tell(key: str, value: str) -> None:
        daemon.post_event(words.HostNotice(key, value))

    def last_word() -> None:
        metadata.report_current("preempted", where, tell)
        daemon.start_leaving()

    def leave(*_: Any) -> None:
        tell("shutdown", "TERM")
        _thread.start_new_thread(last_word, ())

    for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    _thread.stack_size(256 << 10)
    metadata.start_watchers(where, tell)
    listen_for_reports(daemon)
