"""Where git's index is trusted: whatever happens to a repository, no snapshot is wrong."""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.git_user import ENVIRONMENT
from tests.simulated.sync_hosts import write
from tpuherd.sync import snapshot_git
from tpuherd.sync import take_snapshot as taking
from tpuherd.sync.snapshot_store import Archive
from tpuherd.sync.take_snapshot import snapshot_folder
from tpuherd_host.agent.snapshots.manifest import parse_row

FOLDERS, FILES = 4, 6
BLIND = "#!/bin/sh\nprintf 'token\\0'\n"  #: as a file system monitor: nothing ever changes
CONFIGS = (
    ("core.fileMode", "false"),
    ("core.fileMode", "true"),
    ("core.trustctime", "false"),
    ("core.checkStat", "minimal"),
    ("core.ignoreStat", "true"),
    ("core.symlinks", "false"),
    ("core.autocrlf", "input"),
    ("core.untrackedCache", "true"),
    ("core.preloadIndex", "false"),
    ("core.splitIndex", "true"),
    ("core.fsmonitor", "../blind"),
    ("index.skipHash", "true"),
    ("diff.ignoreSubmodules", "none"),
    ("submodule.recurse", "true"),
)
BITS = (
    "--assume-unchanged", "--no-assume-unchanged", "--skip-worktree", "--no-skip-worktree",
    "--force-remove", "--split-index", "--untracked-cache", "--fsmonitor", "--fsmonitor-valid",
    "--chmod=+x",
)  # fmt: skip
CONFLICT = "100644 e69de29bb2d1d6434b8b29ae775ad8c2e48c5391 {}\t{}\n"


def git(folder: Path, *words: str, said: str = "") -> bool:
    """Whether it went well; a change that makes no sense there is none."""
    words = ("git", "-c", "protocol.file.allow=always", *words)
    done = subprocess.run(
        words, cwd=folder, env=ENVIRONMENT, input=said.encode(), capture_output=True
    )
    return done.returncode == 0


