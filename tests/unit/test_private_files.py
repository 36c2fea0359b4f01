"""Private files of the machine are found at each start of a world."""

from pathlib import Path

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
