"""A loop left early saves the kept state; a state that can't be saved is refused at once."""

import json
import socket
from pathlib import Path

import pytest

from tests.conformance.world import client
from tests.integration.test_train_pods import Pod, refused, statuses, well

PROGRAM = Path(__file__).parent / "clients" / "train_loop.py"

pytestmark = [pytest.mark.real]


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(client("inside"), tmp_path / "home", PROGRAM)


def whole_steps(folder: Path) -> list[str]:
    return sorted(one.parent.name for one in folder.glob("step-*/whole.json"))


@pytest.mark.parametrize("count", [1, 2])
def test_the_kept_state_is_saved_when_the_loop_is_left(
    pod: Pod, tmp_path: Path, count: int
) -> None:
    folder = tmp_path / "saved"
    ended = pod.run(folder, "break", count=count)
    assert well(ended) == {"start": 0, "n": 6, "newest": 6}
    assert whole_steps(folder) == ["step-00000002", "step-00000006"]
    told = [line for one in ended for line in one.log.splitlines() if line.startswith("herd:")]
    assert told == ["herd: the loop was left in step 5, saved at step 6"]
    again = pod.run(folder, "no", count=count)
    assert well(again) == {"start": 6, "n": 12, "newest": 12}


def test_finish_reports_completion(pod: Pod, tmp_path: Path) -> None:
    place = str(tmp_path / "steps.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as report_socket:
        report_socket.bind(place)
        report_socket.settimeout(10)
        ended = pod.run(tmp_path / "saved", "finish", count=1, HERD_STEPS=place)
        assert well(ended)["newest"] == 6
        told = json.loads(report_socket.recv(8192))
        while "complete" not in told:
            told = json.loads(report_socket.recv(8192))
    assert (told["step"], told["saved"], told["total"]) == (6, 6, 12)


def test_a_state_donated_before_the_loop_is_left_is_named(pod: Pod, tmp_path: Path) -> None:
    (ended,) = pod.run(tmp_path / "saved", "break-before-keep", count=1)
    assert ended.status == 0
    assert whole_steps(tmp_path / "saved") == ["step-00000002"]
    assert "herd: what was kept in step 4 has been donated since and is not saved" in ended.log


@pytest.mark.parametrize("count", [1, 2])
def test_a_donated_state_that_is_kept_in_some_steps_is_refused(
    pod: Pod, tmp_path: Path, count: int
) -> None:
    """At the first such step, and not by a traceback when the node goes away."""
    ended = pod.run(tmp_path / "saved", "some", count=count)
    refused(
        ended, "run.keep() was not called in step 1, and the arrays that it was given in step 0"
    )


def test_a_host_that_leaves_by_an_exception_saves_nothing(pod: Pod, tmp_path: Path) -> None:
    ended = pod.run(tmp_path / "saved", "raise")
    assert statuses(ended)[1] == 1
    assert "a mistake of the script" in ended[1].log
    assert "the loop was left" not in ended[0].log + ended[1].log
    assert whole_steps(tmp_path / "saved") == ["step-00000002"]
