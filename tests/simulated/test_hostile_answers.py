"""Lying clouds and hosts, in small; `make abuse` sends 10,000 of each kind."""

import pytest

from tests.simulated import fuzz_answers, fuzz_messages
from tests.simulated.fuzz_answers import ALL_CALLS

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
    assert fuzz_messages.lie_to_engine(3, 160) == []
