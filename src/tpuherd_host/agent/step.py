"""The agent's whole judgement: a state and what happened give the next state and what to do."""

from tpuherd_host.agent import attempts, calls, works
from tpuherd_host.agent.calls import Answer
from tpuherd_host.agent.state import State
from tpuherd_host.agent.thin import Any, Callable, Dict, Mapping, Optional, Tuple, Type
from tpuherd_host.agent.turn import Turn
from tpuherd_host.agent.words import (
    Answered,
    AptSeen,
    Arrived,
    Began,
    Cleaned,
    Closed,
    Consumed,
    Deed,
    Drained,
    Ended,
    Flushed,
    Grew,
    Happening,
    News,
    Opened,
    Reported,
    Seen,
    Spoke,
    Swept,
    Tailed,
    Told,
    Took,
    Unborn,
    Woke,
)

BEAT_S = 10.0


def step(
    state: State,
    happening: Happening,
    now: float,
    pure: Mapping[str, Answer],
    threaded: Mapping[str, Any],
) -> Tuple[State, Tuple[Deed, ...]]:
    """What follows. `pure` and `threaded` are the tables of verbs."""
    turn = Turn(state, now)
    if isinstance(happening, Arrived):
        calls.arrived(turn, happening, pure, threaded)
    elif isinstance(happening, (Began, Unborn)) and happening.work not in state.works:
        pass  # forgotten meanwhile
    else:
        RULES[type(happening)](turn, happening)
    return turn.state, tuple(turn.deeds)


def told(turn: Turn, happening: Told) -> None:
    """A threaded verb has something to say to all."""
    turn.tell(happening.content)


def news(turn: Turn, happening: News) -> None:
    """The metadata server says something new."""
    attempts.news(turn, happening.key, happening.value)


def woke(turn: Turn, happening: Woke) -> None:
    """Look at all that is due."""
    for work in list(turn.state.works.values()):
        if work.live and work.lease_until is not None and turn.now >= work.lease_until:
            attempts.expired(turn, work)
        work = turn.state.works.get(work.id, work)
        if work.due is not None and turn.now >= work.due and work.id in turn.state.works:
            works.look(turn, work)
        if work.paused:
            turn.hold(work.id)
    if turn.now >= turn.state.beat_at:
        turn.state = turn.state._replace(beat_at=turn.now + BEAT_S)
        attempts.heartbeat(turn)


def wake_at(state: State) -> Optional[float]:
    """When to be woken; None: only when something happens."""
    times = [work.due for work in state.works.values() if work.due is not None]
    for work in state.works.values():
        if work.ended is None and work.live:
            times.append(state.beat_at)
            if work.lease_until is not None:
                times.append(work.lease_until)
    return min(times, default=None)


RULES: Dict[Type[Any], Callable[[Turn, Any], None]] = {
    Opened: calls.opened,
    Closed: calls.closed,
    Flushed: calls.flushed,
    Began: works.began,
    Unborn: works.unborn,
    Ended: works.ended,
    Grew: works.grew,
    Drained: works.drained,
    Took: calls.took,
    Swept: works.swept,
    Seen: works.seen,
    AptSeen: works.apt_seen,
    Tailed: works.tailed,
    Reported: attempts.reported,
    News: news,
    Spoke: calls.spoke,
    Consumed: calls.consumed,
    Answered: calls.answered,
    Told: told,
    Cleaned: works.cleaned,
    Woke: woke,
}
