"""What `herd setup gcp` refuses before it asks the cloud, and what it makes of good input."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.conftest import Herd, use_home
from tests.simulated.setup_user import OPTIONS, access
from tpuherd.errors import InvalidInput
from tpuherd.exit_status import UNREACHED
from tpuherd.project_setup.journal import journal_file
from tpuherd.project_setup.read_request import is_wide, read_request


@pytest.fixture(autouse=True)
def silent_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose a world at whose address nothing listens."""
    facts = {"project": "demo", "url": "http://127.0.0.1:1", "ssh_port": 1, "pid": 1}
    (tmp_path / "world.json").write_text(json.dumps(facts))
    use_home(tmp_path, monkeypatch)
    monkeypatch.setenv("HERD_WORLD", str(tmp_path))


def test_a_cloud_out_of_reach_and_a_damaged_journal_are_a_sentence(
    herd: Herd, tmp_path: Path
) -> None:
    status, out, err = herd("setup", "gcp", "--dry-run")
    assert (status, out) == (UNREACHED, "")
    assert "the cloud at http://127.0.0.1:1 can't be reached" in err
    folder = tmp_path / ".config/tpuherd/setup"
    assert not folder.exists(), "a dry run writes nothing"
    status, out, err = herd("setup", "gcp", "--undo")
    assert (status, err) == (0, "")
    assert out == f"Nothing to undo in the world in {tmp_path}.\n"
    folder.mkdir(parents=True)
    place = replace(access(tmp_path, world=True), world=tmp_path)
    name = journal_file(place).name
    (folder / name).write_text("{")
    for words in (("--undo",), ("--dry-run",)):
        status, out, err = herd("setup", "gcp", *words)
        assert (status, out) == (2, "")
        assert f"{name} can't be used" in err
        assert err.count("\n") == 1


def request(tmp_path: Path, **said: Any) -> Any:
    return read_request({**OPTIONS, **said}, access(tmp_path))


def test_good_input_is_completed(tmp_path: Path) -> None:
    found = request(
        tmp_path, sources=["203.0.113.7", "198.51.100.0/24", "203.0.113.7/32"],
        apis=["storage", "logging.googleapis.com"], member="ada@example.com",
        service_account="a@demo.iam.gserviceaccount.com",
    )  # fmt: skip
    assert found.sources == ("203.0.113.7/32", "198.51.100.0/24")
    assert found.apis == ("storage.googleapis.com", "logging.googleapis.com")
    assert found.member == "user:ada@example.com"
    assert found.node_account == "serviceAccount:a@demo.iam.gserviceaccount.com"
    assert (found.way.text, found.context) == ("external", "")
    assert request(tmp_path, way="jump:me@bastion").context == "demo"
    assert request(tmp_path, member="group:lab@example.com").member == "group:lab@example.com"


def test_a_private_range_is_fine_from_inside(tmp_path: Path) -> None:
    assert request(tmp_path, way="internal", sources=["10.0.0.0/8"]).sources == ("10.0.0.0/8",)
    with pytest.raises(InvalidInput, match="private range"):
        request(tmp_path, way="external", sources=["10.0.0.0/8"])


@pytest.mark.parametrize(
    ("source", "wide"),
    [("anywhere", True), ("0.0.0.0/0", True), ("128.0.0.0/1", True), ("11.0.0.0/8", False)],
)
def test_wide_ranges_are_known(tmp_path: Path, source: str, wide: bool) -> None:
    assert is_wide(request(tmp_path, sources=[source]).sources) is wide
