"""The agent's loop: wait for events, decide by `reduce_event`, carry out the effects."""

import os
import signal
import socket
from typing import Optional, Tuple

from tpuherd_host.agent.effects import effects, process_supervisor
from tpuherd_host.agent.effects.runtime import AgentRuntime
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.reducer import next_wake_time, reduce_event
from tpuherd_host.agent.state_machine.rpc_methods import PURE
from tpuherd_host.agent.state_machine.state import AgentState
from tpuherd_host.agent.threaded_methods import THREADED


class EventLoop(AgentRuntime):
    """Runs until another agent takes over or the host goes down."""

    def run_loop(self) -> None:
        while not self.connections.replaced:
            self.files.wait(self.sleep_limit())
            leaving = self.leaving
            self.take_posted()  # tasks posted before `leaving` was read are handled below
            self.run_timers()
            self.process_events()
            if leaving and not self.is_held():
                return

    def is_held(self) -> bool:
        """Whether the host's end must wait for a task, or for a controller that fetches files."""
        if any(work.is_live for work in self.state.works.values()):
            return True
        return bool(self.connections.lines) and self.current_time() < self.hold_until

    def due_time(self) -> Optional[float]:
        """Return when the next timer event is due; cached until the state changes."""
        state, counted = self.state, self.counted
        if timing(state) != timing(counted) or state.works is not counted.works:
            self.wake_at = next_wake_time(state)
        self.counted = state
        return self.wake_at

    def sleep_limit(self) -> Optional[float]:
        now = self.current_time()
        times = [at for at in (self.due_time(), self.sync_at, self.save_at) if at is not None]
        times += [self.hold_until] if self.leaving and self.hold_until > now else []
        return max(0.0, min(times) - now) if times else None

    def run_timers(self) -> None:
        now = self.current_time()
        due = self.due_time()
        if due is not None and due <= now:
            self.add_event(messages.TimerFired())
        if self.sync_at is not None and self.sync_at <= now:
            self.sync_at = None
            self.sync_logs()
        if self.save_at is not None and self.save_at <= now:
            self.save_at = None
            for work in list(self.store.unsaved.values()):
                self.save_task(work, False)

    def process_events(self) -> None:
        """Decide on all queued events and carry out their effects."""
        while self.queue or self.grown or self.connections.flushing:
            for work in list(self.grown):
                self.queue_log_growth(work)
            self.grown.clear()
            while self.queue:
                event = self.queue.popleft()
                self.state, todo = reduce_event(
                    self.state, event, self.current_time(), PURE, THREADED
                )
                for effect in todo:
                    effects.EFFECT_HANDLERS[type(effect)](self, effect)
            self.connections.flush_all()

    # ---- the supervisor --------------------------------------------------------------------------

    def use_supervisor(self, line: socket.socket, pid: int) -> None:
        self.supervisor, self.supervisor_pid = line, pid
        self.supervisor_buffer.clear()
        self.files.watch_file(line.fileno(), False, self.read_supervisor)

    def read_supervisor(self) -> None:
        """Handle the supervisor's messages; replace it if it died."""
        assert self.supervisor is not None
        try:
            piece = self.supervisor.recv(1 << 16)
        except OSError:
            piece = b""
        self.supervisor_buffer += piece
        for message in process_supervisor.take_messages(self.supervisor_buffer):
            effects.handle_supervisor_message(self, message)
        if not piece:
            self.files.unwatch_file(self.supervisor.fileno())
            self.supervisor.close()
            os.kill(self.supervisor_pid, signal.SIGKILL)
            os.waitpid(self.supervisor_pid, 0)
            effects.handle_supervisor_death(self)
            self.use_supervisor(*process_supervisor.fork_supervisor(self.paths.environment))


def timing(state: AgentState) -> Tuple[float, float, bool]:
    """Return what the next timer event depends on, besides the tasks."""
    return state.beat_at, state.sampled_at, state.has_engine
