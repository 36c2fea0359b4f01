"""A host that lies: altered messages of its agent, for the engine and for the protocol.

`python -m tests.simulated.fuzz_messages 10000` alters that many streams, and has hosts lie in each
kind of message that they can send and in each pair of kinds, from seeds.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

from tests.hostile_words import VALUES, WORDS, mutate, mutate_bytes
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_links import VirtualLink
from tests.simulated.engine_programs import Script
from tests.simulated.engine_world import ZONES
from tests.simulated.fuzz_seeds import play_seeds
from tests.simulated.virtual_loop import run
from tpuherd import engine
from tpuherd.engine.host_messages import PHASES
from tpuherd.ports import RpcRequest
from tpuherd.remote.agent_channel import (
    ERRORS,
    EVENT_BYTES_MAX,
    EVENTS_MAX,
    SLACK,
    Call,
    Multiplexer,
)
from tpuherd_host.agent import frames
from tpuherd_host.agent.state_machine.rpc_methods import __doc__ as reference

FACTS_MAX = 64_000  #: characters of one event's facts
EVENTS_MAX_EACH = 150  #: in the store, of a job with a hostile host
STREAM_MAX = 5 << 20
ATTEMPT = "gpt-0-a1-7kq"
REPORT = {"step": 12, "total": 100, "saved": 10, "step_s": 1.5, "loss": 2.5, "time": 1.8e9,
          "resumed": 3, "restore_s": 2.0, "compile_s": 9.0, "best_step": 4, "saves": 2}  # fmt: skip
WORK = {
    "id": ATTEMPT, "kind": "attempt", "phase": "running", "slot": "gpt-0", "number": 1, "stage": 0,
    "stages": 1, "stage_name": "run", "asked": 1_800_000_000.0, "started": 1_800_000_001.0,
    "ended": None, "exit": None, "signal": None, "stopped": False, "deadman": False, "why": "",
    "tail": ["step 1", "step 2"], "length": 100, "logged": 1_800_000_002.0, "report": REPORT,
}  # fmt: skip
#: What agents say unasked.
MESSAGES: tuple[dict[str, Any], ...] = (
    {"event": "attempt", **WORK},
    {"event": "attempt", **WORK, "kind": "setup", "id": "gpt-0-g1-7kq-setup-102952-0"},
    {"event": "ended", **WORK, "phase": "ended", "ended": 1_800_000_009.0, "exit": 0},
    {"event": "step", "attempt": ATTEMPT, "report": REPORT},
    {"event": "heartbeat", "attempts": [{"id": ATTEMPT, "report": REPORT}], "used": True},
    {"event": "notice", "what": "maintenance-event", "value": "NONE"},
    {"event": "notice", "what": "preempted", "value": "FALSE"},
    {"event": "sample", "cpu": 50.0, "ram": [1, 2], "disk": [1, 2], "net": [1.0, 2.0],
     "chips": [[1, 2, 50.0]], "why": ""},
    {"event": "used"},
    {"event": "missed", "many": 3},
)  # fmt: skip


#: Kinds of events, by the protocol's reference, and verbs that engines call.
EVENTS = re.findall(r'(\w+) +\{"', str(reference).partition("Events (EVENT")[2])
SOURCES = "".join(one.read_text() for one in Path(engine.__path__[0]).glob("*.py"))
VERBS = re.findall(r'(?:call_agent\(\w+, |RpcRequest\(name=)"([\w.]+)"', SOURCES)
ANSWERS = tuple(f"{word} {verb}" for verb in sorted({*VERBS}) for word in ("reply", "data"))
KINDS = ("hello", *(f"event {name}" for name in sorted({*EVENTS})), *ANSWERS)
CASES: tuple[tuple[str, ...], ...] = (*((one,) for one in KINDS), *combinations(KINDS, 2))
PARTS = 20  #: so many seeds have all cases
GRID = {"method": "grid", "parameters": {"lr": [1, 2]}, "metric": "loss"}
SCRIPTS = {
    "bert": Script(steps=60, step_s=10.0),
    "late": Script(steps=6, step_s=10.0),
    "*": Script(steps=20, step_s=5.0, metric="loss", hangs={1: 9}),
}


@dataclass(kw_only=True)
class Liars:
    """The first hosts of some jobs, which lie in some kinds of messages."""

    cases: Mapping[str, tuple[str, ...]]  #: kinds by job
    dice: Random
    verbs: dict[tuple[VirtualLink, int], str] = field(default_factory=dict)  #: of calls
    told: Counter[str] = field(default_factory=Counter)  #: lies, by kind
    sent: set[str] = field(default_factory=set)  #: kinds that agents send by themselves

    def note_call(self, line: VirtualLink, piece: bytes) -> bool:
        for frame in frames.FrameReader().feed(piece):
            if frame.kind == frames.CALL:
                self.verbs[line, frame.id] = str(frame.content["verb"])
        return True

    def alter(self, line: VirtualLink, piece: bytes) -> Iterator[bytes]:
        """Yield what comes of a frame: lies in its place, and lies beside it."""
        (frame,) = frames.FrameReader().feed(piece)
        event = str(frame.content["event"]) if frame.kind == frames.EVENT else ""
        verb = self.verbs.get((line, frame.id), "")
        words = {frames.HELLO: "hello", frames.EVENT: f"event {event}", frames.DATA: f"data {verb}"}
        kind = words.get(frame.kind, f"reply {verb}")
        self.sent.add(kind)
        job = line.machine.view.node.partition("-")[0]
        lies = self.cases.get(job, ()) if line.machine.view.worker == 0 else ()
        for one in lies:
            if one == kind:
                yield from self.tell(job, one, frame, frame.payload)
            elif event and one.startswith("event "):
                usual = [said for said in MESSAGES if f"event {said['event']}" == one] or [WORK]
                content = {**self.dice.choice(usual), "event": one[6:]}
                yield from self.tell(job, one, frame, json.dumps(content).encode())
            elif one.startswith("data ") and kind == f"reply {one[5:]}":
                piece_of_data = self.dice.randbytes(self.dice.choice([1, 2, 9000]))
                yield from self.tell(job, one, frame, piece_of_data)
        if kind not in lies:
            yield piece

    def tell(self, job: str, kind: str, frame: frames.Frame, usual: bytes) -> Iterator[bytes]:
        """Yield lies of this kind, made of a usual payload: none, one, or many."""
        dice, word = self.dice, kind.partition(" ")[0]
        self.told[kind] += 1
        for _ in range(dice.choice([0, 1, 1, 1, 20 if word == "event" else 2])):
            if word == "data":
                yield frames.pack_frame(frames.DATA, frame.id, mutate_bytes(usual, dice))
            elif word == "reply" and dice.random() < 0.4:
                error = dice.choice([*ERRORS, "busy", "taken", "dropped", WORDS["path"]])
                said = alter_content({"error": error, "sentence": "x", "hint": "y"}, job, dice)
                yield frames.pack_json(frames.FAIL, frame.id, said)
            else:
                said = alter_content(json.loads(usual), job, dice)
                yield frames.pack_json(frame.kind, frame.id, said)


def alter_content(content: Any, job: str, dice: Random) -> dict[str, Any]:
    """Alter a message: it is about another's job, or what no one knows, or makes no sense."""
    text = json.dumps(content).replace("gpt-0", f"{job}-0")
    content = json.loads(text.replace(job, "bert") if dice.random() < 0.2 else text)
    if "phase" in content and dice.random() < 0.4:
        content |= {"phase": dice.choice(PHASES), "id": f"x{dice.randrange(10**6)}"}
    while dice.random() < 0.6:
        content = mutate(content, dice)
    return content if isinstance(content, dict) else {"event": content}


