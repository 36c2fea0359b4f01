"""What commands say about an engine that is starting, and about a world that never existed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engines import Owner, owner

pytestmark = pytest.mark.real


@pytest.fixture
def user() -> Iterator[Owner]:
    with owner() as found:
        yield found


def test_right_after_run_no_command_claims_that_no_engine_runs(user: Owner) -> None:
    for number in range(5):
        user.herd("engine", "stop")
        user.job(f"gpt{number}", "sleep 3600", accelerator="v4-8")
        why = user.herd("why", f"gpt{number}")
        assert why.returncode == 0 and "No engine runs" not in why.stdout


def test_an_engine_that_keeps_crashing_is_reported(user: Owner) -> None:
    user.job("gpt", "sleep 3600", accelerator="v4-8")
    for many in (1, 2, 3):
        user.happened("engine.started", many=many)
        assert user.kill_engine()
        user.herd("ls")  # begins the next
    user.happened("engine.crashed", many=3)
    assert "3 times in a row: it was killed" in user.herd("why", "gpt").stdout
    assert "3 times in a row" in user.herd("engine", "status").stderr
    assert "engine.crashed" in user.herd("events").stdout


@pytest.mark.parametrize("words", [("ls",), ("why", "gpt"), ("events",), ("types", "--zones")])
def test_a_world_that_never_existed_is_an_error(
    user: Owner, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = user.herd(*words, env={"HERD_WORLD": str(tmp_path / "nowhere")})
    assert (done.returncode, done.stdout) == (4, "")
    assert f"there is no world in {tmp_path}/nowhere" in done.stderr
    assert "herd sim start --state-dir" in done.stderr
