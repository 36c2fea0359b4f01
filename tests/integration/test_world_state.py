"""Worlds as processes: killed, stopped, without disk space, and started again."""

import json
import resource
from pathlib import Path

import pytest

from tests.integration.worlds import herd, running, said, until

pytestmark = pytest.mark.real


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "world"


def test_a_kill_loses_nothing_that_was_acknowledged(folder: Path) -> None:
    names = [f"n{number}" for number in range(30)]
    with running(folder) as world:
        for name in names:
            world.create(name)
        world.kill()
    with running(folder) as world:
        assert set(world.nodes()) == set(names)
    assert (
        "the world was not stopped properly: "
        "recovered 30 nodes, 0 queued resources and 30 journal entries\n"
    ) in said(folder)


def test_a_kill_during_a_write_drops_that_line_and_says_so(folder: Path) -> None:
    with running(folder) as world:
        world.create("a")
        world.create("b")
        world.kill()
    [journal] = folder.glob("journal-*")
    journal.write_bytes(journal.read_bytes()[:-20])
    with running(folder) as world:
        assert set(world.nodes()) == {"a"}
        world.create("c")
        world.kill()
    assert "1 journal entry; dropped the last entry, which was incomplete\n" in said(folder)
    with running(folder) as world:
        assert set(world.nodes()) == {"a", "c"}


def test_a_restarted_world_continues_at_the_same_address(folder: Path) -> None:
    with running(folder, "--time-scale", "100") as world:
        world.create("a")
        before = world.facts
        assert world.stop() == 0
        assert world.facts["pid"] is None
    with running(folder) as world:
        facts = world.facts
        for name in ("port", "ssh_port", "tunnel_port", "network", "project", "url"):
            assert facts[name] == before[name], name
        until(lambda: world.nodes() == {"a": "READY"}, "the node to be READY")
        status = json.loads(
            herd("sim", "status", "--json", home=folder, HERD_WORLD=str(folder)).stdout
        )
        assert status["time_scale"] == 100
    assert said(folder) == ""


def test_a_full_disk_is_an_answer_and_the_world_continues(folder: Path) -> None:
    with running(folder) as world:
        world.create("a")
        [journal] = folder.glob("journal-*")
        size = journal.stat().st_size + 10
        resource.prlimit(world.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        status, answer = world.ask(
            "POST", "/v2/projects/demo/locations/us-central2-b/nodes?nodeId=b", {}
        )
        assert (status, answer["error"]["status"]) == (503, "UNAVAILABLE")
        assert "nothing was done" in answer["error"]["message"]
        assert set(world.nodes()) == {"a"}
        resource.prlimit(
            world.process.pid,
            resource.RLIMIT_FSIZE,
            (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
        )
        world.create("b")
        world.kill()
    with running(folder) as world:
        assert set(world.nodes()) == {"a", "b"}


def test_two_worlds_side_by_side_share_nothing(tmp_path: Path) -> None:
    one, two = tmp_path / "1" / "w", tmp_path / "2" / "w"
    with running(one) as first, running(two) as second:
        first.create("a")
        assert second.nodes() == {}
        for name in ("port", "ssh_port", "tunnel_port", "network"):
            assert first.facts[name] != second.facts[name], name


def test_no_other_user_can_read_the_state(folder: Path) -> None:
    with running(folder) as world:
        world.create("a")
        assert folder.stat().st_mode & 0o777 == 0o700
        for file in folder.iterdir():
            if file.is_file():
                assert file.stat().st_mode & 0o077 == 0, file