def lie_to_engine(seed: int, cases: Sequence[tuple[str, ...]]) -> tuple[list[str], Counter[str]]:
    """Play a history with a job for each case, whose first host lies in these kinds of messages;
    return what was wrong, and how often each lie was told. Two honest jobs must notice nothing: one
    that runs, and one that is submitted meanwhile.
    """
    liars = Liars(cases={f"x{n}": case for n, case in enumerate(cases)}, dice=Random(seed))

    async def plot(play: EngineHarness) -> list[str]:
        play.sim.fleet.called, play.sim.fleet.answered = liars.note_call, liars.alter
        play.submit(SimJob(job="bert", zones=ZONES[:1]))
        await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        for number, (job, kinds) in enumerate(liars.cases.items()):
            sweep = GRID if number % 4 == 0 or "trial." in "".join(kinds) else None
            play.submit(SimJob(job=job, zones=ZONES[:1], sweep=sweep, checkpoint="gs://x/y",
                               packed=True, limits={"stall_s": 60.0}))  # fmt: skip
        await play.advance(300.0)
        play.submit(SimJob(job="late", zones=ZONES[:1]))
        finished = play.sim.fleet.bucket.finished
        await play.until(lambda: {"bert-0", "late-0"} <= finished.keys(), 3600.0)
        await play.advance(120.0)
        found = [*play.troubles, *([] if play.lives == 1 else [f"{play.lives} engines"])]
        found += [*unharmed(play, "bert"), *unharmed(play, "late"), *bounded(play, len(cases))]
        found += [f"{kind} is not in the reference" for kind in liars.sent.difference(KINDS)]
        for job in play.store.stored_jobs():
            play.down(job)
        if not await play.until(lambda: not play.sim.remains(), 1800.0):
            found.append(f"after down there is {play.sim.remains()}")
        return [f"{len(cases)} liars, seed {seed}: {one}" for one in found]

    found: list[str] = perform(plot, seed=seed, scripts=SCRIPTS, haste=5.0)
    if found and len(cases) > 1:  # whose lies were they?
        found += [f"{case}: {one}" for case in cases for one in lie_to_engine(seed, [case])[0]]
    return found, liars.told


