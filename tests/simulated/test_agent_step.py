"""The agent's state machine alone: random histories from seeds, and what must hold in each."""

import random
from collections import Counter
from typing import Any

import pytest

from tpuherd_host.agent import frames
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.reducer import next_wake_time, reduce_event
from tpuherd_host.agent.state_machine.rpc_methods import PURE
from tpuherd_host.agent.state_machine.state import ATTEMPT, COMMAND, AgentState, Ending, Task
from tpuherd_host.agent.state_machine.task_lifecycle import adopt_previous
from tpuherd_host.agent.state_machine.transition import EVENTS_MAX, UNSENT_MAX
from tpuherd_host.agent.threaded_methods import THREADED

SEEDS = range(60)
STEPS = 400


class EngineHarness:
    """An agent's state, its clock, and a world that carries out its effects."""

    def __init__(self, seed: int = 0) -> None:
        self.dice = random.Random(seed)
        self.state = AgentState(hello={"agent": "x"}, boot="b")
        self.now = 1000.0
        self.answers: Counter[tuple[int, int]] = Counter()
        self.asked: set[tuple[int, int]] = set()
        self.effects: list[messages.Effect] = []
        self.alive: dict[str, int] = {}
        self.pid = 100
        self.sent: dict[int, list[frames.Frame]] = {}
        self.readers: dict[int, frames.FrameReader] = {}

    def happen(self, *events: messages.Event) -> list[messages.Effect]:
        done: list[messages.Effect] = []
        for event in events:
            self.state, effects = reduce_event(self.state, event, self.now, PURE, THREADED)
            done += effects
            for effect in effects:
                self.do(effect)
        self.effects += done
        return done

    def do(self, effect: messages.Effect) -> None:
        if isinstance(effect, messages.SendFrame):
            for frame in self.readers[effect.connection].feed(effect.frame):
                self.sent[effect.connection].append(frame)
                if frame.kind in (frames.REPLY, frames.FAIL) and frame.id:
                    self.answers[effect.connection, frame.id] += 1
        elif isinstance(effect, messages.SendLog):
            work = self.state.works[effect.work]
            assert work.first <= effect.offset
            assert effect.offset + effect.many <= work.length
        elif isinstance(effect, messages.SpawnProcess):
            assert effect.work.id not in self.alive, "two at once"
            self.alive[effect.work.id] = 0

    def open(self, id: int, epoch: int = 0) -> None:
        self.readers[id], self.sent[id] = frames.FrameReader(), []
        hello = {"protocol": frames.PROTOCOL, "who": "w", "owner": "o", "epoch": epoch}
        self.happen(messages.ConnectionOpened(id), self.frame(id, frames.HELLO, 0, hello))

    def frame(self, connection: int, kind: int, id: int, content: Any) -> messages.FrameReceived:
        [frame] = frames.FrameReader().feed(frames.pack_json(kind, id, content))
        return messages.FrameReceived(connection, frame)

    def ask(
        self, connection: int, call: int, verb: str, /, **arguments: Any
    ) -> list[messages.Effect]:
        self.asked.add((connection, call))
        return self.happen(self.frame(connection, frames.CALL, call, {"verb": verb, **arguments}))

    def last(self, connection: int) -> dict[str, Any]:
        return self.sent[connection][-1].content

    def began(self, work: str) -> None:
        self.pid += 1
        self.alive[work] = self.pid
        self.happen(messages.ProcessStarted(work, self.pid, 1))

    def ended(self, work: str, exit: int | None = 0, signal: int | None = None) -> None:
        self.alive.pop(work, None)
        self.happen(messages.ProcessEnded(work, Ending(exit, signal), self.now))

    def pass_time(self, seconds: float) -> list[messages.Effect]:
        """As a loop would: woken at each time that is due."""
        end, before = self.now + seconds, len(self.effects)
        while (at := next_wake_time(self.state)) is not None and at <= end:
            self.now = max(at, self.now)
            self.happen(messages.TimerFired())
        self.now = end
        return self.effects[before:]


