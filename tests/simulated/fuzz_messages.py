"""A host that lies: altered messages of its agent, for the engine and for the protocol.

`python -m tests.simulated.fuzz_messages 10000` sends that many of each, from seeds.
"""

import json
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.hostile_words import VALUES, WORDS, mutate, mutate_bytes
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_programs import Script
from tests.simulated.fuzz_seeds import play_seeds
from tests.simulated.virtual_loop import run
from tpuherd.ports import RpcRequest
from tpuherd.remote.agent_channel import EVENT_BYTES_MAX, EVENTS_MAX, SLACK, Call, Multiplexer
from tpuherd_host.agent import frames

BURST = 20
PAUSE_S = 3.0
FACTS_MAX = 64_000  #: characters of one event's facts
EVENTS_APART = 40  #: of a hostile host: at most so many events, and one for this many messages
STREAM_MAX = 5 << 20
SCRIPTS = {
    "gpt": Script(steps=2000, step_s=5.0),
    "bert": Script(steps=100, step_s=5.0),
}
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


def hostile_messages(dice: Random, many: int) -> Iterator[dict[str, Any]]:
    """Altered ones; some are whole, but about somebody else's attempt."""
    for _ in range(many):
        message: Any = dice.choice(MESSAGES)
        if dice.random() < 0.15:
            message = message | {"id": f"x{dice.randrange(10**6)}", "phase": "running"}
        while dice.random() < 0.85:
            message = mutate(message, dice)
            if not isinstance(message, dict):
                message = {"event": message}
        yield message


def lie_to_engine(seed: int, many: int) -> list[str]:
    """What was wrong in a history in which one host of `gpt` sends so many messages."""
    dice = Random(seed)

    async def plot(play: EngineHarness) -> list[str]:
        play.submit(SimJob(job="gpt", zones=("us-east5-a",)))
        play.submit(SimJob(job="bert", zones=("us-east5-b",)))
        await play.until(lambda: len(play.events("attempt.started")) == 2, 3600.0)
        sent = 0
        while sent < many:
            machines = [one for one in play.sim.machines() if one.view.node.startswith("gpt")]
            for message in hostile_messages(dice, BURST) if machines else ():
                for line in list(machines[0].lines.values()):
                    line.down.send(pack_odd(message))
            sent += BURST
            await play.advance(PAUSE_S)
        found = [*play.troubles, *([] if play.lives == 1 else [f"{play.lives} engines"])]
        await play.until(lambda: "bert-0" in play.sim.fleet.bucket.finished, 3600.0)
        await play.advance(120.0)
        found += list(unharmed(play)) + list(bounded(play, many))
        for job in ("gpt", "bert"):
            play.down(job)
        if not await play.until(lambda: not play.sim.remains(), 1800.0):
            found.append(f"after down there is {play.sim.remains()}")
        return found

    found: list[str] = perform(plot, seed=seed, scripts=SCRIPTS)
    return found


def pack_odd(message: dict[str, Any]) -> bytes:
    """A frame; the JSON of our own packer refuses nothing that a hostile one would send."""
    return frames.pack_json(frames.EVENT, 0, message)


def unharmed(play: EngineHarness) -> Iterator[str]:
    """What the lies did to the other job, and to this machine."""
    ended = [one.facts["verdict"] for one in play.events("attempt.ended") if one.job == "bert"]
    if ended != ["success"]:
        yield f"bert ended {ended}"
    if len({str(e.facts["bid"]) for e in play.events("bid.requested") if e.job == "bert"}) != 1:
        yield "bert was given another node"
    yield from (f"bert: {e.kind}" for e in play.events() if e.job == "bert" and "host." in e.kind)
    strays = list(play.folder.parent.glob("*pwned*"))
    yield from (f"{path} was written" for path in strays)


def bounded(play: EngineHarness, many: int) -> Iterator[str]:
    """What they left in the store."""
    told = [event for event in play.events() if event.job != "bert"]
    if len(told) > EVENTS_APART * (2 + many / 100):
        yield f"{len(told)} events"
    yield from (
        f"{event.kind} has {len(json.dumps(dict(event.facts)))} characters"
        for event in told
        if len(json.dumps(dict(event.facts))) > FACTS_MAX
    )
    logs = list((play.folder / "logs").iterdir())
    if len(logs) > 2100:
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
    many, bad = play_seeds({"engine": lie_to_engine, "protocol": garble_protocol})
    print(f"{many} messages to an engine, {many} streams: {bad} findings")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