def lie_in_part(seed: int, many: int) -> list[str]:
    """Tell the lies of one of PARTS of all cases."""
    return lie_to_engine(seed, CASES[seed % PARTS :: PARTS])[0]


def unharmed(play: EngineHarness, job: str) -> Iterator[str]:
    """What the lies did to another job, and to this machine."""
    ended = [one.facts["verdict"] for one in play.events("attempt.ended") if one.job == job]
    if ended != ["success"]:
        yield f"{job} ended {ended}"
    if len({str(e.facts["bid"]) for e in play.events("bid.requested") if e.job == job}) != 1:
        yield f"{job} was given another node"
    yield from (f"{job}: {e.kind}" for e in play.events() if e.job == job and "host." in e.kind)
    strays = list(play.folder.parent.glob("*pwned*"))
    yield from (f"{path} was written" for path in strays)


def bounded(play: EngineHarness, liars: int) -> Iterator[str]:
    """What they left in the store."""
    told = [event for event in play.events() if event.job not in ("bert", "late")]
    if len(told) > EVENTS_MAX_EACH * liars:
        yield f"{len(told)} events"
    yield from (
        f"{event.kind} has {len(json.dumps(dict(event.facts)))} characters"
        for event in told
        if len(json.dumps(dict(event.facts))) > FACTS_MAX
    )
    logs = list((play.folder / "logs").iterdir())
    if len(logs) > 2100 * liars:
        yield f"{len(logs)} logs"


# ---- the protocol --------------------------------------------------------------------------------


class Sink:
    """A wire that remembers whether it was closed."""

    closed = False

    def write(self, piece: bytes) -> None: ...

    def close(self) -> None:
        self.closed = True