def signals(effects: list[messages.Effect]) -> list[tuple[int, bool]]:
    """What was sent to whom: the number, and whether to all."""
    found = []
    for effect in effects:
        if isinstance(effect, messages.SendSignal):
            found.append((effect.number, effect.whole))
        elif isinstance(effect, messages.SweepProcesses) and effect.number:
            found.append((effect.number, True))
    return found


class Chaos(EngineHarness):
    """Everything that may happen, in any order."""

    def one(self) -> None:
        self.now += self.dice.choice([0.0, 0.01, 1.0, 30.0])
        often = ["may_call", "may_begin", "may_end", "may_tell", "may_grow", "may_say"] * 3
        names = [name for name in dir(self) if name.startswith("may_")]
        getattr(self, self.dice.choice(names + often))()

    def connection(self) -> int:
        ids = list(self.state.connections) or [0]
        return self.dice.choice(ids)

    def work(self) -> str:
        return self.dice.choice([*self.state.works, "w-0"])

    def may_open(self) -> None:
        if len(self.state.connections) < 5:
            self.open(self.dice.randrange(1 << 30), self.dice.choice([0, 1, 1, 2]))

    def may_close(self) -> None:
        self.happen(messages.ConnectionClosed(self.connection()))

    def may_call(self) -> None:
        one = self.connection()
        if one not in self.state.connections:
            return
        id = self.dice.randrange(1, 1 << 30)
        verb = self.dice.choice([*PURE, *PURE, "facts"])
        arguments: dict[str, Any] = {"id": self.dice.choice([f"w-{self.dice.randrange(9)}"])}
        if verb in ("start", "halt", "follow", "lease"):
            arguments = {"attempt": arguments["id"], "slot": self.dice.choice("ab")}
        if verb in ("run", "start"):
            arguments["argv"] = ["x"]
        if verb == "run":
            arguments["stdin"] = self.dice.random() < 0.5
            arguments["log_bytes"] = 1 << 20
        if verb in ("setup", "start"):
            steps = [{"argv": ["s"], "hash": self.dice.choice(["", "h"])}]
            arguments["steps" if verb == "setup" else "setup"] = steps
        if self.dice.random() < 0.3:
            arguments["lease_s"] = 20
        self.ask(one, id, verb, **arguments)

    def may_say(self) -> None:
        one = self.state.connections.get(self.connection())
        if one is None or not one.calls:
            return
        id = self.dice.choice(list(one.calls))
        payloads = {
            frames.DATA: b"\0abc",
            frames.END: b"\0",
            frames.CREDIT: (1 << 16).to_bytes(4, "big"),
            frames.CANCEL: b"",
        }
        kind = self.dice.choice(list(payloads))
        self.happen(messages.FrameReceived(one.id, frames.Frame(kind, id, payloads[kind])))

    def may_begin(self) -> None:
        starting = [id for id, pid in self.alive.items() if not pid and id in self.state.works]
        if starting:
            self.began(self.dice.choice(starting))

    def may_fail_to_begin(self) -> None:
        starting = [id for id, pid in self.alive.items() if not pid and id in self.state.works]
        if starting:
            id = self.dice.choice(starting)
            del self.alive[id]
            self.happen(messages.SpawnFailed(id, 127, "not found"))

    def may_end(self) -> None:
        running = [id for id, pid in self.alive.items() if pid]
        if running:
            self.ended(self.dice.choice(running), self.dice.choice([0, 0, 1]))

    def may_grow(self) -> None:
        work = self.state.works.get(self.work())
        if work is not None:
            length = work.length + self.dice.randrange(1 << 19)
            first = max(work.first, length - (1 << 20))
            self.happen(messages.LogGrew(work.id, first, length, work.lost_bytes))

    def may_flush(self) -> None:
        one = self.state.connections.get(self.connection())
        if one is not None:
            self.happen(messages.BytesFlushed(one.id, self.dice.randrange(one.unsent + 1)))

    def may_tell(self) -> None:
        id = self.work()
        row = {"device": "/dev/accel0"}
        told: list[messages.Event] = [
            messages.OutputsClosed(id),
            messages.ProcessesCounted(id, self.dice.choice([0, 0, 2])),
            messages.ChipUsersFound(id, self.dice.choice([(), (row,)])),
            messages.LogTailRead(id, self.dice.choice([(), ("Could not get lock",)])),
            messages.StepReported({"attempt": id, "step": 1}),
            messages.HostNotice("preempted", self.dice.choice(["TRUE", "FALSE"])),
            messages.InputConsumed(id, 3),
            messages.TimerFired(),
        ]
        self.happen(self.dice.choice(told))

    def settle(self) -> None:
        """Everything that is waited for comes."""
        for work, pid in list(self.alive.items()):
            if work not in self.state.works:
                del self.alive[work]
            elif pid:
                self.ended(work)
            else:
                self.began(work)
        for work in list(self.state.works):
            self.happen(
                messages.ProcessesCounted(work, 0),
                messages.ChipUsersFound(work, ()),
            )
            self.happen(messages.LogTailRead(work, ()))
        self.pass_time(1.0)
        for id in list(self.state.connections):
            self.happen(messages.BytesFlushed(id, 1 << 40))
            for call in list(self.state.connections[id].calls.values()):
                if call.follows and call.credit < 1 << 20:
                    more = frames.Frame(frames.CREDIT, call.id, (1 << 23).to_bytes(4, "big"))
                    self.happen(messages.FrameReceived(id, more))

    def hold(self) -> None:
        """What must always hold."""
        for one in self.state.connections.values():
            for call in one.calls.values():
                assert call.credit >= 0
                assert call.given >= 0
                work = self.state.works.get(call.work)
                assert not call.follows or (work is not None and call.offset <= work.length)
        assert all(many == 1 for many in self.answers.values())
        live = [w for w in self.state.works.values() if w.is_live and w.kind == ATTEMPT]
        assert len({work.slot for work in live}) == len(live)
        for work in self.state.works.values():
            assert work.phase != "waiting" or work.due is not None, "nobody would wake it"


