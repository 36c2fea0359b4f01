"""Taking snapshots: of folders as git sees them, of commits, and of files that change meanwhile."""

import os
import random
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulated.git_user import ENVIRONMENT
from tests.simulated.sync_hosts import tree, write
from tpuherd.errors import HerdError, InvalidInput, NotFound, OperationFailed
from tpuherd.sync import take_snapshot as taking
from tpuherd.sync import upload_check
from tpuherd.sync.snapshot_store import AGE_MAX_S, Archive
from tpuherd.sync.take_snapshot import Snapshot, load_snapshot, snapshot_commit, snapshot_folder
from tpuherd_host.agent.snapshots.blobs import CorruptBlob
from tpuherd_host.agent.snapshots.manifest import check_rows, parse_row, rows_id


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words],
        cwd=folder, env=ENVIRONMENT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def shot(path: Path, archive: Archive) -> Snapshot:
    return snapshot_folder(path, archive, ENVIRONMENT)


def names(found: Snapshot) -> list[str]:
    return [os.fsdecode(parse_row(each).path) for each in found.rows]


def content(found: Snapshot, archive: Archive, name: str) -> bytes:
    one = next(one for one in map(parse_row, found.rows) if one.path == os.fsencode(name))
    return b"".join(archive.blobs.read_pieces(one.id))


def test_a_snapshot_has_the_files_that_git_would_ship(code: Path, archive: Archive) -> None:
    write(code, {"a.py": "a", "sub/b.py": "b", "x.log": "no", ".gitignore": "*.log\nout/\n"})
    write(code, {"out/big": "no", "kept.log": "tracked all the same"})
    git(code, "add", "-f", "a.py", "kept.log")
    git(code, "commit", "-qm", "one")
    (code / "a.py").write_text("dirty")
    (code / "empty").mkdir()
    found = shot(code, archive)
    assert names(found) == [".gitignore", "a.py", "kept.log", "sub/b.py"]
    assert content(found, archive, "a.py") == b"dirty"
    (code / "a.py").unlink()  # deleted, but not for git
    assert names(shot(code, archive)) == [".gitignore", "kept.log", "sub/b.py"]
    assert names(shot(code / "sub", archive)) == ["b.py"]


def test_herdignore_applies_to_tracked_files_too(code: Path, archive: Archive) -> None:
    write(code, {"a.py": "", "data/x": "", "data/keep": "", "b.bin": ""})
    write(code, {".herdignore": "data/*\n!data/keep\n*.bin\n"})
    git(code, "add", "-A")
    assert names(shot(code, archive)) == [".herdignore", "a.py", "data/keep"]


def test_a_folder_without_git_is_taken_completely(tmp_path: Path, archive: Archive) -> None:
    folder = tmp_path / "plain"
    write(folder, {"a": "", "x.log": "", ".gitignore": "*.log\n", ".herdignore": "secret/\n"})
    write(folder, {"secret/x": "", "deep/er/b": ""})
    found = shot(folder, archive)
    assert {"a", "x.log", "deep/er/b"} <= set(names(found))
    assert "secret/x" not in names(found)


def test_links_executables_and_odd_names_are_kept(code: Path, archive: Archive) -> None:
    odd = {"-x": "", "a b/ü\n'\"$": "", "*": "", "\\": "", " ": "", "ö" * 80: ""}
    write(code, odd)
    Path(os.fsdecode(os.fsencode(code) + b"/\xff\xfe")).write_text("no text")
    (code / "program").write_text("#!")
    (code / "program").chmod(0o750)
    (code / "link").symlink_to(".//a b/")
    (code / "away").symlink_to("/etc/passwd")
    (code / "broken").symlink_to("nowhere")
    os.mkfifo(code / "pipe")
    found = shot(code, archive)
    assert set(names(found)) == {
        *odd,
        os.fsdecode(b"\xff\xfe"),
        "program",
        "link",
        "away",
        "broken",
    }
    modes = {os.fsdecode(one.path): one.mode for one in map(parse_row, found.rows)}
    assert modes["program"] == stat.S_IFREG | 0o755
    assert modes["-x"] == stat.S_IFREG | 0o644
    assert content(found, archive, "link") == b".//a b/"
    assert content(found, archive, "away") == b"/etc/passwd"


def test_submodules_and_nested_repositories_are_shipped(
    code: Path, archive: Archive, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    write(other, {"lib.py": "lib", "junk.o": "", ".gitignore": "*.o"})
    git(other, "init", "-q")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "one")
    git(code, "submodule", "add", "-q", str(other), "third/lib")
    shutil.copytree(other, code / "clone")
    found = shot(code, archive)
    assert {"third/lib/lib.py", "clone/lib.py"} <= set(names(found))
    assert not [name for name in names(found) if name.endswith(".o") or "/.git/" in name]
    shutil.rmtree(code / "third" / "lib")
    (code / "third" / "lib").mkdir()
    assert "third/lib" in shot(code, archive).notes[0]