class Tree:
    """A repository that dice change."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.dice = random.Random(seed)
        self.code = folder / "code"
        self.archive = Archive(folder / "archive")
        self.folder = folder
        self.turns = 0
        self.trusted = 0  #: how often git's word was taken for something
        write(folder, {"blind": BLIND})
        (folder / "blind").chmod(0o755)
        self.code.mkdir()
        for name in (f"d{n}/f{m}" for n in range(FOLDERS) for m in range(FILES)):
            write(self.code, {name: self.dice.randbytes(9), "always": "there"})
        for words in ("init -q", "add -A", "commit -qm one", "branch other"):
            assert git(self.code, *words.split())

    def path(self) -> Path:
        """One of its files, or where one may be."""
        dice = self.dice
        return self.code / f"d{dice.randrange(FOLDERS)}" / f"f{dice.randrange(FILES)}"

    def change(self, changes: "tuple[Change, ...]") -> None:
        """Do one of these somewhere."""
        change = self.dice.choice(changes)
        try:
            change(self, self.path())
        except OSError:
            return  # of no sense there

    def settle(self) -> None:
        """Its index gets later than its files, if these are of a second before."""
        git(self.code, "update-index", "--refresh")
        (self.code / ".git" / "index").touch()

    def agrees(self) -> None:
        """What is resident says what one that knows nothing says, and that is what git ships."""
        self.turns += 1
        fresh = Archive(self.folder / f"fresh{self.turns}")
        whole = snapshot_folder(self.code, fresh, ENVIRONMENT)
        shutil.rmtree(fresh.folder)
        for _ in range(self.dice.randrange(1, 4)):
            ground = self.archive.grounds.get(self.code)
            found = snapshot_folder(self.code, self.archive, ENVIRONMENT)
            assert (found.id, found.notes) == (whole.id, whole.notes)
            self.trusted += bool(ground and 2 * len(ground.doubted) <= len(ground.seen))
        words = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        said = subprocess.run(
            words, cwd=self.code, env=ENVIRONMENT, capture_output=True, check=True
        )
        paths = {path for path in said.stdout.split(b"\0") if path and not path.endswith(b"/")}
        names = {
            path for one in whole.rows if not (path := parse_row(one).path).startswith(b"inner")
        }
        assert names == {path for path in paths if shipped(self.code / os.fsdecode(path))}


def shipped(place: Path) -> bool:
    return (place.is_symlink() or place.is_file()) and place.parent == place.parent.resolve()


Change = Callable[[Tree, Path], object]


def same(tree: Tree, path: Path, blur_ns: int = 0) -> None:
    """Other content of the same size, and the same time of change as far as one may set it."""
    was = path.stat()
    path.write_bytes(tree.dice.randbytes(was.st_size))
    second = was.st_mtime_ns // 10**9 * 10**9
    os.utime(path, ns=(was.st_atime_ns, second + blur_ns if blur_ns else was.st_mtime_ns))


def replaced(tree: Tree, path: Path) -> None:
    """Another file of the same size and time in its place."""
    was, fresh = path.stat(), path.with_name("fresh")
    fresh.write_bytes(tree.dice.randbytes(was.st_size))
    fresh.chmod(was.st_mode & 0o777)
    os.utime(fresh, ns=(was.st_atime_ns, was.st_mtime_ns))
    fresh.replace(path)


def swapped(tree: Tree, path: Path) -> None:
    """Two folders: their files keep all their times."""
    other = tree.code / f"d{tree.dice.randrange(FOLDERS)}"
    aside = tree.code / "aside"
    path.parent.rename(aside)
    if other.exists():
        other.rename(path.parent)
    aside.rename(other if not other.exists() else path.parent)


def moved(tree: Tree, path: Path) -> None:
    """A folder lies elsewhere, and a symlink leads there."""
    place = tree.code / "moved"
    if place.exists():
        path.parent.unlink()
        place.rename(path.parent)
    else:
        path.parent.rename(place)
        path.parent.symlink_to("moved")


def there_and_back(tree: Tree, path: Path) -> None:
    """A folder goes, another is seen there, it comes back as it was."""
    away = tree.folder / "away"
    shutil.rmtree(away, ignore_errors=True)
    path.parent.rename(away)
    if tree.dice.random() < 0.7:
        write(path.parent, {path.name: tree.dice.randbytes(9)})
    tree.agrees()
    shutil.rmtree(path.parent, ignore_errors=True)
    away.rename(path.parent)


def gone(tree: Tree, path: Path) -> None:
    """It, or its whole folder."""
    if tree.dice.random() < 0.3 or path.is_dir():
        shutil.rmtree(path.parent)
    else:
        path.unlink()


def put(tree: Tree, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(tree.dice.randbytes(9))


def linked(tree: Tree, path: Path) -> None:
    put(tree, path)
    path.unlink()
    path.symlink_to(f"../always{tree.dice.randrange(2)}")


def inner(tree: Tree, path: Path) -> None:
    """A repository of its own."""
    place = tree.code / f"inner{tree.dice.randrange(2)}"
    write(place, {"a": tree.dice.randbytes(9)})
    git(place, "init", "-q")


#: What leaves git's index alone.
EDITS: tuple[Change, ...] = (
    put, same, same, replaced, swapped, there_and_back, gone, linked, moved,
    lambda tree, path: same(tree, path, tree.dice.randrange(1, 10**9)),
    lambda tree, path: path.chmod(path.stat().st_mode ^ tree.dice.choice([0o111, 0o001, 0o100])),
    lambda tree, path: path.write_bytes(path.read_bytes() + b"more"),
    lambda tree, path: write(tree.code, {f"new{tree.dice.randrange(3)}": tree.dice.randbytes(5)}),
    lambda tree, path: write(tree.code, {".gitignore": f"new1\n{path.name}\n"}),
    lambda tree, path: git(tree.code, "config", *tree.dice.choice(CONFIGS)),
    lambda tree, path: git(tree.code, "config", "--unset", tree.dice.choice(CONFIGS)[0]),
)  # fmt: skip
#: Commands that rewrite it.
NOTES: tuple[Change, ...] = (
    inner,
    lambda tree, path: git(tree.code, "add", "-A"),
    lambda tree, path: git(tree.code, "add", "-Af"),
    lambda tree, path: git(tree.code, "status"),
    lambda tree, path: git(tree.code, "add", str(path)),
    lambda tree, path: git(tree.code, "add", "-N", "."),
    lambda tree, path: git(tree.code, "commit", "-qam", "more"),
    lambda tree, path: git(tree.code, "stash", "-q"),
    lambda tree, path: git(tree.code, "stash", "pop", "-q"),
    lambda tree, path: git(tree.code, "reset", "-q", tree.dice.choice(["--hard", "--mixed"])),
    lambda tree, path: git(tree.code, "checkout", "-qf", tree.dice.choice(["other", "-", "."])),
    lambda tree, path: git(tree.code, "rm", "-q", "--cached", str(path)),
    lambda tree, path: git(tree.code, "update-index", tree.dice.choice(BITS), str(path)),
    lambda tree, path: git(tree.code, "update-index", tree.dice.choice(BITS), str(path)),
    lambda tree, path: git(tree.code, "update-index", "--really-refresh"),
    lambda tree, path: git(tree.code, "update-index", "--index-version", "4"),
    lambda tree, path: git(tree.code, "sparse-checkout", "set", "d0"),
    lambda tree, path: git(tree.code, "sparse-checkout", "disable"),
    lambda tree, path: os.utime(tree.code / ".git" / "index", (4 * 10**9, 4 * 10**9)),
    lambda tree, path: git(
        tree.code, "update-index", "--index-info",
        said="".join(CONFLICT.format(n, path.relative_to(tree.code)) for n in (1, 2, 3)),
    ),
)  # fmt: skip


def until_the_next_second(folder: Path) -> None:
    """By the file system's clock. A file's older times are then in a second that is over."""
    begun = tick(folder)
    deadline = time.monotonic() + 10
    while tick(folder) == begun:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def tick(folder: Path) -> int:
    (folder / "tick").write_bytes(b"")
    return int((folder / "tick").stat().st_ctime)


def check_snapshots(folder: Path, seed: int, trees: int, rounds: int) -> None:
    """Several at once, since each round waits for a second to be over."""
    found = [Tree(folder / f"t{n}", f"{seed}.{n}") for n in range(trees)]
    for _ in range(rounds):
        until_the_next_second(folder)
        for tree in found:
            for changes in (EDITS, NOTES):
                for _ in range(tree.dice.randrange(3)):
                    tree.change(changes)
            if tree.dice.random() < 0.7:
                tree.settle()
            tree.agrees()
            for _ in range(tree.dice.randrange(1, 4)):
                for _ in range(tree.dice.randrange(1, 3)):
                    tree.change(EDITS)
                tree.agrees()
    assert sum(tree.trusted for tree in found) > rounds  # else only the long way was tried


@pytest.mark.parametrize("seed", range(2))
def test_no_snapshot_is_wrong_whatever_happens_to_the_repository(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "RACY_NS", 0)  # else nothing here would be old enough to be known
    check_snapshots(tmp_path, seed, trees=3, rounds=3)


def test_a_file_changed_in_the_second_of_its_index_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git compares seconds: it can't tell such a change from none."""
    monkeypatch.setattr(taking, "RACY_NS", 0)
    tree = Tree(tmp_path, "0")
    place = tree.code / "d0" / "f0"
    until_the_next_second(tmp_path)
    os.utime(place, (1_000_000_000, 1_000_000_000))
    git(tree.code, "add", "-A")
    snapshot_folder(tree.code, tree.archive, ENVIRONMENT)
    snapshot_folder(tree.code, tree.archive, ENVIRONMENT)
    same(tree, place)
    tree.agrees()
    until_the_next_second(tmp_path)
    tree.settle()
    tree.agrees()
    same(tree, place)
    tree.agrees()
    assert tree.trusted  # from now on it isn't looked at unless git tells


