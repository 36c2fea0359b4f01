"""Store, code and secrets are lost: they are recovered from the cloud and the hosts."""

import shutil
from collections.abc import Iterator

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner

pytestmark = pytest.mark.real


@pytest.fixture
def user() -> Iterator[Owner]:
    with owner() as found:
        yield found


def lose_all(user: Owner) -> None:
    """Everything but the key pair and the owner's name."""
    user.leave()
    shutil.rmtree(user.home / ".local/state/tpuherd")


def why(user: Owner, job: str) -> str:
    return user.herd("why", job).stdout


def test_the_same_code_runs_on_a_new_node_after_everything_was_lost(user: Owner) -> None:
    code = user.home / "code"
    code.mkdir()
    (code / "train.py").write_text("print('first words')")
    run = "python3 train.py; until [ -e ~/finish ]; do sleep 0.2; done"
    user.job("gpt", run, workdir=str(code))
    user.happened("attempt.started")
    (code / "train.py").write_text("print('later words')")
    lose_all(user)  # and a running engine notices that its store is gone
    assert user.herd("ls").returncode == 0
    user.happened("bid.adopted")
    archive = user.home / ".local/state/tpuherd/snapshots"
    until(lambda: list((archive / "rows").glob("?" * 64)), "the code to be here again", seconds=60)
    assert len(list((archive / "pins").glob("engine.*"))) == 1
    user.world.herd("preempt", user.events("bid.adopted")[0].facts["bid"])
    user.happened("attempt.started", many=1, seconds=120)
    again = user.events("attempt.started")[-1].facts["attempt"]
    until(
        lambda: "first words" in user.said().get(f"{again}/0", []),
        "the code as it was submitted",
        seconds=30,
    )


def test_irrecoverable_inputs_are_named_and_waited_for(user: Owner) -> None:
    code = user.home / "code"
    code.mkdir()
    (code / "train.py").write_text("print('words')")
    token = user.home / "token"
    token.write_text("k1")
    fields = {"workdir": str(code), "secrets": {"TOKEN": {"file": str(token)}}}
    user.job("gpt", 'python3 train.py; echo "has-$TOKEN"; sleep 1000', **fields)
    started = user.happened("attempt.started")
    user.herd("engine", "stop")
    lose_all(user)
    user.world.herd("preempt", started.facts["bid"])
    assert user.herd("ls").returncode == 0
    user.happened("slot.setup_failed", seconds=120)
    until(lambda: "there is no value for the secret TOKEN" in why(user, "gpt"), "why")
    nodes = {event.facts["bid"] for event in user.events("slot.setup_failed")}
    user.job("gpt", 'python3 train.py; echo "has-$TOKEN"; sleep 1000', **fields)
    again = user.happened("attempt.started", seconds=60)
    assert again.facts["bid"] in nodes  # it was waited on the node that is there
    log = f"{again.facts['attempt']}/0"
    until(lambda: user.said().get(log) == ["words", "has-k1"], "both", seconds=30)