@pytest.mark.parametrize("seed", SEEDS)
def test_histories(seed: int) -> None:
    play = Chaos(seed)
    for _ in range(STEPS):
        play.one()
        play.hold()
    for id in list(play.state.connections):
        play.happen(messages.BytesFlushed(id, 1 << 40))
    for _ in range(200):  # in the end all is over and everybody is answered
        play.settle()
    assert not any(work.is_live for work in play.state.works.values())
    for one in play.state.connections.values():
        assert all(call.threaded for call in one.calls.values())
    for connection, id in play.asked:
        here = play.state.connections.get(connection)
        threaded = here is not None and id in here.calls
        assert here is None or threaded or play.answers[connection, id] == 1


def test_a_reader_gets_no_more_than_its_credit() -> None:
    play = EngineHarness()
    play.open(1)
    play.ask(1, 7, "run", id="a", argv=["x"])
    play.began("a")
    play.happen(messages.LogGrew("a", 0, 1 << 24))
    poured = [effect.many for effect in play.effects if isinstance(effect, messages.SendLog)]
    assert sum(poured) == frames.WINDOW
    play.happen(messages.FrameReceived(1, frames.Frame(frames.CREDIT, 7, (5).to_bytes(4, "big"))))
    poured = [effect.many for effect in play.effects if isinstance(effect, messages.SendLog)]
    assert sum(poured) == frames.WINDOW + 5
    assert play.state.connections[1].unsent < UNSENT_MAX + frames.WINDOW


def test_a_reader_that_misses_events_learns_how_many() -> None:
    play = EngineHarness()
    play.open(1)
    for n in range(50_000):
        play.happen(messages.HostNotice("preempted", str(n)))
    assert play.state.connections[1].unsent < EVENTS_MAX + 1000
    missed = play.state.connections[1].missed
    play.happen(messages.BytesFlushed(1, 1 << 30), messages.HostNotice("preempted", "x"))
    events = [frame.content for frame in play.sent[1] if frame.kind == frames.EVENT]
    assert events[-2] == {"event": "missed", "many": missed}
    assert len(events) == 50_000 - missed + 2