def test_a_symlink_target_is_not_shipped_twice(code: Path, archive: Archive) -> None:
    write(code, {"deep/d/f": "", "a": ""})
    git(code, "add", "-A")
    assert names(shot(code, archive)) == ["a", "deep/d/f"]
    (code / "deep").rename(code / "other")
    (code / "deep").symlink_to("other")
    found = shot(code, archive)
    assert [os.fsdecode(one.path) for one in check_rows(found.rows)] == ["a", "deep", "other/d/f"]


def test_names_that_a_mac_takes_for_one_are_refused_there_only(
    code: Path, archive: Archive
) -> None:
    write(code, {"lib/Data.txt": "one", "lib/data.txt": "two", "LIB/other": ""})
    assert len(names(shot(code, archive))) == 3
    other = code.with_name(code.name.swapcase())
    other.symlink_to(code)  # now the folder is found by both of its names, as on a Mac
    write(code, {"new": ""})
    with pytest.raises(InvalidInput) as caught:
        shot(code, archive)
    assert caught.value.sentence.startswith(
        "lib/Data.txt and lib/data.txt differ only by case, and"
    )
    (code / "lib/data.txt").unlink()
    assert len(names(shot(code, archive))) == 3


@pytest.mark.parametrize("seed", range(3))
def test_cached_file_stamps_change_no_snapshot(
    code: Path, archive: Archive, tmp_path: Path, seed: int
) -> None:
    """After any edits, a take that remembers and one that knows nothing agree."""
    dice = random.Random(seed)
    for turn in range(8):
        name = f"d{dice.randrange(3)}/f{dice.randrange(6)}"
        path = code / name
        what = dice.choice(["write", "same size", "remove", "touch", "mode"])
        if what == "write" or not path.exists():
            write(code, {name: dice.randbytes(dice.randrange(9))})
        elif what == "same size":
            path.write_bytes(dice.randbytes(path.stat().st_size))
        elif what == "remove":
            path.unlink()
        elif what == "mode":
            path.chmod(dice.choice([0o644, 0o755]))
        write(code, {"always": "there"})
        for old in code.rglob("d*/*"):  # old enough to be remembered
            if dice.random() < 0.5:
                os.utime(old, (1_000_000_000 + turn, 1_000_000_000 + turn))
        fresh = Archive(tmp_path / f"fresh{turn}")
        assert shot(code, archive).id == shot(code, fresh).id


def repository(path: Path) -> None:
    """One inside of another."""
    write(path, {"a": "inside"})
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        git(path, *words)


def turned(path: Path) -> None:
    """An executable file, or not any more."""
    if path.is_file():
        path.chmod(path.stat().st_mode ^ 0o111)


def grown_inside(code: Path, dice: random.Random) -> None:
    """All repositories in there get a file."""
    for inner in code.glob("d*/*/.git"):
        write(inner.parent, {f"b{dice.randrange(3)}": dice.randbytes(3)})


Edit = Callable[[Path, Path, random.Random], object]
#: Of the tree as it is.
EDITS: tuple[Edit, ...] = (
    lambda code, path, dice: grown_inside(code, dice),
    lambda code, path, dice: write(code, {".gitignore": f"{path.name}\n"}),
    lambda code, path, dice: write(code, {".herdignore": f"{path.name}\n"}),
    lambda code, path, dice: (code / ".gitignore").unlink(missing_ok=True),
    lambda code, path, dice: (code / ".herdignore").unlink(missing_ok=True),
    lambda code, path, dice: git(code, "add", "-Af"),
    lambda code, path, dice: git(code, "rm", "-rfq", "--cached", "--ignore-unmatch", str(path)),
    lambda code, path, dice: git(code, "commit", "-qam", "one", "--allow-empty"),
    lambda code, path, dice: turned(path),
    lambda code, path, dice: path.is_file() and path.write_bytes(path.read_bytes()[::-1]),
    lambda code, path, dice: None,
)
#: Of a path where nothing is now.
WRITES: tuple[Edit, ...] = (
    lambda code, path, dice: path.write_bytes(dice.randbytes(9)),
    lambda code, path, dice: path.symlink_to(f"../d{dice.randrange(3)}"),
    lambda code, path, dice: write(path, {"a": "below"}),
    lambda code, path, dice: repository(path),
    lambda code, path, dice: os.mkfifo(path),
    lambda code, path, dice: None,
)


