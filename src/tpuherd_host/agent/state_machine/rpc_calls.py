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

#: A method of the state machine: the answer, or None if it follows later.
MethodHandler = Callable[
    [Transition, Connection, int, Mapping[str, Any]], Optional[Mapping[str, Any]]
]


def handle_opened(transition: Transition, event: ConnectionOpened) -> None:
    if len(transition.state.connections) >= CONNECTIONS_MAX:
        transition.add_effects(CloseConnection(event.connection))
        return
    transition.put_connection(Connection(event.connection))
    epoch = max(transition.state.epochs.values(), default=0)
    hello = {
        **transition.state.hello,
        "epoch": epoch,
        "time": transition.now,
    }
    transition.send_frame(event.connection, frames.pack_json(frames.HELLO, 0, hello))


def handle_closed(transition: Transition, event: ConnectionClosed) -> None:
    """Drop the connection's calls; tasks continue."""
    one = transition.state.connections.get(event.connection)
    if one is None:
        return
    rest = {id: kept for id, kept in transition.state.connections.items() if id != one.id}
    transition.state = transition.state._replace(connections=rest)
    for call in one.calls.values():
        drop_call(transition, one.id, call)


def drop_call(transition: Transition, connection: int, call: Call) -> None:
    if call.threaded:
        transition.add_effects(DropThread(connection, call.id))
    work = transition.state.works.get(call.work)
    if work is not None:
        if work.feeder == (connection, call.id):
            transition.put_task(work._replace(feeder=None))
        transition.update_pause(call.work)


def handle_flushed(transition: Transition, event: BytesFlushed) -> None:
    one = transition.state.connections.get(event.connection)
    if one is not None:
        transition.put_connection(one._replace(unsent=max(0, one.unsent - event.many)))
        transition.send_pending_logs(one.id)


def handle_frame(
    transition: Transition,
    event: FrameReceived,
    pure: Mapping[str, MethodHandler],
    threaded: Mapping[str, Any],
) -> None:
    """Handle a frame; a protocol error ends only its own connection."""
    one = transition.state.connections.get(event.connection)
    if one is None:
        return
    try:
        frame = event.frame
        if frame.kind == frames.HELLO:
            handle_hello(transition, one, frame.content)
        elif not one.greeted:
            raise BadFrame("no hello")
        elif frame.kind == frames.CALL:
            start_call(transition, one, frame, pure, threaded)
        else:
            FRAMES[frame.kind](transition, one, frame)
    except (BadFrame, KeyError, UnicodeError, RecursionError) as error:
        sentence = f"not a frame of protocol {frames.PROTOCOL}: {error}"
        transition.send_failure(event.connection, 0, "protocol", sentence)
        transition.add_effects(CloseConnection(event.connection))


def handle_hello(transition: Transition, one: Connection, content: Mapping[str, Any]) -> None:
    protocol, epoch = content.get("protocol"), content.get("epoch", 0)
    if protocol != frames.PROTOCOL:
        raise BadFrame(f"protocol {protocol!r}"[:100])
    if one.greeted or not isinstance(epoch, int):
        raise BadFrame("hello")
    transition.put_connection(
        one._replace(
            greeted=True,
            who=str(content.get("who", ""))[:200],
            owner=str(content.get("owner", ""))[:200],
            epoch=epoch,
        )
    )