def test_a_refused_call_changes_nothing() -> None:
    play = EngineHarness()
    play.open(1)
    play.ask(1, 7, "run", id="a", argv=["x"], **{"from": 10})  # a new log has no byte 10
    assert play.sent[1][-1].kind == frames.FAIL
    assert play.state.works == {}
    assert play.state.connections[1].calls == {}


def attempt(play: EngineHarness, **arguments: Any) -> None:
    play.open(1, epoch=1)
    play.ask(1, 7, "start", attempt="x-1", slot="x", argv=["train"], **arguments)
    play.began("x-1")


def test_an_attempt_that_ignores_term_is_killed_after_its_grace() -> None:
    play = EngineHarness()
    attempt(play)
    assert signals(play.ask(1, 8, "halt", attempt="x-1", grace_s=20)) == [(15, False)]
    assert signals(play.pass_time(19.9)) == []
    assert signals(play.pass_time(0.2)) == [(9, True)]
    play.ended("x-1", None, 9)
    assert signals(play.pass_time(0.1)) == [(9, True)]
    play.happen(messages.ProcessesCounted("x-1", 0))
    play.happen(messages.ChipUsersFound("x-1", ({"device": "/dev/accel0"},)))
    play.pass_time(29)
    assert play.state.works["x-1"].phase == "freeing"
    play.happen(messages.ChipUsersFound("x-1", ()))
    play.happen(
        messages.LogTailRead("x-1", ("bye",)) if play.pass_time(1) else messages.TimerFired()
    )
    assert play.last(1)["free"] is True
    assert play.last(1)["signal"] == 9


def test_leftover_processes_of_an_attempt_get_the_rest_of_the_grace() -> None:
    play = EngineHarness()
    attempt(play)
    play.ask(1, 8, "halt", attempt="x-1", grace_s=20)
    play.pass_time(5)
    play.ended("x-1", 0)
    assert signals(play.pass_time(14)) == [(15, True)]
    assert signals(play.pass_time(1.5))[0] == (9, True)


def test_chips_that_stay_in_use_are_reported_after_a_while() -> None:
    play = EngineHarness()
    attempt(play)
    play.ended("x-1", 1)
    play.pass_time(0)
    play.happen(messages.ProcessesCounted("x-1", 0))
    row = {"device": "/dev/accel0", "pid": 7}
    play.pass_time(31)
    play.happen(messages.ChipUsersFound("x-1", (row,)))
    play.pass_time(1)
    play.happen(messages.LogTailRead("x-1", ()))
    work = play.state.works["x-1"]
    assert (work.phase, work.free, work.holders) == ("ended", False, (row,))


def test_a_renewed_lease_never_expires() -> None:
    play = EngineHarness()
    attempt(play, lease_s=10)
    for id in range(10, 20):
        assert signals(play.pass_time(9)) == []
        play.ask(1, id, "lease")
    assert signals(play.pass_time(11)) == [(15, False)]
    assert play.state.works["x-1"].deadman


@pytest.mark.parametrize(
    ("key", "value", "deadly"),
    [
        ("preempted", "TRUE", True),
        ("preempted", "FALSE", False),
        ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", True),
        ("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE", False),
        ("maintenance-event", "NEVER_SEEN", False),
        ("shutdown", "TERM", True),
        ("shutdown", "REBOOT", True),
    ],
)
def test_only_deadly_notices_stop_attempts(key: str, value: str, deadly: bool) -> None:
    play = EngineHarness()
    attempt(play)
    done = play.happen(messages.HostNotice(key, value), messages.HostNotice(key, value))
    assert signals(done) == ([(15, False)] if deadly else [])
    play.open(2)
    play.ask(2, 1, "attempts")
    assert play.sent[2][-1].content["notices"] == {key: value}


