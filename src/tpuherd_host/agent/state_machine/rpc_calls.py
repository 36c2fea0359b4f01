"""What frames mean: greetings, calls, data with credit, and cancellation."""

from typing import Any, Callable, Dict, Mapping, Optional

from tpuherd_host.agent import frames
from tpuherd_host.agent.frames import BadFrame, Frame
from tpuherd_host.agent.state_machine.messages import (
    BytesFlushed,
    CloseConnection,
    ConnectionClosed,
    ConnectionOpened,
    DropThread,
    FeedInput,
    FrameReceived,
    GrantThreadCredit,
    InputConsumed,
    PassThreadData,
    StartThread,
    ThreadAnswered,
    ThreadRead,
    ThreadSent,
)
from tpuherd_host.agent.state_machine.state import Call, Connection
from tpuherd_host.agent.state_machine.transition import CallRefused, Transition, credit_frame

CONNECTIONS_MAX = 128
CALLS_MAX = 256
CREDIT_MAX = 1 << 26

#: A verb that is answered by the judgement: the answer, or None when it comes later.
MethodHandler = Callable[
    [Transition, Connection, int, Mapping[str, Any]], Optional[Mapping[str, Any]]
]


def handle_opened(turn: Transition, happening: ConnectionOpened) -> None:
    if len(turn.state.connections) >= CONNECTIONS_MAX:
        turn.add_effects(CloseConnection(happening.connection))
        return
    turn.put_connection(Connection(happening.connection))
    epoch = max(turn.state.epochs.values(), default=0)
    hello = {
        **turn.state.hello,
        "epoch": epoch,
        "time": turn.now,
    }
    turn.send_frame(happening.connection, frames.pack_json(frames.HELLO, 0, hello))


def handle_closed(turn: Transition, happening: ConnectionClosed) -> None:
    """Drop the connection's calls; tasks continue."""
    one = turn.state.connections.get(happening.connection)
    if one is None:
        return
    rest = {id: kept for id, kept in turn.state.connections.items() if id != one.id}
    turn.state = turn.state._replace(connections=rest)
    for call in one.calls.values():
        drop_call(turn, one.id, call)


def drop_call(turn: Transition, connection: int, call: Call) -> None:
    if call.threaded:
        turn.add_effects(DropThread(connection, call.id))
    work = turn.state.works.get(call.work)
    if work is not None:
        if work.feeder == (connection, call.id):
            turn.put_task(work._replace(feeder=None))
        turn.update_pause(call.work)


def handle_flushed(turn: Transition, happening: BytesFlushed) -> None:
    one = turn.state.connections.get(happening.connection)
    if one is not None:
        turn.put_connection(one._replace(unsent=max(0, one.unsent - happening.many)))
        turn.send_pending_logs(one.id)


def handle_frame(
    turn: Transition,
    happening: FrameReceived,
    pure: Mapping[str, MethodHandler],
    threaded: Mapping[str, Any],
) -> None:
    """Handle a frame; a protocol error ends only its own connection."""
    one = turn.state.connections.get(happening.connection)
    if one is None:
        return
    try:
        frame = happening.frame
        if frame.kind == frames.HELLO:
            handle_hello(turn, one, frame.content)
        elif not one.greeted:
            raise BadFrame("no hello")
        elif frame.kind == frames.CALL:
            start_call(turn, one, frame, pure, threaded)
        else:
            FRAMES[frame.kind](turn, one, frame)
    except (BadFrame, KeyError, UnicodeError, RecursionError) as error:
        sentence = f"not a frame of protocol {frames.PROTOCOL}: {error}"
        turn.send_failure(happening.connection, 0, "protocol", sentence)
        turn.add_effects(CloseConnection(happening.connection))


def handle_hello(turn: Transition, one: Connection, content: Mapping[str, Any]) -> None:
    protocol, epoch = content.get("protocol"), content.get("epoch", 0)
    if protocol != frames.PROTOCOL:
        raise BadFrame(f"protocol {protocol!r}"[:100])
    if one.greeted or not isinstance(epoch, int):
        raise BadFrame("hello")
    turn.put_connection(
        one._replace(
            greeted=True,
            who=str(content.get("who", ""))[:200],
            owner=str(content.get("owner", ""))[:200],
            epoch=epoch,
        )
    )


def start_call(
    turn: Transition,
    one: Connection,
    frame: Frame,
    pure: Mapping[str, MethodHandler],
    threaded: Mapping[str, Any],
) -> None:
    """Start a call, which is answered at once, later, or by a thread."""
    if frame.id in one.calls or not frame.id:
        raise BadFrame("this call id is in use")
    content = frame.content
    verb = content.get("verb")
    try:
        if len(one.calls) >= CALLS_MAX:
            raise CallRefused("busy", f"{CALLS_MAX} calls of this connection are still unanswered")
        if not isinstance(verb, str) or (verb not in pure and verb not in threaded):
            raise CallRefused("unknown", f"this agent does not know the verb {verb!r}"[:200])
        turn.put_call(one.id, Call(frame.id, verb, moved_at=turn.now, threaded=verb in threaded))
        if verb in threaded:
            turn.add_effects(StartThread(one.id, frame.id, verb, content))
            return
        answer = pure[verb](turn, turn.state.connections[one.id], frame.id, content)
    except CallRefused as refused:
        turn.send_failure(one.id, frame.id, refused.word, refused.sentence)
        return
    if answer is not None:
        turn.send_reply(one.id, frame.id, answer)