def start_call(
    transition: Transition,
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
    before = transition.state, transition.effects[:]
    try:
        if len(one.calls) >= CALLS_MAX:
            raise CallRefused("busy", f"{CALLS_MAX} calls of this connection are still unanswered")
        if not isinstance(verb, str) or (verb not in pure and verb not in threaded):
            raise CallRefused("unknown", f"this agent does not know the verb {verb!r}"[:200])
        transition.put_call(
            one.id, Call(frame.id, verb, moved_at=transition.now, threaded=verb in threaded)
        )
        if verb in threaded:
            transition.add_effects(StartThread(one.id, frame.id, verb, content))
            return
        answer = pure[verb](transition, transition.state.connections[one.id], frame.id, content)
    except CallRefused as refused:
        transition.state, transition.effects = before  # a refused call has changed nothing
        transition.send_failure(one.id, frame.id, refused.word, refused.sentence)
        return
    if answer is not None:
        transition.send_reply(one.id, frame.id, answer)


def handle_data(transition: Transition, one: Connection, frame: Frame) -> None:
    """Pass bytes on to the call's task or thread; more than its credit is an error."""
    if not frame.payload:
        raise BadFrame("data without a port")
    call = one.calls.get(frame.id)
    if call is None:
        return  # its call is answered already
    port, text = frame.payload[0], frame.payload[1:]
    if len(text) > call.given:
        raise BadFrame("more data than credit")
    transition.put_call(one.id, call._replace(given=call.given - len(text)))
    if call.threaded:
        transition.add_effects(PassThreadData(one.id, call.id, port, text))
        return
    work = transition.state.works.get(call.work)
    if port == frames.STDIN and work is not None and work.feeder == (one.id, call.id):
        transition.add_effects(FeedInput(work.id, text))
    else:
        grant_credit(transition, one.id, call.id, len(text))  # it is ignored


def grant_credit(transition: Transition, connection: int, id: int, many: int) -> None:
    one = transition.state.connections.get(connection)
    call = one.calls.get(id) if one is not None else None
    if call is not None and many:
        transition.put_call(connection, call._replace(given=call.given + many))
        transition.send_frame(connection, credit_frame(id, many))


def handle_end(transition: Transition, one: Connection, frame: Frame) -> None:
    call = one.calls.get(frame.id)
    if call is None or not frame.payload:
        return
    if call.threaded:
        transition.add_effects(PassThreadData(one.id, call.id, frame.payload[0], None))
        return
    work = transition.state.works.get(call.work)
    if work is not None and work.feeder == (one.id, call.id):
        transition.add_effects(FeedInput(work.id, None))


def handle_credit(transition: Transition, one: Connection, frame: Frame) -> None:
    call = one.calls.get(frame.id)
    if len(frame.payload) != 4:
        raise BadFrame("credit must be four bytes")
    if call is None:
        return
    many = int.from_bytes(frame.payload, "big")
    if call.credit + many > CREDIT_MAX:
        raise BadFrame("too much credit")
    if call.threaded:
        transition.add_effects(GrantThreadCredit(one.id, call.id, many))
        return
    transition.put_call(one.id, call._replace(credit=call.credit + many, moved_at=transition.now))
    transition.send_pending_logs(one.id)
    transition.update_pause(call.work)


def cancel_call(transition: Transition, one: Connection, frame: Frame) -> None:
    call = one.calls.get(frame.id)
    if call is not None:
        transition.send_failure(one.id, call.id, "cancelled", "the call was cancelled")
        drop_call(transition, one.id, call)


def reject_frame(transition: Transition, one: Connection, frame: Frame) -> None:
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


def handle_input_consumed(transition: Transition, event: InputConsumed) -> None:
    work = transition.state.works.get(event.work)
    if work is not None and work.feeder is not None:
        grant_credit(transition, work.feeder[0], work.feeder[1], event.many)


# ---- threaded verbs ------------------------------------------------------------------------------


def handle_thread_data(transition: Transition, event: ThreadSent) -> None:
    """Forward a thread's data; the thread keeps to its credit itself."""
    one = transition.state.connections.get(event.connection)
    if one is None or event.call not in one.calls:
        return
    if event.last:
        frame = frames.pack_frame(frames.END, event.call, bytes([event.port]))
    else:
        frame = frames.pack_data(event.call, event.port, event.piece)
    transition.send_frame(one.id, frame)


def handle_thread_read(transition: Transition, event: ThreadRead) -> None:
    grant_credit(transition, event.connection, event.call, event.many)


def handle_thread_answer(transition: Transition, event: ThreadAnswered) -> None:
    transition.add_effects(DropThread(event.connection, event.call))
    one = transition.state.connections.get(event.connection)
    if one is None or event.call not in one.calls:
        return
    if event.error:
        sentence = str(event.content.get("sentence", ""))
        transition.send_failure(one.id, event.call, event.error, sentence)
    else:
        transition.send_reply(one.id, event.call, event.content)
