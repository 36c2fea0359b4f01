"""Verbs that block: each call runs in its own thread and communicates through a ThreadedCall."""

import _thread
import threading
from collections import deque
from typing import Any, Callable, Deque, Mapping, NamedTuple, Optional, Tuple

from tpuherd_host.agent.frames import DATA_MAX, WINDOW
from tpuherd_host.agent.state_machine.messages import (
    Event,
    ThreadAnswered,
    ThreadEvent,
    ThreadRead,
    ThreadSent,
)
from tpuherd_host.agent.state_machine.state import AgentState
from tpuherd_host.agent.state_machine.transition import CallRefused


class CallAbandoned(Exception):
    """The caller is gone: stop working on the call."""


class AgentPaths(NamedTuple):
    """What a threaded verb may use of the agent."""

    folder: str  #: ~/.tpuherd
    home: str
    environment: Mapping[str, str]  #: the login's, as commands have it
    state: Callable[[], AgentState]
    post: Callable[[Event], None]


class ThreadedCall:
    """One call of a threaded verb. `read` and `write` block, and raise CallAbandoned."""

    def __init__(
        self, paths: AgentPaths, content: Mapping[str, Any], connection: int, call: int
    ) -> None:
        self.paths = paths
        self.content = content  #: the JSON of the CALL
        self.connection = connection
        self.call = call
        self.news = threading.Condition()
        self.pieces: Deque[Tuple[int, Optional[bytes]]] = deque()
        self.credit = WINDOW
        self.cut = False

    # ---- used by the verb ------------------------------------------------------------------------

    def read(self, timeout_s: Optional[float] = None) -> Optional[Tuple[int, Optional[bytes]]]:
        """Return the next (port, piece); (port, None) at a port's end; None after the timeout."""
        with self.news:
            self.news.wait_for(lambda: self.pieces or self.cut, timeout_s)
            if self.cut:
                raise CallAbandoned
            if not self.pieces:
                return None
            port, piece = self.pieces.popleft()
        if piece:
            self.paths.post(ThreadRead(self.connection, self.call, len(piece)))
        return port, piece

    def write(self, port: int, text: bytes) -> None:
        """Send bytes; wait while the caller gives no credit."""
        view = memoryview(text)
        while view:
            with self.news:
                self.news.wait_for(lambda: self.credit > 0 or self.cut)
                if self.cut:
                    raise CallAbandoned
                many = min(len(view), self.credit, DATA_MAX - 1)
                self.credit -= many
            piece = bytes(view[:many])
            self.paths.post(ThreadSent(self.connection, self.call, port, piece))
            view = view[many:]

    def send_eof(self, port: int) -> None:
        self.paths.post(ThreadSent(self.connection, self.call, port, b"", last=True))

    def send_event(self, event: Mapping[str, Any]) -> None:
        """Send an EVENT, which has a key "event", to all connections."""
        self.paths.post(ThreadEvent(event))

    def raise_if_cut(self) -> None:
        """Raise CallAbandoned if the caller is gone."""
        if self.cut:
            raise CallAbandoned

    # ---- used by the event loop ------------------------------------------------------------------

    def add_piece(self, port: int, piece: Optional[bytes]) -> None:
        with self.news:
            self.pieces.append((port, piece))
            self.news.notify()

    def add_credit(self, many: int) -> None:
        with self.news:
            self.credit += many
            self.news.notify()

    def cancel(self) -> None:
        """Mark the call as abandoned."""
        with self.news:
            self.cut = True
            self.news.notify()


ThreadedMethod = Callable[[ThreadedCall], Mapping[str, Any]]


def start_thread(method: ThreadedMethod, call: ThreadedCall) -> None:
    """Run the method in a detached thread."""
    try:
        _thread.start_new_thread(run_call, (method, call))
    except RuntimeError:
        answer = {"sentence": "the user's processes leave no room for another thread on this host"}
        call.paths.post(ThreadAnswered(call.connection, call.call, answer, "busy"))


def run_call(method: ThreadedMethod, call: ThreadedCall) -> None:
    """Answer the call, whatever happens in the method."""
    name = call.content.get("verb")
    sentence = f"{name} failed; see ~/.tpuherd/agent.log on the host"
    error: str = "broken"
    answer: Mapping[str, Any] = {"sentence": sentence}
    try:
        error, answer = "", method(call)
    except CallAbandoned:
        error = "cancelled"
    except CallRefused as refused:
        error, answer = refused.word, {"sentence": refused.sentence}
    except (OSError, ValueError, TypeError, LookupError, RuntimeError, ImportError) as why:
        error, answer = "broken", {"sentence": f"{type(why).__name__}: {why}"}
    finally:
        call.paths.post(ThreadAnswered(call.connection, call.call, answer, error))
