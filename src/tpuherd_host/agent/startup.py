"""What an agent does before its loop: adopt earlier tasks, listen, watch for notices."""

import _thread
import os
import pwd
import signal
import socket
import subprocess
import sys
import zlib
from typing import Any, Callable, Dict, Mapping, Tuple

from tpuherd_host.agent import processes
from tpuherd_host.agent.attach import SOCKET
from tpuherd_host.agent.effects import effects, preemption_notice, task_store
from tpuherd_host.agent.effects.step_reports import listen_for_reports
from tpuherd_host.agent.event_loop import EventLoop
from tpuherd_host.agent.frames import PROTOCOL
from tpuherd_host.agent.metadata_requests import server_address
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.state import AgentState
from tpuherd_host.agent.state_machine.task_lifecycle import adopt_previous, orphan_task

#: `systemctl` asks the host's init: whether it shuts down, then what it does at the end of that.
#: The shell lets it outlive the SIGTERM of the shutdown.
QUESTION = """trap '' TERM
[ "$(systemctl is-system-running)" = stopping ] && echo stopping && exec systemctl list-jobs"""
ASK_INIT = ("sh", "-c", QUESTION)
ASK_INIT_S = 5.0


def live(loop: EventLoop, supervisor: Tuple[socket.socket, int], ready: Callable[[], None]) -> None:
    """Run the agent from start to end."""
    loop.use_supervisor(*supervisor)
    adopt_tasks(loop)
    start_background(loop)
    listener = open_listener()
    loop.files.watch_file(
        listener.fileno(), False, lambda: loop.connections.accept_client(listener)
    )
    ready()
    loop.run_loop()
    os.unlink(SOCKET)
    if loop.leaving:  # nothing runs: the shutdown need not wait for the supervisor
        os.kill(loop.supervisor_pid, signal.SIGKILL)


def open_listener() -> socket.socket:
    """Open the socket for controllers; only its own user may connect."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.path.exists(SOCKET):
        os.unlink(SOCKET)
    old = os.umask(0o177)
    listener.bind(SOCKET)
    os.umask(old)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def adopt_tasks(loop: EventLoop) -> None:
    """Continue the tasks that an earlier agent left."""
    boot, now = processes.boot_id(), loop.current_time()
    works = {}
    for left in loop.store.load():
        work, why = adopt_previous(left, boot, task_store.is_same_process(left), now)
        works[work.id] = effects.adopt_task(loop, work)
        if why:
            loop.save_task(work, False)
    for mark in processes.all_marks(loop.paths.folder) - set(works):
        lost = orphan_task(mark, boot, now)
        if lost is not None:
            works[mark] = lost
    loop.state = AgentState(
        hello=make_hello(loop.connections.version, loop.paths.home, boot),
        boot=boot,
        works=works,
        epochs=loop.store.load_epochs(),
        stamps=loop.store.list_stamps(),
    )


def start_background(loop: EventLoop) -> None:
    """Start the watchers of the metadata server, and handle signals.

    A SIGTERM may be anybody's `kill`: it counts only while the host shuts down, as an agent that
    starts in that time finds out by itself.
    """

    where = server_address(loop.paths.environment)

    def tell(key: str, value: str) -> None:
        loop.post_event(messages.HostNotice(key, value))

    def report_shutdown(leaves: bool) -> None:
        how = ask_shutdown(loop.paths.environment)
        if how:
            tell("shutdown", how)
            preemption_notice.report_current("preempted", where, tell)
            if leaves:
                loop.start_leaving(returns=how == "REBOOT")

    def on_terminate(*_: Any) -> None:
        _thread.start_new_thread(report_shutdown, (True,))

    for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, on_terminate)
    _thread.stack_size(256 << 10)
    preemption_notice.start_watchers(where, tell)
    _thread.start_new_thread(report_shutdown, (False,))
    listen_for_reports(loop)


def ask_shutdown(environment: Mapping[str, str]) -> str:
    """Return how the host's init says that it goes down: TERM, REBOOT; without an answer ""."""
    try:
        told = subprocess.run(
            ASK_INIT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_INIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if not told.stdout.startswith(b"stopping"):
        return ""
    return "REBOOT" if b"reboot.target" in told.stdout else "TERM"


def make_hello(version: str, home: str, boot: str) -> Dict[str, Any]:
    """Return the greeting without epoch and time."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return {
        "protocol": PROTOCOL,
        "agent": version.partition(".")[2],  #: the hash in the file name
        "python": ".".join(map(str, sys.version_info[:3])),
        "host": socket.gethostname(),
        "boot": boot,
        "user": user,
        "home": home,
        "pid": os.getpid(),
        "zlib": zlib.ZLIB_VERSION,
    }
