"""Hosts fetch the checkpoint while they are set up, and no attempt ever waits for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_links import VirtualLink
from tests.simulated.engine_programs import Script
from tpuherd_host.agent import frames

SCRIPTS = {"*": Script(steps=30, step_s=2.0, init_s=1.0)}
Told = list[tuple[str, Mapping[str, Any]]]


@dataclass(kw_only=True)
class Fetching:
    """Answers `checkpoint.fetch` in the agent's place."""

    play: EngineHarness
    answer: Callable[[VirtualLink, int], None]
    asked: dict[str, Mapping[str, Any]] = field(default_factory=dict)  #: variables, by host

    def called(self, line: VirtualLink, piece: bytes) -> bool:
        if piece[4] != frames.CALL:
            return True
        [frame] = frames.FrameReader().feed(piece)
        if frame.content.get("verb") != "checkpoint.fetch":
            return True
        self.asked[line.machine.name] = frame.content["env"]
        self.answer(line, frame.id)
        return False


def fetched(line: VirtualLink, call: int) -> None:
    first = line.machine.view.worker == 0
    found = {"step": 300, "bytes": 2_000_000 if first else 500_000, "programs": 1, "trouble": ""}
    line.down.send(frames.pack_json(frames.REPLY, call, found))


def unreachable(line: VirtualLink, call: int) -> None:
    found = {"step": None, "bytes": 0, "programs": 0, "trouble": "gs://kept: forbidden (HTTP 403)"}
    line.down.send(frames.pack_json(frames.REPLY, call, found))


def nonsense(line: VirtualLink, call: int) -> None:
    line.down.send(frames.pack_json(frames.REPLY, call, {"step": "\x1b[31m", "bytes": -1}))


def silent(line: VirtualLink, call: int) -> None:
    """It takes longer than everything else."""


def run_job(answer: Callable[[VirtualLink, int], None]) -> tuple[Fetching, Told]:
    """Run a job of two hosts to its end; return what was asked, and what the engine told of it."""

    async def plot(play: EngineHarness) -> tuple[Fetching, Told]:
        found = Fetching(play=play, answer=answer)
        play.sim.fleet.called = found.called
        play.submit(SimJob(zones=("us-east5-a",), checkpoint="gs://kept/gpt"))
        assert await play.until(lambda: bool(play.events("slot.done")), 3600.0), play.unmet_jobs()
        told = [(one.kind, one.facts) for one in play.history()]
        assert await play.close() == []
        return found, told

    found: tuple[Fetching, Told] = perform(plot, scripts=SCRIPTS)
    return found


def test_hosts_are_asked_with_their_variables_and_the_engine_reports_it() -> None:
    found, told = run_job(fetched)
    assert sorted(env["HERD_WORKER"] for env in found.asked.values()) == ["0", "1"]
    assert {env["HERD_CHECKPOINT"] for env in found.asked.values()} == {"gs://kept/gpt"}
    kinds = [kind for kind, _ in told]
    assert kinds.index("checkpoint.fetched") < kinds.index("attempt.launched")
    (facts,) = [facts for kind, facts in told if kind == "checkpoint.fetched"]
    assert (facts["hosts"], facts["step"], facts["bytes"]) == (2, 300, 2_000_000)
    what = "the checkpoint of step 300 (2.0 MB) and 1 compiled program"
    assert facts["why"].startswith(f"2 hosts fetched {what} in ")
    assert "checkpoint.not_fetched" not in kinds


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [(unreachable, "forbidden (HTTP 403)"), (nonsense, "its answer is invalid"), (silent, "")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_attempt_starts_all_the_same(answer: Any, sentence: str) -> None:
    found, told = run_job(answer)
    assert len(found.asked) == 2
    assert not [kind for kind, _ in told if kind in ("checkpoint.fetched", "slot.setup_failed")]
    messages = [facts["message"] for kind, facts in told if kind == "checkpoint.not_fetched"]
    assert len(messages) == (1 if sentence else 0)
    assert all(sentence in one for one in messages)
