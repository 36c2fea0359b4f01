"""Verbs that block: each call of one runs in a thread of its own and speaks through a Talk."""

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
    """Nobody waits for the answer any more: leave."""


class AgentPaths(NamedTuple):
    """What a threaded verb may know of the agent."""

    folder: str  #: ~/.tpuherd
    home: str
    environment: Mapping[str, str]  #: the login's, as commands have it
    state: Callable[[], AgentState]
    post: Callable[[Event], None]


class ThreadedCall:
    """One call of a threaded verb. Reading and writing wait, and raise Cut when nobody is there."""

    def __init__(
        self, house: AgentPaths, content: Mapping[str, Any], connection: int, call: int
    ) -> None:
        self.house = house
        self.content = content  #: the JSON of the CALL
        self.connection = connection
        self.call = call
        self.news = threading.Condition()
        self.pieces: Deque[Tuple[int, Optional[bytes]]] = deque()
        self.credit = WINDOW
        self.cut = False

    # ---- what the verb does ----------------------------------------------------------------------

    def read(self, timeout_s: Optional[float] = None) -> Optional[Tuple[int, Optional[bytes]]]:
        """The next (port, piece); (port, None) when no more comes on it; None: not in this time."""
        with self.news:
            self.news.wait_for(lambda: self.pieces or self.cut, timeout_s)
            if self.cut:
                raise CallAbandoned
            if not self.pieces:
                return None
            port, piece = self.pieces.popleft()
        if piece:
            self.house.post(ThreadRead(self.connection, self.call, len(piece)))
        return port, piece

    def write(self, port: int, text: bytes) -> None:
        """Send bytes, however many; waits while the other side has enough."""
        view = memoryview(text)
        while view:
            with self.news:
                self.news.wait_for(lambda: self.credit > 0 or self.cut)
                if self.cut:
                    raise CallAbandoned
                many = min(len(view), self.credit, DATA_MAX - 1)
                self.credit -= many
            piece = bytes(view[:many])
            self.house.post(ThreadSent(self.connection, self.call, port, piece))
            view = view[many:]

    def send_eof(self, port: int) -> None:
        """No more on this port."""
        self.house.post(ThreadSent(self.connection, self.call, port, b"", last=True))

    def send_event(self, event: Mapping[str, Any]) -> None:
        """An EVENT to all who are attached; it has a key "event"."""
        self.house.post(ThreadEvent(event))

    def raise_if_cut(self) -> None:
        """Raise Cut where nobody waits any more."""
        if self.cut:
            raise CallAbandoned

    # ---- what the daemon does --------------------------------------------------------------------

    def add_piece(self, port: int, piece: Optional[bytes]) -> None:
        """Something came."""
        with self.news:
            self.pieces.append((port, piece))
            self.news.notify()

    def add_credit(self, many: int) -> None:
        """More may be sent."""
        with self.news:
            self.credit += many
            self.news.notify()

    def cancel(self) -> None:
        """Nobody waits."""
        with self.news:
            self.cut = True
            self.news.notify()


ThreadedMethod = Callable[[ThreadedCall], Mapping[str, Any]]


def start_thread(method: ThreadedMethod, talk: ThreadedCall) -> None:
    """Run the method in a thread that nobody waits for."""
    try:
        _thread.start_new_thread(run_call, (method, talk))
    except RuntimeError:
        answer = {"sentence": "the user's processes leave no room here for one more thread"}
        talk.house.post(ThreadAnswered(talk.connection, talk.call, answer, "busy"))


def run_call(method: ThreadedMethod, talk: ThreadedCall) -> None:
    """Answer the call, whatever happens in the method."""
    name = talk.content.get("verb")
    sentence = f"{name} broke off; ~/.tpuherd/agent.log on the host says where"
    error: str = "broken"
    answer: Mapping[str, Any] = {"sentence": sentence}
    try:
        error, answer = "", method(talk)
    except CallAbandoned:
        error = "cancelled"
    except CallRefused as refused:
        error, answer = refused.word, {"sentence": refused.sentence}
    except (OSError, ValueError, TypeError, LookupError, RuntimeError, ImportError) as why:
        error, answer = "broken", {"sentence": f"{type(why).__name__}: {why}"}
    finally:
        talk.house.post(ThreadAnswered(talk.connection, talk.call, answer, error))
