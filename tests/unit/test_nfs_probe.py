"""How a host asks a folder whether it answers."""

from pathlib import Path

from tpuherd_host.agent.nfs.rpc_nfs import BROKEN, MOUNTED, probe_folder


def test_a_folder_that_answers_has_a_size(tmp_path: Path) -> None:
    found = probe_folder(str(tmp_path))
    assert (found.state, found.writable) == (MOUNTED, True)
    assert 0 < found.free <= found.total


def test_a_folder_that_is_gone_is_broken(tmp_path: Path) -> None:
    assert probe_folder(str(tmp_path / "gone")).state == BROKEN
