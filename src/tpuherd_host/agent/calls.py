"""What frames mean: greetings, calls, data with credit, and lost interest."""

from tpuherd_host.agent import frames
from tpuherd_host.agent.frames import BadFrame, Frame
from tpuherd_host.agent.state import Call, Connection
from tpuherd_host.agent.thin import Any, Callable, Dict, Mapping, Optional
from tpuherd_host.agent.turn import Refused, Turn, credited
from tpuherd_host.agent.words import (
    Answered,
    Arrived,
    Closed,
    Consumed,
    Drop,
    Feed,
    Flushed,
    Grant,
    Hand,
    Hang,
    Opened,
    Spoke,
    Thread,
    Took,
)

CONNECTIONS_MAX = 128
CALLS_MAX = 256
CREDIT_MAX = 1 << 26

#: A verb that is answered by the judgement: the answer, or None when it comes later.
Answer = Callable[[Turn, Connection, int, Mapping[str, Any]], Optional[Mapping[str, Any]]]


def opened(turn: Turn, happening: Opened) -> None:
    """Greet."""
    if len(turn.state.connections) >= CONNECTIONS_MAX:
        turn.do(Hang(happening.connection))
        return
    turn.keep(Connection(happening.connection))
    epoch = max(turn.state.epochs.values(), default=0)
    hello = {
        **turn.state.hello,
        "epoch": epoch,
        "time": turn.now,
    }
    turn.send(happening.connection, frames.said(frames.HELLO, 0, hello))


def closed(turn: Turn, happening: Closed) -> None:
    """Nobody is there any more. What runs goes on."""
    one = turn.state.connections.get(happening.connection)
    if one is None:
        return
    rest = {id: kept for id, kept in turn.state.connections.items() if id != one.id}
    turn.state = turn.state._replace(connections=rest)
    for call in one.calls.values():
        leave(turn, one.id, call)


def leave(turn: Turn, connection: int, call: Call) -> None:
    """A call has nobody who waits for it."""
    if call.threaded:
        turn.do(Drop(connection, call.id))
    work = turn.state.works.get(call.work)
    if work is not None:
        if work.feeder == (connection, call.id):
            turn.put(work._replace(feeder=None))
        turn.hold(call.work)


def flushed(turn: Turn, happening: Flushed) -> None:
    """There is room for more."""
    one = turn.state.connections.get(happening.connection)
    if one is not None:
        turn.keep(one._replace(unsent=max(0, one.unsent - happening.many)))
        turn.pump(one.id)


def arrived(
    turn: Turn, happening: Arrived, pure: Mapping[str, Answer], threaded: Mapping[str, Any]
) -> None:
    """A frame. Nonsense ends its connection, and no other."""
    one = turn.state.connections.get(happening.connection)
    if one is None:
        return
    try:
        frame = happening.frame
        if frame.kind == frames.HELLO:
            greet(turn, one, frame.content)
        elif not one.greeted:
            raise BadFrame("no hello")
        elif frame.kind == frames.CALL:
            ask(turn, one, frame, pure, threaded)
        else:
            FRAMES[frame.kind](turn, one, frame)
    except (BadFrame, KeyError, UnicodeError, RecursionError) as error:
        sentence = f"this is no frame of protocol {frames.PROTOCOL}: {error}"
        turn.fail(happening.connection, 0, "protocol", sentence)
        turn.do(Hang(happening.connection))


def greet(turn: Turn, one: Connection, content: Mapping[str, Any]) -> None:
    """Who it is, and of which protocol."""
    protocol, epoch = content.get("protocol"), content.get("epoch", 0)
    if protocol != frames.PROTOCOL:
        raise BadFrame(f"protocol {protocol!r}"[:100])
    if one.greeted or not isinstance(epoch, int):
        raise BadFrame("hello")
    turn.keep(
        one._replace(
            greeted=True,
            who=str(content.get("who", ""))[:200],
            owner=str(content.get("owner", ""))[:200],
            epoch=epoch,
        )
    )


def ask(
    turn: Turn,
    one: Connection,
    frame: Frame,
    pure: Mapping[str, Answer],
    threaded: Mapping[str, Any],
) -> None:
    """A call: answered at once, later, or by a thread."""
    if frame.id in one.calls or not frame.id:
        raise BadFrame("a call's id is in use")
    content = frame.content
    verb = content.get("verb")
    try:
        if len(one.calls) >= CALLS_MAX:
            raise Refused("busy", f"{CALLS_MAX} calls of this connection are not answered yet")
        if not isinstance(verb, str) or (verb not in pure and verb not in threaded):
            raise Refused("unknown", f"this agent has no verb {verb!r}"[:200])
        turn.call(one.id, Call(frame.id, verb, moved_at=turn.now, threaded=verb in threaded))
        if verb in threaded:
            turn.do(Thread(one.id, frame.id, verb, content))
            return
        answer = pure[verb](turn, turn.state.connections[one.id], frame.id, content)
    except Refused as refused:
        turn.fail(one.id, frame.id, refused.word, refused.sentence)
        return
    if answer is not None:
        turn.reply(one.id, frame.id, answer)


