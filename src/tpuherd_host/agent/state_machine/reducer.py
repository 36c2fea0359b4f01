"""The agent's decisions: a state and an event give the next state and the effects."""

from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Type

from tpuherd_host.agent.state_machine import deadman, rpc_attempts, rpc_calls, task_lifecycle
from tpuherd_host.agent.state_machine.messages import (
    BytesFlushed,
    ChipUsersFound,
    ConnectionClosed,
    ConnectionOpened,
    Effect,
    Event,
    FrameReceived,
    HostNotice,
    HostSampled,
    InputConsumed,
    LogGrew,
    LogTailRead,
    OutputsClosed,
    ProcessEnded,
    ProcessesCounted,
    ProcessStarted,
    ReadSample,
    SpawnFailed,
    StepReported,
    TasksCleaned,
    ThreadAnswered,
    ThreadEvent,
    ThreadRead,
    ThreadSent,
    TimerFired,
)
from tpuherd_host.agent.state_machine.rpc_calls import MethodHandler
from tpuherd_host.agent.state_machine.state import ATTEMPT, AgentState
from tpuherd_host.agent.state_machine.transition import Transition

BEAT_S = 10.0
PAUSE_S, PAUSES_MAX = 15.0, 16  #: between two events while work runs; how many are kept
SAMPLE_S, IDLE_SAMPLE_S = 10.0, 60.0  #: between samples for engines


def reduce_event(
    state: AgentState,
    event: Event,
    now: float,
    pure: Mapping[str, MethodHandler],
    threaded: Mapping[str, Any],
) -> Tuple[AgentState, Tuple[Effect, ...]]:
    """Return the next state and the effects; `pure` and `threaded` are the tables of verbs."""
    transition = Transition(note_pause(state, now), now)
    if isinstance(event, FrameReceived):
        rpc_calls.handle_frame(transition, event, pure, threaded)
    elif isinstance(event, (ProcessStarted, SpawnFailed)) and event.work not in state.works:
        pass  # forgotten meanwhile
    else:
        RULES[type(event)](transition, event)
    return transition.state, tuple(transition.effects)


def note_pause(state: AgentState, now: float) -> AgentState:
    """Note that all stood still: while anything runs, some event comes at least every BEAT_S."""
    if now > state.seen_at + PAUSE_S and any(work.is_live for work in state.works.values()):
        pauses = (*state.pauses, (now, now - state.seen_at))
        state = state._replace(pauses=pauses[-PAUSES_MAX:] if state.seen_at else ())
    return state._replace(seen_at=now)


def broadcast_event(transition: Transition, event: ThreadEvent) -> None:
    transition.send_event(event.content)


def handle_notice(transition: Transition, event: HostNotice) -> None:
    rpc_attempts.apply_notice(transition, event.key, event.value)


def send_sample(transition: Transition, event: HostSampled) -> None:
    content = {"event": "sample", "time": transition.now, **event.content}
    transition.send_event(content, engines=True)


def handle_timer(transition: Transition, event: TimerFired) -> None:
    """Handle everything that is due."""
    for work in list(transition.state.works.values()):
        if work.is_live and work.lease_until is not None and transition.now >= work.lease_until:
            deadman.expire_lease(transition, work)
        work = transition.state.works.get(work.id, work)
        if (
            work.due is not None
            and transition.now >= work.due
            and work.id in transition.state.works
        ):
            task_lifecycle.on_due(transition, work)
        if work.paused:
            transition.update_pause(work.id)
    if transition.now >= transition.state.beat_at:
        transition.state = transition.state._replace(beat_at=transition.now + BEAT_S)
        rpc_attempts.send_heartbeat(transition)
    sample_at = next_sample_time(transition.state)
    if sample_at is not None and transition.now >= sample_at:
        transition.state = transition.state._replace(sampled_at=transition.now)
        transition.add_effects(ReadSample())


def next_wake_time(state: AgentState) -> Optional[float]:
    """Return when a timer event is due; None while only other events matter."""
    times = [work.due for work in state.works.values() if work.due is not None]
    for work in state.works.values():
        if work.ended is None and work.is_live:
            times.append(state.beat_at)
            if work.lease_until is not None:
                times.append(work.lease_until)
    sample_at = next_sample_time(state)
    return min(times if sample_at is None else [*times, sample_at], default=None)


def next_sample_time(state: AgentState) -> Optional[float]:
    """Return when an engine should get the next sample; None if there is no engine."""
    if not state.has_engine:
        return None
    is_busy = any(work.kind == ATTEMPT and work.is_live for work in state.works.values())
    return state.sampled_at + (SAMPLE_S if is_busy else IDLE_SAMPLE_S)


RULES: Dict[Type[Any], Callable[[Transition, Any], None]] = {
    ConnectionOpened: rpc_calls.handle_opened,
    ConnectionClosed: rpc_calls.handle_closed,
    BytesFlushed: rpc_calls.handle_flushed,
    ProcessStarted: task_lifecycle.handle_started,
    SpawnFailed: task_lifecycle.handle_spawn_failed,
    ProcessEnded: task_lifecycle.handle_ended,
    LogGrew: task_lifecycle.handle_log_growth,
    OutputsClosed: task_lifecycle.handle_outputs_closed,
    InputConsumed: rpc_calls.handle_input_consumed,
    ProcessesCounted: task_lifecycle.handle_counted,
    ChipUsersFound: task_lifecycle.handle_chip_users,
    LogTailRead: task_lifecycle.handle_log_tail,
    StepReported: rpc_attempts.apply_report,
    HostNotice: handle_notice,
    HostSampled: send_sample,
    ThreadSent: rpc_calls.handle_thread_data,
    ThreadRead: rpc_calls.handle_thread_read,
    ThreadAnswered: rpc_calls.handle_thread_answer,
    ThreadEvent: broadcast_event,
    TasksCleaned: task_lifecycle.handle_cleaned,
    TimerFired: handle_timer,
}
