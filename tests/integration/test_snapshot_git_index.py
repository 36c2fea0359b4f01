"""Random changes to a repository, for longer: no snapshot is wrong."""

from pathlib import Path

import pytest

from tests.simulated.test_snapshot_git_index import check_snapshots
from tpuherd.sync import take_snapshot as taking

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seed", range(10, 14))
def test_no_snapshot_is_wrong_whatever_happens_to_the_repository(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "RACY_NS", 0)
    check_snapshots(tmp_path, seed, trees=6, rounds=8)
