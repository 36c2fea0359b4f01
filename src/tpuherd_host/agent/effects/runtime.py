"""The agent's resources: files, connections, processes and the queues of events.

Effects work on it; the event loop owns it.
"""

import _thread
import os
import socket
import time
from collections import deque
from typing import Deque, Dict, List, Optional, Set, Tuple

from tpuherd_host.agent.effects.connections import ConnectionTable
from tpuherd_host.agent.effects.poller import Poller
from tpuherd_host.agent.effects.task_pipes import TaskPipes
from tpuherd_host.agent.effects.task_store import TaskStore
from tpuherd_host.agent.host.host_sample import HostSampler
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.state import AgentState, Task
from tpuherd_host.agent.threaded_rpc import AgentPaths, ThreadedCall

SYNC_S = 0.8  #: logs are synced to the disk this often
SAVE_S = 5.0  #: records that did not fit on the disk are retried this often


class AgentRuntime:
    """Holds the agent's resources, and lets events in from any thread."""

    def __init__(self, folder: str, home: str, version: str, environment: Dict[str, str]) -> None:
        self.files = Poller()
        self.store = TaskStore(folder)
        self.connections = ConnectionTable(version, self.files, self.add_event, lambda: self.state)
        self.paths = AgentPaths(folder, home, environment, lambda: self.state, self.post_event)
        self.state = AgentState()
        self.counted = self.state
        self.wake_at: Optional[float] = None
        self.queue: Deque[messages.Event] = deque()
        self.posted: Deque[messages.Event] = deque()  #: by threads
        self.pipes_by_task: Dict[str, TaskPipes] = {}
        self.grown: Set[str] = set()
        self.outputs_done: List[str] = []  #: the supervisor may close their output
        self.threaded_calls: Dict[Tuple[int, int], ThreadedCall] = {}
        self.unseen: Dict[str, float] = {}  #: by task whose process is gone: since when
        self.supervisor: Optional[socket.socket] = None
        self.supervisor_pid = 0
        self.supervisor_buffer = bytearray()
        self.leaving = False  #: the host shuts down
        self.hold_until = 0.0  #: when it ends although files of an attempt may be fetched
        self.sync_at: Optional[float] = None
        self.save_at: Optional[float] = None
        self.syncing = False  #: a thread is syncing
        self.sampler = HostSampler(home)
        self.sampling = False  #: a thread is reading a sample
        self.anchor = time.time() - time.monotonic()
        self.wake_in, self.wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.files.watch_file(self.wake_in, False, self.drain_wake_pipe)

    def current_time(self) -> float:
        """Return seconds since 1970; changes of the system clock do not move deadlines."""
        return self.anchor + time.monotonic()

    # ---- events ----------------------------------------------------------------------------------

    def add_event(self, event: messages.Event) -> None:
        """Queue an event for this round."""
        self.queue.append(event)

    def post_event(self, event: messages.Event) -> None:
        """Queue an event from another thread or a signal handler."""
        self.posted.append(event)
        self.wake_up()

    def start_leaving(self, *, returns: bool) -> None:
        """End when the last live task ends. Files of an attempt that ends with the host may then be
        fetched, unless the host comes back with them."""
        now = self.current_time()
        works = () if returns else self.state.works.values()
        holds = [
            one.hold_s for one in works if one.is_live or (one.ended or 0.0) > now - one.hold_s
        ]
        self.hold_until = now + max(holds, default=0.0)
        self.leaving = True
        self.wake_up()

    def wake_up(self) -> None:
        try:
            os.write(self.wake_out, b".")
        except BlockingIOError:
            pass  # it is awake already

    def drain_wake_pipe(self) -> None:
        os.read(self.wake_in, 1 << 12)

    def take_posted(self) -> None:
        while self.posted:
            self.queue.append(self.posted.popleft())

    # ---- logs and records ------------------------------------------------------------------------

    def queue_log_growth(self, id: str) -> None:
        """Queue a log's growth before any event that may end its task."""
        pipes, work = self.pipes_by_task.get(id), self.state.works.get(id)
        if pipes is not None and work is not None:
            log = pipes.log
            known = (work.first, work.length, work.lost_bytes)
            if known != (log.first_offset, log.length, log.lost_bytes):
                self.queue.appendleft(
                    messages.LogGrew(id, log.first_offset, log.length, log.lost_bytes)
                )
            if self.sync_at is None and log.dirty:
                self.sync_at = self.current_time() + SYNC_S

    def sync_logs(self) -> None:
        """Have a thread sync changed logs to the disk; later if one is syncing already."""
        if self.syncing:
            self.sync_at = self.current_time() + SYNC_S
            return
        logs = [pipes.log.file_to_sync() for pipes in self.pipes_by_task.values()]
        files = [file for file in logs if file is not None]
        self.syncing = True
        try:
            _thread.start_new_thread(self.sync_files, (files,))
        except RuntimeError:  # the user's processes leave no room for another thread
            self.sync_files(files)

    def sync_files(self, files: List[int]) -> None:
        for file in files:
            try:
                os.fdatasync(file)
            except OSError:
                pass  # a full or broken disk shows at the next write
            os.close(file)
        self.syncing = False

    def save_task(self, work: Task, hard: bool) -> None:
        """Write the task's record; try again later if the disk is full."""
        if not self.store.save(work, hard) and self.save_at is None:
            self.save_at = self.current_time() + SAVE_S