def handle_data(turn: Transition, one: Connection, frame: Frame) -> None:
    """Pass bytes on to the call's task or thread; more than its credit is an error."""
    if not frame.payload:
        raise BadFrame("data without a port")
    call = one.calls.get(frame.id)
    if call is None:
        return  # its call is answered already
    port, text = frame.payload[0], frame.payload[1:]
    if len(text) > call.given:
        raise BadFrame("more data than credit")
    turn.put_call(one.id, call._replace(given=call.given - len(text)))
    if call.threaded:
        turn.add_effects(PassThreadData(one.id, call.id, port, text))
        return
    work = turn.state.works.get(call.work)
    if port == frames.STDIN and work is not None and work.feeder == (one.id, call.id):
        turn.add_effects(FeedInput(work.id, text))
    else:
        grant_credit(turn, one.id, call.id, len(text))  # nobody reads it


def grant_credit(turn: Transition, connection: int, id: int, many: int) -> None:
    one = turn.state.connections.get(connection)
    call = one.calls.get(id) if one is not None else None
    if call is not None and many:
        turn.put_call(connection, call._replace(given=call.given + many))
        turn.send_frame(connection, credit_frame(id, many))


def handle_end(turn: Transition, one: Connection, frame: Frame) -> None:
    call = one.calls.get(frame.id)
    if call is None or not frame.payload:
        return
    if call.threaded:
        turn.add_effects(PassThreadData(one.id, call.id, frame.payload[0], None))
        return
    work = turn.state.works.get(call.work)
    if work is not None and work.feeder == (one.id, call.id):
        turn.add_effects(FeedInput(work.id, None))


def handle_credit(turn: Transition, one: Connection, frame: Frame) -> None:
    call = one.calls.get(frame.id)
    if len(frame.payload) != 4:
        raise BadFrame("credit is four bytes")
    if call is None:
        return
    many = int.from_bytes(frame.payload, "big")
    if call.credit + many > CREDIT_MAX:
        raise BadFrame("too much credit")
    if call.threaded:
        turn.add_effects(GrantThreadCredit(one.id, call.id, many))
        return
    turn.put_call(one.id, call._replace(credit=call.credit + many, moved_at=turn.now))
    turn.send_pending_logs(one.id)
    turn.update_pause(call.work)


def cancel_call(turn: Transition, one: Connection, frame: Frame) -> None:
    call = one.calls.get(frame.id)
    if call is not None:
        turn.send_failure(one.id, call.id, "cancelled", "the call was cancelled")
        drop_call(turn, one.id, call)


def reject_frame(turn: Transition, one: Connection, frame: Frame) -> None:
    raise BadFrame("only an agent may send this frame")


FRAMES: Dict[int, Callable[[Transition, Connection, Frame], None]] = {
    frames.DATA: handle_data,
    frames.END: handle_end,
    frames.CREDIT: handle_credit,
    frames.CANCEL: cancel_call,
    frames.REPLY: reject_frame,
    frames.FAIL: reject_frame,
    frames.EVENT: reject_frame,
}


def handle_input_consumed(turn: Transition, happening: InputConsumed) -> None:
    work = turn.state.works.get(happening.work)
    if work is not None and work.feeder is not None:
        grant_credit(turn, work.feeder[0], work.feeder[1], happening.many)


# ---- threaded verbs ------------------------------------------------------------------------------


def handle_thread_data(turn: Transition, happening: ThreadSent) -> None:
    """Forward a thread's data; the thread keeps to its credit itself."""
    one = turn.state.connections.get(happening.connection)
    if one is None or happening.call not in one.calls:
        return
    if happening.last:
        frame = frames.pack_frame(frames.END, happening.call, bytes([happening.port]))
    else:
        frame = frames.pack_data(happening.call, happening.port, happening.piece)
    turn.send_frame(one.id, frame)


def handle_thread_read(turn: Transition, happening: ThreadRead) -> None:
    grant_credit(turn, happening.connection, happening.call, happening.many)


def handle_thread_answer(turn: Transition, happening: ThreadAnswered) -> None:
    turn.add_effects(DropThread(happening.connection, happening.call))
    one = turn.state.connections.get(happening.connection)
    if one is None or happening.call not in one.calls:
        return
    if happening.error:
        sentence = str(happening.content.get("sentence", ""))
        turn.send_failure(one.id, happening.call, happening.error, sentence)
    else:
        turn.send_reply(one.id, happening.call, happening.content)