def good_stream(dice: Random, ids: list[int]) -> bytes:
    """Frames as an agent sends them."""
    hello = {"protocol": frames.PROTOCOL, "agent": "x", "boot": "b", "host": "h"}
    pieces = [frames.pack_json(frames.HELLO, 0, hello)]
    for _ in range(dice.randrange(1, 12)):
        id = dice.choice([*ids, 77])
        pieces.append(
            dice.choice(
                [
                    frames.pack_json(frames.EVENT, 0, dice.choice(MESSAGES)),
                    frames.pack_json(frames.REPLY, id, {"time": 1.0}),
                    frames.pack_json(frames.FAIL, id, {"error": "unfit", "sentence": "no"}),
                    frames.pack_data(id, 1, dice.randbytes(dice.choice([0, 1, 5000]))),
                    frames.pack_credit(id, dice.choice([1, 1 << 16, 0xFFFFFFFF])),
                    frames.pack_frame(frames.FAIL, id, odd_payload(dice)),
                    frames.pack_frame(frames.EVENT, 0, odd_payload(dice)),
                ]
            )
        )
    return b"".join(pieces)


def odd_payload(dice: Random) -> bytes:
    """JSON, mostly, of odd things."""
    word = dice.choice(list(WORDS.values()))
    odd = {"error": dice.choice(VALUES), "sentence": word * dice.choice([1, 3]), "hint": word}
    return dice.choice(
        [
            json.dumps(odd).encode(),
            json.dumps(odd, ensure_ascii=False).encode(errors="surrogatepass"),
            b"[" * 5000,
            b'{"event": ' + b"9" * 5000 + b"}",
            b"\xff\xfe" + json.dumps(odd).encode("utf-16-le", "surrogatepass"),
            b"",
        ]
    )


def garble_protocol(seed: int, many: int) -> list[str]:
    """What was wrong when a stream of an agent was altered, this many times."""

    async def main() -> list[str]:
        dice, found = Random(seed), []
        for number in range(many):
            sink = Sink()
            mux = Multiplexer(sink)
            listener = mux.iter_events()
            calls = [mux.open_call(RpcRequest(name="ping")) for _ in range(3)]
            stream = good_stream(dice, [call.id for call in calls])
            if dice.random() < 0.7:
                stream = mutate_bytes(stream, dice)
            try:
                while stream:
                    at = dice.choice([1, 7, 1 << 16])
                    mux.feed(stream[:at])
                    stream = stream[at:]
            except Exception as error:  # noqa: BLE001 - any that gets out is a finding
                found.append(f"stream {number}: {type(error).__name__}: {error}"[:300])
            found += [f"stream {number}: {said}" for said in overfull(mux, calls)]
            if mux.error is not None and not sink.closed:
                found.append(f"stream {number}: broken, and not closed")
            mux.mark_broken(mux.error or RuntimeError("end"))  # type: ignore[arg-type]
            await listener.aclose()  # type: ignore[attr-defined]
        return found

    return run(main())


def overfull(mux: Multiplexer, calls: list[Call]) -> Iterator[str]:
    """What is held although nobody reads it."""
    for call in calls:
        if sum(map(len, call._pieces)) > frames.WINDOW + SLACK + len(call._pieces):
            yield "a call holds more than its credit"
        if len(call._pieces) > frames.WINDOW + SLACK:
            yield "a call holds pieces without content"
        if call._error is not None and len(call._error.sentence) > 5000:
            yield f"an error of {len(call._error.sentence)} characters"
    for one in mux.listeners:
        if one._bytes > EVENT_BYTES_MAX + frames.PAYLOAD_MAX or one._queue.qsize() > EVENTS_MAX + 1:
            yield "a listener holds too much"


def main() -> int:
    many, bad = play_seeds({"engine": lie_in_part, "protocol": garble_protocol})
    print(f"lies of {len(KINDS)} kinds, alone and in pairs; {many} streams: {bad} findings")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
