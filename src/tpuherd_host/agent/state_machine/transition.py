"""One step of the state machine: the next state and its effects, in order."""

from typing import Any, Dict, List, Mapping, Optional

from tpuherd_host.agent.frames import DATA_MAX, EVENT, FAIL, REPLY, pack_data, pack_frame, pack_json
from tpuherd_host.agent.log_records import JUMP, NUMBER
from tpuherd_host.agent.log_records import pack_record as record
from tpuherd_host.agent.state_machine.messages import (
    Effect,
    PauseOutput,
    SaveEpochs,
    SaveTask,
    SendFrame,
    SendLog,
)
from tpuherd_host.agent.state_machine.state import (
    COMMAND,
    LIVE,
    AgentState,
    Call,
    Connection,
    Task,
    task_json,
)

UNSENT_MAX = 1 << 19  #: a connection with more unsent bytes gets no log
EVENTS_MAX = 1 << 20  #: nor events
HOLD_S = 60.0  #: a reader that reads nothing for this long is ignored
LOG_PORT, STDOUT_PORT = 3, 1


class CallRefused(Exception):
    """The call is answered by FAIL."""

    def __init__(self, word: str, sentence: str) -> None:
        super().__init__(sentence)
        self.word = word
        self.sentence = sentence


class Transition:
    """Holds what changes within one step."""

    def __init__(self, state: AgentState, now: float) -> None:
        self.state = state
        self.now = now
        self.effects: List[Effect] = []

    def put_task(self, work: Task) -> Task:
        self.state = self.state._replace(works={**self.state.works, work.id: work})
        return work

    def put_connection(self, connection: Connection) -> Connection:
        both = {**self.state.connections, connection.id: connection}
        self.state = self.state._replace(connections=both)
        return connection

    def put_call(self, connection: int, call: Call) -> None:
        one = self.state.connections[connection]
        self.put_connection(one._replace(calls={**one.calls, call.id: call}))

    def add_effects(self, *effects: Effect) -> None:
        self.effects += effects

    def send_frame(self, connection: int, frame: bytes) -> None:
        """Send a frame unless the connection is closed."""
        one = self.state.connections.get(connection)
        if one is not None:
            self.put_connection(one._replace(unsent=one.unsent + len(frame)))
            self.add_effects(SendFrame(connection, frame))

    def send_reply(self, connection: int, call: int, content: Mapping[str, Any]) -> None:
        """Answer a call, which ends it."""
        self.remove_call(connection, call)
        try:
            frame = pack_json(REPLY, call, dict(content))
        except ValueError:
            frame = pack_json(FAIL, call, {"error": "full", "sentence": "the reply is too long"})
        self.send_frame(connection, frame)

    def send_failure(self, connection: int, call: int, word: str, sentence: str) -> None:
        """Answer a call by FAIL, which ends it."""
        self.remove_call(connection, call)
        self.send_frame(
            connection, pack_json(FAIL, call, {"error": word, "sentence": sentence[:2000]})
        )

    def remove_call(self, connection: int, call: int) -> None:
        one = self.state.connections.get(connection)
        if one is not None and call in one.calls:
            rest = {id: kept for id, kept in one.calls.items() if id != call}
            self.put_connection(one._replace(calls=rest))

    def send_event(self, content: Mapping[str, Any], engines: bool = False) -> None:
        """Send an event to all or to engines; slow readers only learn how many they missed."""
        for one in list(self.state.connections.values()):
            if not one.greeted or (engines and not one.epoch):
                continue
            if one.unsent > EVENTS_MAX:
                self.put_connection(one._replace(missed=one.missed + 1))
                continue
            if one.missed:
                self.put_connection(one._replace(missed=0))
                self.send_frame(
                    one.id, pack_json(EVENT, 0, {"event": "missed", "many": one.missed})
                )
            self.send_frame(one.id, pack_json(EVENT, 0, dict(content)))

    def save_task(self, work: Task, hard: Optional[bool] = None) -> Task:
        """Record the task, and tell engines about an attempt."""
        self.put_task(work)
        self.add_effects(SaveTask(work, work.kind != COMMAND if hard is None else hard))
        if work.kind != COMMAND:
            event = "attempt" if work.is_live else "ended"
            self.send_event(
                {"event": event, "time": self.now, **task_json(work)}, engines=work.is_live
            )
        return work

    # ---- logs to readers -------------------------------------------------------------------------

    def send_pending_logs(self, connection: int) -> None:
        """Send as much log as fits into a connection, one piece for each call in turn."""
        one = self.state.connections.get(connection)
        moved = one is not None and any(call.follows for call in one.calls.values())
        while moved:
            moved = False
            for id in list(self.state.connections[connection].calls):
                moved = self.send_log_piece(connection, id) or moved

    def send_log_piece(self, connection: int, id: int) -> bool:
        """Send one piece of the log for a call; return whether there was one."""
        one = self.state.connections[connection]
        call = one.calls[id]
        work = self.state.works.get(call.work)
        if not call.follows or work is None:
            return False
        if call.offset < work.first:
            return self.skip_dropped_log(connection, call, work)
        if call.offset >= work.length:
            if not work.is_live:
                self.send_reply(connection, id, task_json(work))
            return False
        many = min(DATA_MAX - 1, call.credit, work.length - call.offset)
        if many <= 0 or one.unsent > UNSENT_MAX:
            return False
        port = LOG_PORT if work.terminal is None else STDOUT_PORT
        self.add_effects(SendLog(connection, id, port, work.id, call.offset, many))
        moved = call._replace(offset=call.offset + many, credit=call.credit - many, poured=True)
        calls = {**one.calls, id: moved}
        self.put_connection(one._replace(unsent=one.unsent + many + 10, calls=calls))
        return True

    def skip_dropped_log(self, connection: int, call: Call, work: Task) -> bool:
        """Announce dropped records if a record may begin here, else end the call."""
        if call.poured and work.terminal is None:
            sentence = f"the output between {call.offset} and {work.first} was dropped"
            self.send_failure(connection, call.id, "dropped", sentence)
            return True
        self.put_call(connection, call._replace(offset=work.first))
        if work.terminal is None:
            mark = record(self.now, JUMP, NUMBER.pack(work.first))
            self.send_frame(connection, pack_data(call.id, LOG_PORT, mark))
        return True

    def notify_followers(self, work: str) -> None:
        """Send a log's growth or a task's end to its followers."""
        for one in list(self.state.connections.values()):
            if any(call.work == work and call.follows for call in one.calls.values()):
                self.send_pending_logs(one.id)
        self.update_pause(work)

    def update_pause(self, id: str) -> None:
        """Pause a command whose reader is far behind, unless the reader is stuck: piped output
        should arrive whole, but a stuck reader must not stop a training."""
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
            self.put_task(work._replace(paused=paused))
            self.add_effects(PauseOutput(id, paused))


def credit_frame(call: int, many: int) -> bytes:
    return pack_frame(7, call, many.to_bytes(4, "big"))


def parse_fields(content: Mapping[str, Any], **kinds: Any) -> Dict[str, Any]:
    """Return the arguments that are given, each of the right type; CallRefused otherwise."""
    found: Dict[str, Any] = {}
    for name, kind in kinds.items():
        value = content.get(name)
        if value is None:
            continue
        kinds_ok = (int, float) if kind is float else kind
        if not isinstance(value, kinds_ok) or (isinstance(value, bool) and kind is not bool):
            raise CallRefused("unfit", f"{name} has the wrong type: {value!r}"[:300])
        found[name] = value
    return found


def check_epoch(transition: Transition, one: Connection) -> None:
    """Refuse all but the newest engine of an owner."""
    known = transition.state.epochs.get(one.owner, 0)
    if one.epoch < known or not one.epoch:
        sentence = f"an engine with epoch {known} leads here; this one has {one.epoch}"
        raise CallRefused("outdated", sentence)
    if one.epoch > known:
        epochs = {**transition.state.epochs, one.owner: one.epoch}
        transition.state = transition.state._replace(epochs=epochs)
        transition.add_effects(SaveEpochs(epochs))
