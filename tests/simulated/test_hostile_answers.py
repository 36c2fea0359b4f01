"""Lying clouds and hosts, in small; `make abuse` sends 10,000 of each kind."""

from collections.abc import Iterable
from random import Random

import pytest

from tests.simulated import fuzz_answers, fuzz_messages
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_links import VirtualLink
from tests.simulated.engine_programs import Script
from tests.simulated.fuzz_answers import ALL_CALLS
from tests.simulated.fuzz_messages import CASES, KINDS, lie_to_engine, unharmed
from tpuherd_host.agent import frames

SEEDS = pytest.mark.parametrize("seed", [1, 2], ids=lambda seed: f"seed-{seed}")


@SEEDS
def test_an_altered_answer_is_an_error_in_a_sentence(seed: int) -> None:
    assert fuzz_answers.alter_answers(seed, 600) == []


def test_every_function_that_asks_the_cloud_is_tried() -> None:
    assert len(ALL_CALLS) > 40
    assert {"nodes", "buckets_api.get_bucket", "quota_api.list_quota_limits"} & set(ALL_CALLS)


def test_an_engine_outlives_a_lying_cloud() -> None:
    assert fuzz_answers.lie_to_engine(3, 60) == []


@SEEDS
def test_an_altered_stream_of_an_agent_breaks_its_connection_only(seed: int) -> None:
    assert fuzz_messages.garble_protocol(seed, 200) == []


def test_a_lying_host_harms_its_own_job_only() -> None:
    found, told = lie_to_engine(1, CASES[: len(KINDS)])
    assert found == []
    assert told.keys() == {*KINDS}, "each kind of message had its occasion"


def test_lies_in_two_kinds_of_messages_harm_their_own_job_only() -> None:
    assert lie_to_engine(2, Random(2).sample(CASES[len(KINDS) :], 16))[0] == []


def test_a_host_that_names_another_leader_stops_the_engine_for_its_own_job_only() -> None:
    refusal = {"error": "outdated", "sentence": "an engine with epoch 7 leads here"}

    def answered(line: VirtualLink, piece: bytes) -> Iterable[bytes]:
        (frame,) = frames.FrameReader().feed(piece)
        if frame.kind == frames.REPLY and line.machine.view.node.startswith("gpt"):
            return [frames.pack_json(frames.FAIL, frame.id, refusal)]
        return [piece]

    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(job="gpt", zones=("us-east5-a",)))
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        play.sim.fleet.answered = answered
        play.submit(SimJob(job="bert", zones=("us-east5-a",)))
        assert await play.until(lambda: "bert-0" in play.sim.fleet.bucket.finished, 3600.0)
        assert list(unharmed(play, "bert")) == []
        assert (play.lives, play.troubles) == (1, [])
        assert "say that an engine with epoch 7 leads" in play.store.slot_messages()["gpt-0"]
        assert len(play.events("bid.withdrawn")) == 1, "bert's: gpt keeps its node"
        play.down("gpt")
        assert await play.until(lambda: not play.sim.remains(), 1800.0)
        play.sim.fleet.answered = lambda line, piece: [piece]
        play.submit(SimJob(job="gpt", zones=("us-east5-a",)))
        assert await play.until(lambda: len(play.events("attempt.started")) == 3, 3600.0)

    perform(plot, scripts={"gpt": Script(steps=5000), "*": Script(steps=90)})
