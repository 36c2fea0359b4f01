"""The parent process of all hosts of a world: starts and ends them and reports their end.

It starts with an empty environment, loads only the standard library (and asyncssh, where the
machine has no sftp-server) and has one thread: hosts are forks that share its memory, so they can't
see what it does not know.
"""

import encodings.ascii
import encodings.idna  # noqa: F401  # nothing can be imported any more in a host
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable

from tpuherd_sim.hosts import messages, namespace_backend, process_backend, sftp_server, syscalls
from tpuherd_sim.hosts.messages import Message


class Zygote:
    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.backend: namespace_backend.NamespaceBackend | process_backend.ProcessBackend | None = (
            None
        )
        self.hosts: dict[int, int] = {}  #: number → pid
        self.peers: dict[str, list[list[str]]] = {}  #: by segment: name and address of its hosts
        self.awake, wakeup = os.pipe()
        os.set_blocking(self.awake, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.verbs: dict[str, Callable[[Message, list[int]], Message]] = {
            "prepare": self.prepare_backend,
            "peers": self.keep_peers,
            "boot": self.boot_host,
            "kill": self.kill_host,
            "hang": self.hang_host,
            "network": self.set_network,
            "disk": self.set_disk_full,
            "drop": self.delete_disk,
        }

    def serve_requests(self) -> None:
        """Handle orders until the controller disconnects."""
        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        poll.register(self.awake, select.POLLIN)
        while True:
            ready = {file for file, _ in poll.poll()}
            if self.awake in ready:
                self.reap_hosts()
            if self.link.fileno() in ready:
                order, files = messages.receive_message(self.link)
                if order is None:
                    return
                self.answer_request(order, files)

    def answer_request(self, order: Message, files: list[int]) -> None:
        """Carry out one order and report the result."""
        try:
            reply = self.verbs[order["verb"]](order, files)
        except OSError as error:
            reply = {"errno": error.errno or 5, "why": error.strerror or str(error)}
        finally:
            messages.close_all(files)
        messages.send_message(self.link, {"id": order["id"], **reply})

    def reap_hosts(self) -> None:
        """Reap and report the hosts that ended."""
        try:
            while os.read(self.awake, 4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for number, host in list(self.hosts.items()):
                if host == pid:
                    del self.hosts[number]
                    self.get_backend().clean_up_host(number, set(self.hosts.values()))
                    messages.send_message(
                        self.link, {"event": "dead", "host": number, "status": status}
                    )

    def get_backend(self) -> namespace_backend.NamespaceBackend | process_backend.ProcessBackend:
        """Return the backend, once prepared."""
        if self.backend is None:
            raise OSError(22, "not prepared yet")
        return self.backend

    def prepare_backend(self, order: Message, _: list[int]) -> Message:
        if order["libraries"]:
            sftp_server.load_library(order["libraries"])
        shared = order["mode"] == "processes"
        self.backend = (
            process_backend.ProcessBackend(order)
            if shared
            else namespace_backend.NamespaceBackend(order)
        )
        gc.collect()
        gc.freeze()
        return {}

    def keep_peers(self, order: Message, _: list[int]) -> Message:
        """Keep who is in a segment, for its hosts that will boot."""
        self.peers[order["segment"]] = order["peers"]
        return {}

    def boot_host(self, order: Message, files: list[int]) -> Message:
        """Start a host; it reports on the received socket when it is up."""
        number = order["number"]
        plan = {**order["plan"], "peers": self.peers.get(order["plan"]["segment"], [])}
        pid = self.get_backend().start_host(number, plan, files[0])
        self.hosts[number] = pid
        return {"pid": pid}

    def host_pid(self, order: Message) -> int:
        try:
            return self.hosts[order["number"]]
        except KeyError:
            raise ProcessLookupError(3, "that host is off") from None

    def kill_host(self, order: Message, _: list[int]) -> Message:
        """Power off: all processes of the host die at once."""
        self.get_backend().kill_host(self.host_pid(order))
        return {}

    def hang_host(self, order: Message, _: list[int]) -> Message:
        """Stop all processes of a host, or continue them."""
        number = signal.SIGSTOP if order["hung"] else signal.SIGCONT
        syscalls.signal_family(self.host_pid(order), number)
        return {}

    def set_network(self, order: Message, _: list[int]) -> Message:
        self.get_backend().set_network(order["number"], self.host_pid(order), order["network"])
        return {}

    def set_disk_full(self, order: Message, _: list[int]) -> Message:
        self.get_backend().set_disk_full(order["number"], full=order["full"])
        return {}

    def delete_disk(self, order: Message, _: list[int]) -> Message:
        """Delete the disk of a removed host, and forget a segment without hosts."""
        self.peers.pop(order["forget"], None)
        self.get_backend().delete_disk(order["number"])
        return {}


def main() -> None:
    """Serve on standard input, which is the controller's socket."""
    syscalls.die_with_parent()
    if os.getppid() != int(sys.argv[1]):
        return  # the parent died before it could be watched
    link = socket.socket(fileno=os.dup(0))
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)
    syscalls.set_process_name("tpuherd-hosts")
    zygote = Zygote(link)
    try:
        zygote.serve_requests()
    finally:
        if zygote.backend is not None:
            zygote.backend.close()
