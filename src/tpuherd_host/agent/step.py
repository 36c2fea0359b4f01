"""The agent's whole judgement: a state and what happened give the next state and what to do."""

from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Type

from tpuherd_host.agent import attempts, calls, works
from tpuherd_host.agent.calls import MethodHandler
from tpuherd_host.agent.state import AgentState
from tpuherd_host.agent.turn import Transition
from tpuherd_host.agent.words import (
    AptHolderFound,
    BytesFlushed,
    ChipUsersFound,
    ConnectionClosed,
    ConnectionOpened,
    Effect,
    Event,
    FrameReceived,
    HostNotice,
    InputConsumed,
    LogGrew,
    LogTailRead,
    OutputsClosed,
    ProcessEnded,
    ProcessesCounted,
    ProcessStarted,
    SpawnFailed,
    StepReported,
    TasksCleaned,
    ThreadAnswered,
    ThreadEvent,
    ThreadRead,
    ThreadSent,
    TimerFired,
)

BEAT_S = 10.0


def reduce_event(
    state: AgentState,
    happening: Event,
    now: float,
    pure: Mapping[str, MethodHandler],
    threaded: Mapping[str, Any],
) -> Tuple[AgentState, Tuple[Effect, ...]]:
    """What follows. `pure` and `threaded` are the tables of verbs."""
    turn = Transition(state, now)
    if isinstance(happening, FrameReceived):
        calls.handle_frame(turn, happening, pure, threaded)
    elif isinstance(happening, (ProcessStarted, SpawnFailed)) and happening.work not in state.works:
        pass  # forgotten meanwhile
    else:
        RULES[type(happening)](turn, happening)
    return turn.state, tuple(turn.deeds)


def broadcast_event(turn: Transition, happening: ThreadEvent) -> None:
    """A threaded verb has something to say to all."""
    turn.send_event(happening.content)


def handle_notice(turn: Transition, happening: HostNotice) -> None:
    """The metadata server says something new."""
    attempts.apply_notice(turn, happening.key, happening.value)


def handle_timer(turn: Transition, happening: TimerFired) -> None:
    """Look at all that is due."""
    for work in list(turn.state.works.values()):
        if work.is_live and work.lease_until is not None and turn.now >= work.lease_until:
            attempts.expire_lease(turn, work)
        work = turn.state.works.get(work.id, work)
        if work.due is not None and turn.now >= work.due and work.id in turn.state.works:
            works.on_due(turn, work)
        if work.paused:
            turn.update_pause(work.id)
    if turn.now >= turn.state.beat_at:
        turn.state = turn.state._replace(beat_at=turn.now + BEAT_S)
        attempts.send_heartbeat(turn)


def next_wake_time(state: AgentState) -> Optional[float]:
    """When to be woken; None: only when something happens."""
    times = [work.due for work in state.works.values() if work.due is not None]
    for work in state.works.values():
        if work.ended is None and work.is_live:
            times.append(state.beat_at)
            if work.lease_until is not None:
                times.append(work.lease_until)
    return min(times, default=None)


RULES: Dict[Type[Any], Callable[[Transition, Any], None]] = {
    ConnectionOpened: calls.handle_opened,
    ConnectionClosed: calls.handle_closed,
    BytesFlushed: calls.handle_flushed,
    ProcessStarted: works.handle_started,
    SpawnFailed: works.handle_spawn_failed,
    ProcessEnded: works.handle_ended,
    LogGrew: works.handle_log_growth,
    OutputsClosed: works.handle_outputs_closed,
    InputConsumed: calls.handle_input_consumed,
    ProcessesCounted: works.handle_counted,
    ChipUsersFound: works.handle_chip_users,
    AptHolderFound: works.handle_apt_holder,
    LogTailRead: works.handle_log_tail,
    StepReported: attempts.apply_report,
    HostNotice: handle_notice,
    ThreadSent: calls.handle_thread_data,
    ThreadRead: calls.handle_thread_read,
    ThreadAnswered: calls.handle_thread_answer,
    ThreadEvent: broadcast_event,
    TasksCleaned: works.handle_cleaned,
    TimerFired: handle_timer,
}