def piece(turn: Turn, one: Connection, frame: Frame) -> None:
    """Bytes for what a call began; more than was allowed is nonsense."""
    if not frame.payload:
        raise BadFrame("data without a port")
    call = one.calls.get(frame.id)
    if call is None:
        return  # its call is answered already
    port, text = frame.payload[0], frame.payload[1:]
    if len(text) > call.given:
        raise BadFrame("more data than credit")
    turn.call(one.id, call._replace(given=call.given - len(text)))
    if call.threaded:
        turn.do(Hand(one.id, call.id, port, text))
        return
    work = turn.state.works.get(call.work)
    if port == frames.STDIN and work is not None and work.feeder == (one.id, call.id):
        turn.do(Feed(work.id, text))
    else:
        credit(turn, one.id, call.id, len(text))  # nobody reads it


def credit(turn: Turn, connection: int, id: int, many: int) -> None:
    """Let it send so much more."""
    one = turn.state.connections.get(connection)
    call = one.calls.get(id) if one is not None else None
    if call is not None and many:
        turn.call(connection, call._replace(given=call.given + many))
        turn.send(connection, credited(id, many))


def end(turn: Turn, one: Connection, frame: Frame) -> None:
    """No more will come on a port."""
    call = one.calls.get(frame.id)
    if call is None or not frame.payload:
        return
    if call.threaded:
        turn.do(Hand(one.id, call.id, frame.payload[0], None))
        return
    work = turn.state.works.get(call.work)
    if work is not None and work.feeder == (one.id, call.id):
        turn.do(Feed(work.id, None))


def more(turn: Turn, one: Connection, frame: Frame) -> None:
    """We may send more."""
    call = one.calls.get(frame.id)
    if len(frame.payload) != 4:
        raise BadFrame("credit is four bytes")
    if call is None:
        return
    many = int.from_bytes(frame.payload, "big")
    if call.credit + many > CREDIT_MAX:
        raise BadFrame("too much credit")
    if call.threaded:
        turn.do(Grant(one.id, call.id, many))
        return
    turn.call(one.id, call._replace(credit=call.credit + many, moved_at=turn.now))
    turn.pump(one.id)
    turn.hold(call.work)


def cancel(turn: Turn, one: Connection, frame: Frame) -> None:
    """It does not want to know any more."""
    call = one.calls.get(frame.id)
    if call is not None:
        turn.fail(one.id, call.id, "cancelled", "the call was cancelled")
        leave(turn, one.id, call)


def nonsense(turn: Turn, one: Connection, frame: Frame) -> None:
    """What only an agent says."""
    raise BadFrame("only an agent says that")


FRAMES: Dict[int, Callable[[Turn, Connection, Frame], None]] = {
    frames.DATA: piece,
    frames.END: end,
    frames.CREDIT: more,
    frames.CANCEL: cancel,
    frames.REPLY: nonsense,
    frames.FAIL: nonsense,
    frames.EVENT: nonsense,
}


def took(turn: Turn, happening: Took) -> None:
    """A standard input has taken what was fed to it."""
    work = turn.state.works.get(happening.work)
    if work is not None and work.feeder is not None:
        credit(turn, work.feeder[0], work.feeder[1], happening.many)


# ---- threaded verbs ------------------------------------------------------------------------------


def spoke(turn: Turn, happening: Spoke) -> None:
    """A threaded verb sends; it has seen to its credit itself."""
    one = turn.state.connections.get(happening.connection)
    if one is None or happening.call not in one.calls:
        return
    if happening.last:
        frame = frames.packed(frames.END, happening.call, bytes([happening.port]))
    else:
        frame = frames.data(happening.call, happening.port, happening.piece)
    turn.send(one.id, frame)


def consumed(turn: Turn, happening: Consumed) -> None:
    """A threaded verb has read."""
    credit(turn, happening.connection, happening.call, happening.many)


def answered(turn: Turn, happening: Answered) -> None:
    """A threaded verb is through."""
    turn.do(Drop(happening.connection, happening.call))
    one = turn.state.connections.get(happening.connection)
    if one is None or happening.call not in one.calls:
        return
    if happening.error:
        sentence = str(happening.content.get("sentence", ""))
        turn.fail(one.id, happening.call, happening.error, sentence)
    else:
        turn.reply(one.id, happening.call, happening.content)