def edit(code: Path, dice: random.Random) -> None:
    """Do something somewhere."""
    path = code / f"d{dice.randrange(2)}" / f"f{dice.randrange(5)}"
    path.parent.mkdir(exist_ok=True)
    change = dice.choice(EDITS + WRITES)
    if change in WRITES:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
    change(code, path, dice)


@pytest.mark.parametrize("seed", range(4))
def test_a_resident_scan_agrees_with_a_fresh_one(
    code: Path, archive: Archive, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any edit, and again when nothing changed: then git's listing alone is compared."""
    monkeypatch.setattr(taking, "RACY_NS", 0)  # else nothing here would be old enough to be known
    dice, short = random.Random(seed), 0
    write(code, {"always": "there"})
    for turn in range(40):
        edit(code, dice)
        whole = shot(code, Archive(tmp_path / f"fresh{turn}"))
        for _ in range(dice.randrange(1, 4)):
            found = shot(code, archive)
            assert (found.id, found.notes) == (whole.id, whole.notes)
        short += archive.last[code].listing is not None if code in archive.last else 0
    assert short  # else only the long way was tried


def test_an_edit_of_equal_size_within_a_clock_tick_is_seen(code: Path, archive: Archive) -> None:
    write(code, {"a": "one"})
    first = shot(code, archive)
    was = (code / "a").stat().st_mtime_ns
    write(code, {"a": "two"})
    os.utime(code / "a", ns=(was, was))
    assert shot(code, archive).id != first.id


def test_an_old_snapshot_is_complete_though_its_tree_changed(code: Path, archive: Archive) -> None:
    write(code, {"a": "one", "b": "two"})
    first = shot(code, archive)
    write(code, {"a": "three"})
    (code / "b").unlink()
    shot(code, archive)
    back = load_snapshot(first.id, Archive(archive.folder))
    assert back is not None
    assert (back.id, back.rows) == (first.id, first.rows)
    assert content(back, archive, "a") == b"one"
    assert load_snapshot("0" * 64, archive) is None


def test_a_snapshot_taken_by_another_process_is_found(tmp_path: Path) -> None:
    engine, command = Archive(tmp_path / "archive"), Archive(tmp_path / "archive")
    code = tmp_path / "code"
    write(code, {"a": "one"})
    taken = snapshot_folder(code, command, {"PATH": os.environ["PATH"]})
    assert load_snapshot(taken.id, engine) is not None


def test_the_archive_deletes_old_snapshots_but_not_pinned_ones(
    code: Path, archive: Archive
) -> None:
    found = []
    for turn in range(4):
        write(code, {"a": f"{turn}" * 9000})
        found.append(shot(code, archive))
        os.utime(archive.rows_folder / found[-1].id, (turn, turn))
    archive.pin_snapshots("gpt", [found[2].id])
    archive.pin_snapshots("gpt", [found[0].id])
    archive.prune_old(AGE_MAX_S + 2.5)
    kept = [turn for turn in range(4) if load_snapshot(found[turn].id, archive)]
    assert kept == [0, 3]
    assert archive.blobs.disk_usage() < 3 * 9000
    with pytest.raises(CorruptBlob):
        content(found[1], archive, "a")


def test_damaged_contents_are_never_delivered(code: Path, archive: Archive) -> None:
    write(code, {"a": "x" * 5000})
    found = shot(code, archive)
    pack = next(file for file in archive.blobs.folder.iterdir() if file.stat().st_size == 5000)
    pack.write_bytes(b"y" * 5000)
    with pytest.raises(CorruptBlob):
        content(found, archive, "a")
    assert content(shot(code, archive), archive, "a") == b"x" * 5000


def test_a_file_that_changes_while_it_is_read_is_read_again_or_refused(
    code: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(code, {"log": "x"})
    shot(code, archive)
    grow = [2]
    read = taking.read_pieces

    def growing(file: int, head: list[bytes]) -> Iterator[bytes]:
        yield from read(file, head)
        if grow[0]:
            grow[0] -= 1
            with (code / "log").open("a") as log:
                log.write("more")

    monkeypatch.setattr(taking, "read_pieces", growing)
    write(code, {"log": "y"})
    assert content(shot(code, archive), archive, "log") == b"ymoremore"
    grow[0] = 99
    write(code, {"log": "z"})
    with pytest.raises(InvalidInput, match="log keeps changing"):
        shot(code, archive)


def test_invalid_paths_are_one_sentence(tmp_path: Path, code: Path, archive: Archive) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        shot(tmp_path / "nowhere", archive)
    write(tmp_path, {"file": ""})
    with pytest.raises(InvalidInput, match="is not a folder"):
        shot(tmp_path / "file", archive)
    with pytest.raises(InvalidInput, match="nothing to ship"):
        shot(code, archive)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_unreadable_files_are_refused(code: Path, archive: Archive) -> None:
    write(code, {"a": "", "b/c": ""})
    (code / "a").chmod(0)
    with pytest.raises(InvalidInput, match="can't read a"):
        shot(code, archive)
    (code / "a").chmod(0o644)
    (code / "b").chmod(0)
    with pytest.raises(InvalidInput):
        shot(code, archive)


def test_keys_need_consent_until_approved(code: Path, archive: Archive) -> None:
    write(code, {"a": "", "deploy.pem": "-----BEGIN PRIVATE " + "KEY-----\nx"})
    for _ in range(2):  # read, and remembered
        found = shot(code, archive)
        assert [finding.path for finding in found.findings] == ["deploy.pem"]
        for file in code.iterdir():
            if file.is_file():
                os.utime(file, (1_000_000_000, 1_000_000_000))
    archive.approve_findings(found.findings)
    assert shot(code, archive).findings == ()
    write(code, {"deploy.pem": "-----BEGIN PRIVATE " + "KEY-----\nanother"})
    assert shot(code, archive).findings


def test_large_uploads_need_consent_before_they_are_read(
    code: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_check, "BYTES_MAX", 5000)
    write(code, {"a": "x" * 3000, "b": "y" * 3000})
    git(code, "add", "-A")
    git(code, "commit", "-qm", "one")
    (code / "link").symlink_to("a")
    for found in (
        shot(code, archive),
        snapshot_commit(f"file://{code}", "HEAD", archive, ENVIRONMENT),
    ):
        assert (found.id, found.rows, found.size // 10) == ("", (), 600)
        assert [finding.why for finding in found.findings] == ["0.0 GB would be shipped"]
    assert archive.blobs.disk_usage() == 0
    archive.approve_findings(shot(code, archive).findings)
    found = shot(code, archive)
    assert (names(found), found.findings) == (["a", "b", "link"], ())
    assert snapshot_commit(f"file://{code}", "HEAD", archive, ENVIRONMENT).id


def test_a_commit_snapshot_depends_only_on_its_tree(
    code: Path, archive: Archive, tmp_path: Path
) -> None:
    write(code, {"a": "one", "run": "#!"})
    (code / "run").chmod(0o755)
    (code / "link").symlink_to("a")
    git(code, "add", "-A")
    git(code, "commit", "-qm", "one")
    first = git(code, "rev-parse", "HEAD")
    clean = shot(code, archive)
    write(code, {"a": "two"})
    git(code, "commit", "-qam", "two")
    git(code, "tag", "v2")
    write(code, {"a": "dirty"})
    url = f"file://{code}"
    found = snapshot_commit(url, first, archive, ENVIRONMENT)
    assert (found.id, found.rows) == (clean.id, clean.rows)
    assert content(snapshot_commit(url, "v2", archive, ENVIRONMENT), archive, "a") == b"two"
    branch = git(code, "branch", "--show-current")
    assert content(snapshot_commit(url, branch, archive, ENVIRONMENT), archive, "a") == b"two"
    shutil.rmtree(code)
    assert snapshot_commit(url, first, archive, ENVIRONMENT).id == first_id(found)
    secret = "https://me:hunter2@127.0.0.1:1/x"
    with pytest.raises(HerdError) as refused:
        snapshot_commit(secret, "main", archive, ENVIRONMENT)
    assert "hunter2" not in refused.value.sentence


def first_id(found: Snapshot) -> str:
    return rows_id(found.rows).hex()


def test_a_missing_commit(code: Path, archive: Archive) -> None:
    write(code, {"a": "one"})
    git(code, "add", "-A")
    git(code, "commit", "-qm", "one")
    with pytest.raises(NotFound, match="has no nothing-of-that-name"):
        snapshot_commit(f"file://{code}", "nothing-of-that-name", archive, ENVIRONMENT)
    with pytest.raises(InvalidInput):
        snapshot_commit(f"file://{code}", "--upload-pack=x", archive, ENVIRONMENT)
    with pytest.raises(
        OperationFailed, match=r"can't fetch .*nope: .*'nope' does not appear to be"
    ):
        snapshot_commit("nope", "HEAD", archive, ENVIRONMENT)


def test_a_warm_scan_of_many_files(code: Path, archive: Archive) -> None:
    write(code, {f"d{n % 50}/f{n}": f"{n}" for n in range(3000)})
    first = shot(code, archive)
    assert len(first.rows) == 3000
    assert shot(code, Archive(archive.folder)).id == first.id
    assert len(tree(code)) >= 3000
