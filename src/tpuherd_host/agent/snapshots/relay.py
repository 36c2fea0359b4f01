"""Pass a stream on to other hosts over the internal network, which pass it on further.

A receiver listens for a short while. Both ends prove that they know the transfer's token, which
came over SSH; the token itself is never sent. The data is not secret from the internal network,
and is verified against the snapshot's id, which came over SSH too.
"""

import contextlib
import hmac
import json
import os
import queue
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from tpuherd_host.agent.snapshots.stream import HEAD_MAX, NUMBER, BrokenStream

DIAL_S = 2.0  #: a host that does not accept a connection for this long can't be reached
STALL_S = 10.0  #: a child that neither answers nor accepts data for this long is dropped
WAIT_S = 90.0  #: how long a host listens for its parent
LOOK_S = 0.5
AHEAD = 32  #: blocks that a child may be behind
LISTENERS_MAX = 64
NONCE = 16
PROOF = 32

RelayPlan = Sequence[
    Sequence[Any]
]  #: for each child: address, port, token, and the plan of its children

LISTENERS: Dict[str, Tuple[socket.socket, threading.Timer]] = {}  #: by token, with the timeout


def token_proof(token: str, who: bytes, nonces: bytes) -> bytes:
    """Return a proof that we know the token."""
    return hmac.new(token.encode(), who + nonces, "sha256").digest()


def listen_for_parent(token: str, address: str) -> int:
    """Listen for a parent and return the port."""
    stop_listening(token)
    while len(LISTENERS) >= LISTENERS_MAX:
        stop_listening(next(iter(LISTENERS)))
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        try:
            listener.bind((address, 0))
        except OSError:
            listener.bind(("", 0))  # behind NAT a host does not know its address
        listener.listen(4)
    except OSError:
        listener.close()
        raise
    timer = threading.Timer(WAIT_S, stop_listening, (token,))
    timer.daemon = True
    timer.start()
    LISTENERS[token] = (listener, timer)
    port: int = listener.getsockname()[1]
    return port


def stop_listening(token: str) -> None:
    listener, timer = LISTENERS.pop(token, (None, None))
    if listener is not None and timer is not None:
        timer.cancel()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes a waiting thread
        listener.close()


def receive_exactly(line: socket.socket, many: int, until: Optional[float] = None) -> bytes:
    found = b""
    while len(found) < many:
        if until is not None:  # a stranger may send one byte after the other
            line.settimeout(max(0.01, until - time.monotonic()))
        piece = line.recv(many - len(found))
        if not piece:
            raise BrokenStream("the other host hung up")
        found += piece
    return found


@contextlib.contextmanager
def receive_stream(
    token: str, check: Callable[[], None]
) -> Iterator[Tuple[Callable[[], bytes], RelayPlan]]:
    """Return the parent's bytes and the plan of passing them on. Strangers are rejected; `check`
    raises when the caller is gone."""
    listener, timer = LISTENERS.get(token, (None, None))
    if listener is None or timer is None:
        raise BrokenStream("this transfer no longer has a listener")
    timer.cancel()
    try:
        line, plan = accept_parent(listener, token, check)
        with line:
            line.settimeout(WAIT_S)
            yield lambda: line.recv(1 << 16), plan
    finally:
        stop_listening(token)


def accept_parent(
    listener: socket.socket, token: str, check: Callable[[], None]
) -> Tuple[socket.socket, RelayPlan]:
    """Return the connection of a parent that knows the token, and its plan."""
    listener.settimeout(LOOK_S)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        check()
        with contextlib.suppress(socket.timeout):
            line, _ = listener.accept()
            plan = authenticate_parent(line, token)
            if plan is not None:
                return line, plan
    raise BrokenStream("the other host did not connect in time")


def authenticate_parent(line: socket.socket, token: str) -> "RelayPlan | None":
    try:
        until = time.monotonic() + DIAL_S
        nonces = receive_exactly(line, NONCE, until) + os.urandom(NONCE)
        line.sendall(nonces[NONCE:] + token_proof(token, b"child", nonces))
        proof = receive_exactly(line, PROOF, until)
        if hmac.compare_digest(proof, token_proof(token, b"parent", nonces)):
            line.settimeout(STALL_S)
            length = NUMBER.unpack(receive_exactly(line, NUMBER.size))[0]
            plan: RelayPlan = json.loads(receive_exactly(line, min(length, HEAD_MAX)))
            return plan
    except (OSError, BrokenStream):
        pass
    line.close()
    return None


def connect_to_child(address: str, port: int, token: str, below: RelayPlan) -> socket.socket:
    """Connect to a child that knows its token, and send it its plan.

    A host that is reached may answer later: it is asked over another line, and may be busy.
    """
    line = socket.create_connection((address, port), DIAL_S)
    try:
        line.settimeout(STALL_S)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        mine = os.urandom(NONCE)
        line.sendall(mine)
        nonces = mine + receive_exactly(line, NONCE)
        if not hmac.compare_digest(
            receive_exactly(line, PROOF), token_proof(token, b"child", nonces)
        ):
            raise BrokenStream("an unexpected host answered")
        plan = json.dumps(below).encode()
        line.sendall(token_proof(token, b"parent", nonces) + NUMBER.pack(len(plan)) + plan)
    except BaseException:
        line.close()
        raise
    return line


class Tee:
    """The connections to all children. A child that stalls delays the others only briefly."""

    def __init__(self, plan: RelayPlan) -> None:
        self.lost: List[str] = []
        self.branches: Dict[str, queue.Queue[bytes]] = {}
        self.threads: List[threading.Thread] = []
        for address, port, token, below in plan[:LISTENERS_MAX]:
            branch: queue.Queue[bytes] = queue.Queue(AHEAD)
            self.branches[token] = branch
            child = (address, port, token, below)
            thread = threading.Thread(target=self._send_blocks, args=(child, branch), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _send_blocks(
        self, child: Tuple[str, int, str, RelayPlan], branch: "queue.Queue[bytes]"
    ) -> None:
        try:
            with connect_to_child(*child) as line:
                while True:
                    block = branch.get()
                    if not block:
                        break
                    line.sendall(block)
        except (OSError, BrokenStream):
            self._drop_child(child[2])

    def _drop_child(self, token: str) -> None:
        branch = self.branches.pop(token, None)
        if branch is not None:
            self.lost.append(token)
            with contextlib.suppress(queue.Empty):
                while True:  # wakes a writer that waits for room
                    branch.get_nowait()

    def pass_through(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the blocks and send them to all children."""
        for block in blocks:
            self.put(block)
            yield block

    def put(self, block: bytes) -> None:
        for token, branch in list(self.branches.items()):
            try:
                branch.put(block, timeout=STALL_S)
            except queue.Full:
                self._drop_child(token)

    def close(self) -> List[str]:
        """End the stream and return the tokens of children that did not get all of it."""
        self.put(b"")
        for thread in self.threads:
            thread.join(2 * STALL_S)
        return sorted(self.lost)