OVERLOOKED = (
    "update-index --assume-unchanged d0/f0", "update-index --skip-worktree d0/f0",
    "update-index --fsmonitor-valid d0/f0", "config core.fsmonitor ../blind",
    "config core.trustctime false", "config core.checkStat minimal", "config core.fileMode false",
    "config core.ignoreStat true",
)  # fmt: skip


def test_files_that_git_was_told_to_skip_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "RACY_NS", 0)
    trees = [Tree(tmp_path / f"t{n}", "0") for n in range(len(OVERLOOKED))]
    for tree, words in zip(trees, OVERLOOKED, strict=True):
        assert git(tree.code, *words.split())
    until_the_next_second(tmp_path)
    for tree in trees:
        place = tree.code / "d0" / "f0"
        git(tree.code, "add", "d1")
        tree.settle()
        tree.agrees()
        for change in (same, lambda _, path: path.chmod(0o755), replaced, put):
            change(tree, place)
            tree.agrees()
        assert tree.trusted


@pytest.mark.parametrize("asked", ["changed_paths", "list_files"])
def test_an_index_written_while_git_runs(
    tmp_path: Path, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two answers of git may be of two indexes: then neither is taken."""
    monkeypatch.setattr(taking, "RACY_NS", 0)
    tree = Tree(tmp_path, "0")
    until_the_next_second(tmp_path)
    tree.settle()
    tree.agrees()
    tree.agrees()
    ask = getattr(snapshot_git, asked)

    def meanwhile(*words: Any) -> object:
        if asked == "list_files":
            git(tree.code, "add", "new")
        said = ask(*words)
        if asked == "changed_paths":
            git(tree.code, "update-index", "--assume-unchanged", "d0/f0")
            put(tree, tree.code / "d0" / "f0")
        return said

    write(tree.code, {"new": "now"})
    monkeypatch.setattr(snapshot_git, asked, meanwhile)
    found = snapshot_folder(tree.code, tree.archive, ENVIRONMENT)
    monkeypatch.undo()
    assert found.id == snapshot_folder(tree.code, Archive(tmp_path / "whole"), ENVIRONMENT).id


def test_no_program_of_a_folder_runs_here(tmp_path: Path) -> None:
    """A stranger's folder names programs in git's own settings."""
    folder, ran = tmp_path / "code", tmp_path / "ran"
    folder.mkdir()
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\necho $0 >>{ran}\ncat\n")
    evil.chmod(0o755)
    (folder / "train.py").write_text("1")
    (folder / ".gitattributes").write_text("* filter=evil=x\n*.py filter=evil\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, env=ENVIRONMENT, check=True)
    subprocess.run(["git", "add", "."], cwd=folder, env=ENVIRONMENT, check=True)
    settings = ("core", "fsmonitor"), ('filter "evil"', "clean"), ('filter "evil=x"', "clean")
    with (folder / ".git/config").open("a") as config:
        for section, key in settings:
            config.write(f"[{section}]\n{key} = {evil}\nrequired = true\n")
    hooks = folder / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "post-checkout", "reference-transaction"):
        (hooks / hook).symlink_to(evil)
    (folder / "train.py").write_text("2")  # racy: as long as before, within the same second
    stamp = (folder / ".git/index").stat().st_mtime_ns
    os.utime(folder / "train.py", ns=(stamp, stamp))
    environment = {**ENVIRONMENT, "GIT_CONFIG_COUNT": "0"}
    assert b"train.py" in snapshot_git.list_files(folder, tmp_path / "empty", environment).found
    snapshot_git.list_files(folder, tmp_path / "empty", environment, "-o")
    assert snapshot_git.changed_paths(folder, environment) == {b"train.py"}
    assert not ran.exists(), ran.read_text()
