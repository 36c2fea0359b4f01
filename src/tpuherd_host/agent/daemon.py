"""The agent as it runs: waits for what happens, asks the judgement, and does what follows."""

import _thread
import os
import signal
import socket
import time
from collections import deque
from typing import Deque, Dict, List, Optional, Set, Tuple

from tpuherd_host.agent import deeds, flows, nurse, words
from tpuherd_host.agent.doors import ConnectionTable
from tpuherd_host.agent.files import Poller
from tpuherd_host.agent.outlet import TaskPipes
from tpuherd_host.agent.shelf import TaskStore
from tpuherd_host.agent.state import AgentState, Task
from tpuherd_host.agent.step import next_wake_time, reduce_event
from tpuherd_host.agent.threaded_methods import THREADED
from tpuherd_host.agent.threads import AgentPaths, ThreadedCall
from tpuherd_host.agent.verbs import PURE

SYNC_S = 0.8  #: what a host wrote is on its disk after at most so long, and a moment
SAVE_S = 5.0  #: what a full disk refused is tried again so often


class Daemon:
    """Owns the loop, and all that it runs on."""

    def __init__(self, folder: str, home: str, version: str, environment: Dict[str, str]) -> None:
        self.files = Poller()
        self.shelf = TaskStore(folder)
        self.doors = ConnectionTable(version, self.files, self.add_event, lambda: self.state)
        self.house = AgentPaths(folder, home, environment, lambda: self.state, self.post_event)
        self.state = AgentState()
        self.counted = self.state
        self.wake_at: Optional[float] = None
        self.queue: Deque[words.Event] = deque()
        self.posted: Deque[words.Event] = deque()  #: by threads
        self.outlets: Dict[str, TaskPipes] = {}
        self.grown: Set[str] = set()
        self.later: Deque[str] = deque()  #: what is over, when all is said that is to be said
        self.heard_out: List[str] = []  #: the nurse may let go of their output
        self.talks: Dict[Tuple[int, int], ThreadedCall] = {}
        self.unseen: Dict[str, float] = {}  #: work whose process is gone: since when
        self.nurse: Optional[socket.socket] = None
        self.nurse_pid = 0
        self.nurse_rest = bytearray()
        self.leaving = False  #: the host goes down
        self.sync_at: Optional[float] = None
        self.save_at: Optional[float] = None
        self.syncing = False  #: a thread waits for the disk
        self.anchor = time.time() - time.monotonic()
        self.wake_in, self.wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.files.watch_file(self.wake_in, False, self.drain_wake_pipe)

    def current_time(self) -> float:
        """Seconds since 1970; a clock that is set meanwhile moves no deadline."""
        return self.anchor + time.monotonic()

    # ---- the loop --------------------------------------------------------------------------------

    def run_loop(self) -> None:
        """Until another agent takes over, or the host goes down."""
        while not self.doors.replaced:
            self.files.wait(self.sleep_limit())
            leaving = self.leaving
            self.take_posted()  # what was posted before that is judged and told below
            self.run_timers()
            self.process_events()
            if leaving and not any(work.is_live for work in self.state.works.values()):
                return

    def due_time(self) -> Optional[float]:
        """When the judgement wants to be woken; counted again only when something changed."""
        state, counted = self.state, self.counted
        if state.works is not counted.works or state.beat_at != counted.beat_at:
            self.wake_at = next_wake_time(state)
        self.counted = state
        return self.wake_at

    def sleep_limit(self) -> Optional[float]:
        """How long to sleep at most."""
        times = [at for at in (self.due_time(), self.sync_at, self.save_at) if at is not None]
        return max(0.0, min(times) - self.current_time()) if times else None

    def run_timers(self) -> None:
        """What is due."""
        now = self.current_time()
        due = self.due_time()
        if due is not None and due <= now:
            self.add_event(words.TimerFired())
        if self.sync_at is not None and self.sync_at <= now:
            self.sync_at = None
            self.sync_logs()
        if self.save_at is not None and self.save_at <= now:
            self.save_at = None
            for work in list(self.shelf.unsaved.values()):
                self.save_task(work, False)

    def add_event(self, happening: words.Event) -> None:
        """To be judged in this round."""
        self.queue.append(happening)

    def post_event(self, happening: words.Event) -> None:
        """The same, from another thread or a signal."""
        self.posted.append(happening)
        self.wake_up()

    def start_leaving(self) -> None:
        """Live no longer than the last work that lives."""
        self.leaving = True
        self.wake_up()

    def wake_up(self) -> None:
        """Sleep no longer."""
        try:
            os.write(self.wake_out, b".")
        except BlockingIOError:
            pass  # it is awake anyway

    def drain_wake_pipe(self) -> None:
        """By a thread or a signal."""
        os.read(self.wake_in, 1 << 12)

    def take_posted(self) -> None:
        """What was posted."""
        while self.posted:
            self.queue.append(self.posted.popleft())

    def process_events(self) -> None:
        """Everything that happened, and all that follows from it."""
        while self.queue or self.grown or self.doors.flushing:
            for work in list(self.grown):
                self.queue_log_growth(work)
            self.grown.clear()
            while self.queue:
                happening = self.queue.popleft()
                self.state, todo = reduce_event(
                    self.state, happening, self.current_time(), PURE, THREADED
                )
                for deed in todo:
                    deeds.DEEDS[type(deed)](self, deed)
            self.doors.flush_all()
        while self.later:
            flows.finish_task(self, self.later.popleft())

    # ---- work ------------------------------------------------------------------------------------

    def queue_log_growth(self, id: str) -> None:
        """A log has more. That is judged before anything by which its work might be over."""
        outlet, work = self.outlets.get(id), self.state.works.get(id)
        if outlet is not None and work is not None:
            log = outlet.log
            known = (work.first, work.length, work.lost_bytes)
            if known != (log.first_offset, log.length, log.lost_bytes):
                self.queue.appendleft(
                    words.LogGrew(id, log.first_offset, log.length, log.lost_bytes)
                )
            if self.sync_at is None and log.dirty:
                self.sync_at = self.current_time() + SYNC_S

    def sync_logs(self) -> None:
        """Have a thread wait until dirty logs are on the disk; later, if one waits already."""
        if self.syncing:
            self.sync_at = self.current_time() + SYNC_S
            return
        logs = [outlet.log.file_to_sync() for outlet in self.outlets.values()]
        files = [file for file in logs if file is not None]
        self.syncing = True
        try:
            _thread.start_new_thread(self.sync_files, (files,))
        except RuntimeError:  # the user's processes have left no room for one more thread
            self.sync_files(files)

    def sync_files(self, files: List[int]) -> None:
        """The life of that thread."""
        for file in files:
            try:
                os.fdatasync(file)
            except OSError:
                pass  # a full or broken disk shows itself at the next write
            os.close(file)
        self.syncing = False

    def save_task(self, work: Task, hard: bool) -> None:
        """Write down how a piece of work stands; again later where the disk is full."""
        if not self.shelf.save(work, hard) and self.save_at is None:
            self.save_at = self.current_time() + SAVE_S

    # ---- the nurse -------------------------------------------------------------------------------

    def use_supervisor(self, line: socket.socket, pid: int) -> None:
        """Work with this nurse."""
        self.nurse, self.nurse_pid = line, pid
        self.nurse_rest.clear()
        self.files.watch_file(line.fileno(), False, self.read_supervisor)

    def read_supervisor(self) -> None:
        """What became of processes."""
        assert self.nurse is not None
        try:
            piece = self.nurse.recv(1 << 16)
        except OSError:
            piece = b""
        self.nurse_rest += piece
        for told in nurse.take_messages(self.nurse_rest):
            deeds.handle_supervisor_message(self, told)
        if not piece:
            self.files.unwatch_file(self.nurse.fileno())
            self.nurse.close()
            os.kill(self.nurse_pid, signal.SIGKILL)
            os.waitpid(self.nurse_pid, 0)
            deeds.handle_supervisor_death(self)
            self.use_supervisor(*nurse.fork_supervisor(self.house.environment))