@pytest.mark.parametrize(
    ("exit", "signal", "code"),
    [(None, 15, "outside"), (None, 9, "outside"), (143, None, "outside"), (137, None, "outside"),
     (75, None, ""), (None, 6, ""), (134, None, ""), (1, None, ""), (0, None, "")],
)  # fmt: skip
def test_an_end_by_a_signal_that_herd_did_not_send(
    exit: int | None, signal: int | None, code: str
) -> None:
    for title, named in (("sudo pkill -f python3", True), ("ls", False)):
        for late_s, stops in ((31.0, False), (1.0, True), (1.0, False)):
            play = EngineHarness()
            attempt(play)
            play.ask(1, 8, "run", id="c-1", shell=title)
            play.began("c-1")
            play.pass_time(late_s)
            if stops:
                play.ask(1, 9, "halt", attempt="x-1")
            play.ended("x-1", exit, signal)
            work = play.state.works["x-1"]
            assert work.code == ("" if stops else code)
            known = named and late_s < 30.0 and not stops and (code or exit == 75)
            if not stops:
                why = f"w ran `{title}` on this host a moment before"
                assert work.why == (why if known else "")


def test_a_command_waits_for_its_reader_but_not_forever() -> None:
    play = EngineHarness()
    play.open(1)
    play.ask(1, 7, "run", id="a", argv=["x"], log_bytes=1 << 20)
    play.began("a")
    assert messages.PauseOutput("a", True) in play.happen(messages.LogGrew("a", 0, 900_000))
    assert messages.PauseOutput("a", False) in play.pass_time(61)
    play.happen(messages.LogGrew("a", 0, 1_000_000))
    assert not play.state.works["a"].paused


def test_engines_learn_when_users_last_ran_a_command() -> None:
    play = EngineHarness()
    play.open(1, epoch=1)
    play.ask(1, 6, "subscribe")

    def unused_s() -> float | None:
        play.open(2)
        play.ask(2, 1, "attempts")
        found: float | None = play.last(2)["unused_s"]
        return found

    assert unused_s() is None
    play.ask(1, 7, "run", id="a", argv=["x"])
    assert {"event": "used", "time": play.now} in [frame.content for frame in play.sent[1]]
    play.began("a")
    play.pass_time(25)
    beats = [frame.content for frame in play.sent[1] if frame.content.get("event") == "heartbeat"]
    assert [(beat["attempts"], beat["used"]) for beat in beats] == [([], True)] * len(beats)
    assert len(beats) >= 2
    assert unused_s() == 0.0
    play.ended("a")
    play.happen(messages.ProcessesCounted("a", 0))
    for _ in range(5):
        play.pass_time(10)
    assert 40 <= (unused_s() or 0) <= 50


def test_a_host_that_stood_still_says_so_and_one_that_was_cut_off_does_not() -> None:
    play = EngineHarness()
    play.open(1, epoch=1)
    play.ask(1, 6, "subscribe")

    def pauses() -> list[dict[str, float]]:
        play.open(2)
        play.ask(2, 1, "attempts")
        found: list[dict[str, float]] = play.last(2)["pauses"]
        return found

    play.now += 3600.0  # nothing runs, and nothing wakes it
    play.ask(1, 7, "start", attempt="gpt-0-a1-me", argv=["x"], lease_s=9000.0)
    play.began("gpt-0-a1-me")
    for _ in range(9):
        play.pass_time(10)
    assert pauses() == []
    play.now += 300.0  # frozen
    play.pass_time(5)
    (found,) = pauses()
    assert 300 <= found["s"] <= 315 and found["ago_s"] <= 6
    beats = [frame.content for frame in play.sent[1] if frame.content.get("event") == "heartbeat"]
    assert [len(beat["pauses"]) for beat in beats][-1] == 1


@pytest.mark.parametrize("boot", ["b", "another"])
@pytest.mark.parametrize("alive", [False, True])
@pytest.mark.parametrize("phase", ["waiting", "running", "sweeping", "ended", "lost"])
def test_the_next_agent_finds_running_tasks(boot: str, alive: bool, phase: str) -> None:
    left = Task("a", COMMAND, (), 0.0, phase=phase, boot="b", pid=0 if phase == "waiting" else 5)
    work, why = adopt_previous(left, boot, alive, 10.0)
    if phase in ("ended", "lost"):
        assert (work, why) == (left, "")
    elif boot != "b" or (phase == "waiting" and not alive):
        assert work.phase == "lost"
        assert why
    else:
        assert work.adopted
        assert work.due == 10.0
