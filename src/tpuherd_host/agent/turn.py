"""One turn of the agent's judgement: the state as it becomes, and the deeds that follow from it."""

from tpuherd_host.agent.frames import DATA_MAX, EVENT, FAIL, REPLY, data, packed, said
from tpuherd_host.agent.records import JUMP, NUMBER
from tpuherd_host.agent.records import packed as record
from tpuherd_host.agent.state import COMMAND, LIVE, Call, Connection, State, Work, shown
from tpuherd_host.agent.thin import Any, Dict, List, Mapping, Optional
from tpuherd_host.agent.words import Deed, Pause, Pour, Save, Send

UNSENT_MAX = 1 << 19  #: no log is poured into a connection that has so much to send
EVENTS_MAX = 1 << 20  #: nor does it get events
HOLD_S = 60.0  #: a reader that takes nothing for so long holds nothing up any more
LOG_PORT, STDOUT_PORT = 3, 1


class Refused(Exception):
    """A call that is answered by FAIL."""

    def __init__(self, word: str, sentence: str) -> None:
        super().__init__(sentence)
        self.word = word
        self.sentence = sentence


class Turn:
    """Holds what changes within one step."""

    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self.now = now
        self.deeds: List[Deed] = []

    def put(self, work: Work) -> Work:
        """This is how the work stands now."""
        self.state = self.state._replace(works={**self.state.works, work.id: work})
        return work

    def keep(self, connection: Connection) -> Connection:
        """This is how the connection stands now."""
        both = {**self.state.connections, connection.id: connection}
        self.state = self.state._replace(connections=both)
        return connection

    def call(self, connection: int, call: Call) -> None:
        """This is how the call stands now."""
        one = self.state.connections[connection]
        self.keep(one._replace(calls={**one.calls, call.id: call}))

    def do(self, *deeds: Deed) -> None:
        """These are to be done."""
        self.deeds += deeds

    def send(self, connection: int, frame: bytes) -> None:
        """Say something, if somebody is there."""
        one = self.state.connections.get(connection)
        if one is not None:
            self.keep(one._replace(unsent=one.unsent + len(frame)))
            self.do(Send(connection, frame))

    def reply(self, connection: int, call: int, content: Mapping[str, Any]) -> None:
        """Answer a call, which is over then."""
        self.over(connection, call)
        try:
            frame = said(REPLY, call, dict(content))
        except ValueError:
            frame = said(FAIL, call, {"error": "full", "sentence": "the answer is too long"})
        self.send(connection, frame)

    def fail(self, connection: int, call: int, word: str, sentence: str) -> None:
        """Answer a call badly."""
        self.over(connection, call)
        self.send(connection, said(FAIL, call, {"error": word, "sentence": sentence[:2000]}))

    def over(self, connection: int, call: int) -> None:
        """Nobody waits for this call any more."""
        one = self.state.connections.get(connection)
        if one is not None and call in one.calls:
            rest = {id: kept for id, kept in one.calls.items() if id != call}
            self.keep(one._replace(calls=rest))

    def tell(self, content: Mapping[str, Any], engines: bool = False) -> None:
        """An event, to all or to engines. Who is too slow only learns how many it missed."""
        for one in list(self.state.connections.values()):
            if not one.greeted or (engines and not one.epoch):
                continue
            if one.unsent > EVENTS_MAX:
                self.keep(one._replace(missed=one.missed + 1))
                continue
            if one.missed:
                self.keep(one._replace(missed=0))
                self.send(one.id, said(EVENT, 0, {"event": "missed", "many": one.missed}))
            self.send(one.id, said(EVENT, 0, dict(content)))

    def changed(self, work: Work, hard: Optional[bool] = None) -> Work:
        """Write the work down, and tell engines how an attempt stands."""
        self.put(work)
        self.do(Save(work, work.kind != COMMAND if hard is None else hard))
        if work.kind != COMMAND:
            event = "attempt" if work.live else "ended"
            self.tell({"event": event, "time": self.now, **shown(work)}, engines=work.live)
        return work

    # ---- logs to readers -------------------------------------------------------------------------

    def pump(self, connection: int) -> None:
        """Pour what may be poured into a connection, a piece for each call in turn."""
        one = self.state.connections.get(connection)
        moved = one is not None and any(call.follows for call in one.calls.values())
        while moved:
            moved = False
            for id in list(self.state.connections[connection].calls):
                moved = self.pour(connection, id) or moved

    def pour(self, connection: int, id: int) -> bool:
        """One piece of its log for one call; whether there was one."""
        one = self.state.connections[connection]
        call = one.calls[id]
        work = self.state.works.get(call.work)
        if not call.follows or work is None:
            return False
        if call.offset < work.first:
            return self.jump(connection, call, work)
        if call.offset >= work.length:
            if not work.live:
                self.reply(connection, id, shown(work))
            return False
        many = min(DATA_MAX - 1, call.credit, work.length - call.offset)
        if many <= 0 or one.unsent > UNSENT_MAX:
            return False
        port = LOG_PORT if work.terminal is None else STDOUT_PORT
        self.do(Pour(connection, id, port, work.id, call.offset, many))
        moved = call._replace(offset=call.offset + many, credit=call.credit - many, poured=True)
        calls = {**one.calls, id: moved}
        self.keep(one._replace(unsent=one.unsent + many + 10, calls=calls))
        return True

    def jump(self, connection: int, call: Call, work: Work) -> bool:
        """The log's oldest part is dropped: say so where a record may stand, else end the call."""
        if call.poured and work.terminal is None:
            sentence = f"what stood between {call.offset} and {work.first} is dropped"
            self.fail(connection, call.id, "dropped", sentence)
            return True
        self.call(connection, call._replace(offset=work.first))
        if work.terminal is None:
            mark = record(self.now, JUMP, NUMBER.pack(work.first))
            self.send(connection, data(call.id, LOG_PORT, mark))
        return True

    def spread(self, work: str) -> None:
        """A log grew, or its work is over: to all who follow it."""
        for one in list(self.state.connections.values()):
            if any(call.work == work and call.follows for call in one.calls.values()):
                self.pump(one.id)
        self.hold(work)

    def hold(self, id: str) -> None:
        """A command waits for a reader that is far behind, unless that one sleeps: what is piped
        somewhere should come whole, but no reader that is stuck may stop a training."""
        work = self.state.works.get(id)
        if work is None or work.kind != COMMAND or work.phase not in LIVE:
            return
        held = [
            call.offset
            for one in self.state.connections.values()
            for call in one.calls.values()
            if call.work == id and call.holds and call.moved_at > self.now - HOLD_S
        ]
        behind = work.length - min(held, default=work.length)
        limit = work.log_bytes // 2
        paused = behind > (limit // 2 if work.paused else limit)
        if paused != work.paused:
            self.put(work._replace(paused=paused))
            self.do(Pause(id, paused))


def credited(call: int, many: int) -> bytes:
    """A frame that lets more data come."""
    return packed(7, call, many.to_bytes(4, "big"))


def fields(content: Mapping[str, Any], **kinds: Any) -> Dict[str, Any]:
    """Those arguments of a call that have the right kind; Refused for others."""
    found: Dict[str, Any] = {}
    for name, kind in kinds.items():
        value = content.get(name)
        if value is None:
            continue
        kinds_ok = (int, float) if kind is float else kind
        if not isinstance(value, kinds_ok) or (isinstance(value, bool) and kind is not bool):
            raise Refused("unfit", f"{name} is not what it should be: {value!r}"[:300])
        found[name] = value
    return found
