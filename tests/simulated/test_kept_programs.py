"""Programs that write all the time: each generation of what they write is whole."""

import fcntl
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.simulated.kept_hosts import KeptHost, shared_folder
from tpuherd_host.agent.keep.copy_files import OPEN, REWRITTEN, Copied

COPIES = 12
DATABASE = """
import sqlite3
base = sqlite3.connect("state.db", isolation_level=None)
base.execute("pragma journal_mode = wal")
base.execute("pragma wal_autocheckpoint = @PAGES@")
base.execute("create table steps (step integer, text blob)")
step = 0
while True:
    step += 1
    base.execute("begin")
    for _ in range(5):
        base.execute("insert into steps values (?, randomblob(3000))", (step,))
    base.execute("delete from steps where step < ?", (step - 40,))
    base.execute("commit")
    print("-" * 9000, flush=True)
"""
REPOSITORY = """
git init -q repo; cd repo
git config user.name x; git config user.email x@example.com
for step in $(seq 100000); do
    echo $step > step; echo $step >> all
    git add -A; git commit -qm $step
    echo $step
    read -rt .2 || true
done
"""
#: A checkpoint that is written to its place in pieces, never to another file first.
CHECKPOINT = """
import os
step = 0
while True:
    step += 1
    with open("ckpt.bin", "r+b" if os.path.exists("ckpt.bin") else "wb", buffering=0) as file:
        for _ in range(50):
            file.write(step.to_bytes(8, "big") * 1000)
            print("-" * 9000, flush=True)
    for _ in range(50):
        print("-" * 9000, flush=True)
"""


@contextmanager
def running(folder: Path, words: list[str], lines: int = 3) -> Iterator[subprocess.Popen[str]]:
    """A program in a folder, once it has printed some lines; it is at most a line ahead."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=folder, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        try:
            read_lines(process, lines)
            yield process
        finally:
            process.kill()


def read_lines(process: subprocess.Popen[str], lines: int) -> None:
    assert process.stdout
    for _ in range(lines):
        assert process.stdout.readline()


def restore_all(host: KeptHost, folder: Path, copies: list[Copied]) -> Iterator[KeptHost]:
    """Yield a new host with each of these, from the store as it was then."""
    for copied in copies:
        place = folder / f"of {copied.generation}"
        new = KeptHost(place / "home", shared_folder(place / "store"))
        new.begin(2)
        yield new


def copy_often(
    host: KeptHost, folder: Path, process: subprocess.Popen[str], lines: int
) -> list[Copied]:
    copies = []
    for number in range(1, COPIES):
        read_lines(process, lines)
        found = host.keeper.copy(number)
        if isinstance(found, Copied) and found.is_new:
            copies.append(found)
            shutil.copytree(str(host.store.url), folder / f"of {found.generation}/store")
    return copies


@pytest.fixture
def host(tmp_path: Path) -> KeptHost:
    host = KeptHost(tmp_path / "a", shared_folder(tmp_path / "store"))
    host.begin(1)
    return host


@pytest.mark.parametrize("pages", [0, 20], ids=["log that grows", "log that begins again"])
def test_a_database_is_whole_or_left_out_by_name(
    host: KeptHost, tmp_path: Path, pages: int
) -> None:
    program = DATABASE.replace("@PAGES@", str(pages))
    with running(host.folder, [sys.executable, "-c", program]) as process:
        copies = copy_often(host, tmp_path, process, 5)
    last = host.copy(COPIES)
    shutil.copytree(tmp_path / "store", tmp_path / f"of {last.generation}/store")
    copies.append(last)
    for copied, new in zip(copies, restore_all(host, tmp_path, copies), strict=True):
        left_out = dict(copied.left_out)
        assert set(left_out.values()) <= {OPEN, REWRITTEN}
        if (new.folder / "state.db").exists():
            with closing(sqlite3.connect(new.folder / "state.db")) as base:
                assert base.execute("pragma integrity_check").fetchall() == [("ok",)]
        else:
            assert b"state.db" in left_out
    assert (new.folder / "state.db").exists(), "after the program has ended"


@pytest.mark.needs("git")
def test_a_repository_is_whole_while_it_commits(host: KeptHost, tmp_path: Path) -> None:
    host.begin(2, paths=("repo", "repo/.git"))
    host.store.remove("attempts/000000002.json")
    host.begin(1, paths=("repo", "repo/.git"))
    with running(host.folder, ["bash", "-c", REPOSITORY]) as process:
        copies = copy_often(host, tmp_path, process, 2)
    assert len(copies) > COPIES / 2, "it commits as often as it is copied"
    for new in restore_all(host, tmp_path, copies):
        words = ["git", "-C", str(new.folder / "repo"), "fsck", "--full", "--strict"]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        words = ["git", "-C", str(new.folder / "repo"), "log", "--format=%s", "-1"]
        assert int(subprocess.run(words, capture_output=True, check=True).stdout) > 0


def test_a_checkpoint_that_is_written_in_place_is_never_half(
    host: KeptHost, tmp_path: Path
) -> None:
    with running(host.folder, [sys.executable, "-c", CHECKPOINT]) as process:
        copies = copy_often(host, tmp_path, process, 67)
    seen = set()
    for new in restore_all(host, tmp_path, copies):
        if (new.folder / "ckpt.bin").exists():
            content = (new.folder / "ckpt.bin").read_bytes()
            assert len(content) == 400_000 and content == content[:8] * 50_000
            seen.add(content[:8])
    assert seen, "it is kept in the pauses"
