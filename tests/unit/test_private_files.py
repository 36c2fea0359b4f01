"""Private files of the machine are found at each start of a world, mostly from memory."""

import os
from pathlib import Path

import pytest

from tpuherd_sim.hosts import private_files
from tpuherd_sim.hosts.private_files import find_private_files


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name, mode in {"lib/public": 0o644, "lib/key": 0o640, "shut/inside": 0o644}.items():
        file = tmp_path / "top" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        file.chmod(mode)
    (tmp_path / "top/shut").chmod(0o750)
    (tmp_path / "top/lib").chmod(0o755)
    (tmp_path / "top/lib/link").symlink_to("key")
    return tmp_path / "top"


def names(top: Path, memory: Path) -> set[str]:
    return {str(path.relative_to(top)) for path in find_private_files(top, memory)}


def test_private_files_and_folders_are_found(top: Path, tmp_path: Path) -> None:
    assert names(top, tmp_path / "run/memory") == {"lib/key", "shut"}


def test_only_changed_folders_are_read_again(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "run/memory"
    names(top, memory)
    read: list[str] = []

    def read_folder(folder: str, changed_ns: int) -> private_files.Listing:
        read.append(folder)
        return real(folder, changed_ns)

    real = private_files.read_folder
    monkeypatch.setattr(private_files, "read_folder", read_folder)
    assert names(top, memory) == {"lib/key", "shut"}
    assert read == []
    (top / "lib/late").touch()
    (top / "lib/late").chmod(0o600)
    os.utime(top / "lib", ns=(1, 1))  # even if the clock that stamps folders is coarse
    assert names(top, memory) == {"lib/key", "lib/late", "shut"}
    assert read == [str(top / "lib")]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"/usr": 1}', '{"/usr": [1, 2]}'])
def test_a_damaged_cache_is_rebuilt(top: Path, tmp_path: Path, content: str) -> None:
    memory = tmp_path / "memory"
    memory.write_text(content)
    assert names(top, memory) == {"lib/key", "shut"}
    assert memory.read_text().startswith('{"')


def test_without_a_place_to_remember_it_still_works(top: Path) -> None:
    assert names(top, Path("/proc/tpuherd/memory")) == {"lib/key", "shut"}
