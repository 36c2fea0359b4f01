"""Private files of the machine are found at each start of a world; folders of herd are private."""

import os
from pathlib import Path

import pytest

from tpuherd.errors import NotAllowed
from tpuherd.files import make_private_folder
from tpuherd_sim.hosts.rootfs_layers import find_private_files


def test_private_files_and_folders_are_found(tmp_path: Path) -> None:
    for name, mode in {"lib/public": 0o644, "lib/key": 0o640, "shut/inside": 0o644}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        file.chmod(mode)
    (tmp_path / "shut").chmod(0o750)
    (tmp_path / "lib").chmod(0o755)
    (tmp_path / "lib/link").symlink_to("key")
    assert set(find_private_files(tmp_path)) == {tmp_path / "lib/key", tmp_path / "shut"}


def test_a_folder_of_herd_is_made_private_with_those_above_it(tmp_path: Path) -> None:
    made = tmp_path / "state/tpuherd/engines/demo"
    made.parents[2].mkdir(mode=0o755)
    for again in (False, True):
        make_private_folder(made)
        for folder in (made, made.parent, made.parent.parent):
            assert folder.stat().st_mode & 0o777 == 0o700, (folder, again)
            folder.chmod(0o755)
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o755, "the user's own is left alone"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused_with_a_sentence(tmp_path: Path) -> None:
    there = tmp_path / "tpuherd"
    there.mkdir()
    os.chown(there, 65534, 65534)
    with pytest.raises(NotAllowed, match="tpuherd belongs to another user"):
        make_private_folder(there / "logs")
