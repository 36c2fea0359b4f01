"""What a script wrote is kept and comes back: whole, and as it was."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulated.kept_hosts import KeptHost, list_tree, shared_folder
from tpuherd_host.agent.keep import copy_files, file_listing, part_writer
from tpuherd_host.agent.keep.generation import END, NOTICE
from tpuherd_host.agent.keep.kept_manifest import Generation
from tpuherd_host.agent.keep.kept_store import FolderStore, Stored


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return shared_folder(tmp_path / "store")


@pytest.fixture
def host(tmp_path: Path, store: FolderStore) -> KeptHost:
    host = KeptHost(tmp_path / "a", store)
    host.put("train.py", "code")
    host.put("data/corpus", "what setup made")
    host.begin(1)
    return host


def new_host(host: KeptHost, name: str = "b") -> KeptHost:
    new = KeptHost(host.home.with_name(name), host.store)
    new.put("train.py", "code")
    new.put("data/corpus", "what setup made")
    return new


def write_odd_files(folder: Path) -> None:
    ckpt = folder / "ckpt"
    (ckpt / "empty/deep").mkdir(parents=True)
    for name in (b"a", b"\xff\n\t'\"", b"long" * 60, b"-T", b"*?[a]", b"\xc3\xa4"):
        (ckpt / os.fsdecode(name)).write_bytes(name * 9)
    (ckpt / "none").write_bytes(b"")
    (folder / "latest").symlink_to(os.fsdecode(b"ckpt/\xfe/nowhere"))
    (ckpt / "outside").symlink_to("/etc/passwd")
    with (ckpt / "holes").open("wb") as file:
        for at in (1 << 20, 5 << 20):
            file.seek(at)
            file.write(b"data" * 2000)
        file.truncate(300 << 20)
    with (ckpt / "only-hole").open("wb") as file:
        file.truncate(1 << 30)
    (ckpt / "a").chmod(0o4751)
    os.utime(ckpt / "a", ns=(1, 1_234_567_890_123_456_789))
    os.utime(ckpt / "none", ns=(1, -5))
    os.utime(folder / "latest", ns=(1, 7), follow_symlinks=False)
    (ckpt / "empty").chmod(0o1500)
    os.utime(ckpt / "empty", ns=(1, 999_999_999))


def test_a_new_node_looks_like_the_old_one(host: KeptHost) -> None:
    write_odd_files(host.folder)
    host.put("data/cache", "the script's")
    copied = host.copy(1)
    assert copied.generation == Generation(1, 1) and copied.is_new and copied.left_out == ()
    assert "train.py" not in host.paths(copied) and "data/corpus" not in host.paths(copied)
    assert copied.bytes < 1 << 20, "holes take no room"
    new = new_host(host)
    restored = new.begin(2)
    assert (restored.files, restored.bytes) == (copied.files, copied.bytes)
    kept = {os.fsencode(path) for path in host.paths(copied)}
    expected, found = host.tree(), new.tree()
    assert {path: found[path] for path in kept} == {path: expected[path] for path in kept}
    code = {b"train.py", b"data/corpus"}
    assert {p: s for p, s in found.items() if p not in code} == {
        p: s for p, s in expected.items() if p not in code
    }
    for name in ("ckpt/holes", "ckpt/only-hole"):
        assert (new.folder / name).stat().st_blocks < 100


def test_what_cannot_be_kept_is_left_out_by_name(host: KeptHost) -> None:
    os.mkfifo(host.folder / "pipe")
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(host.folder / "door"))
    for name in (
        ".git/HEAD", ".venv/x", "a/__pycache__/x", "node_modules/x", ".cache/pip/x",
        ".cache/huggingface/x", "a/x.lock", "run.pid", "x.sock", "core", "core.17",
    ):  # fmt: skip
        host.put(name)
    for name in (".env", ".netrc", "a/x.pem", "x.key", "id_rsa", "my-credentials.json"):
        host.put(name, "secret")
    for name in ("core.py", "id_map.json", "cores/x", ".cache/other/x", "a/b"):
        host.put(name)
    copied = host.copy(1)
    assert host.paths(copied) == [".cache/other/x", "a/b", "core.py", "cores/x", "id_map.json"]
    left_out = {os.fsdecode(path): why for path, why in copied.left_out}
    assert (left_out.pop("pipe"), left_out.pop("door")) == ("is a pipe", "is a socket")
    keys = {".env", ".netrc", "a/x.pem", "x.key", "id_rsa", "my-credentials.json"}
    assert left_out == dict.fromkeys(keys, file_listing.KEY)
    assert host.manifest(copied).left_out == copied.left_out


@pytest.mark.root
def test_nothing_is_kept_across_a_mount(host: KeptHost) -> None:
    (host.folder / "disk").mkdir()
    words = ["mount", "-t", "tmpfs", "none", str(host.folder / "disk")]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        host.put("disk/x")
        copied = host.copy(1)
    finally:
        subprocess.run(["umount", str(host.folder / "disk")], check=True)
    assert host.paths(copied) == []
    assert copied.left_out == ((b"disk", file_listing.MOUNT),)


def test_named_paths_alone_are_kept_wherever_they_are(host: KeptHost, tmp_path: Path) -> None:
    data = tmp_path / "a-disk"
    paths = ("ckpt", ".git", str(data / "runs"), "state.json", "!*.tmp", "!ckpt/old")
    host.begin(2, paths=paths)
    kept = {"ckpt/a", ".git/HEAD", "state.json"}
    for name in (*kept, "ckpt/a.tmp", "ckpt/old/x", ".git/index.lock", "other"):
        host.put(name, name)
    (data / "runs").mkdir(parents=True)
    (data / "runs/x").write_text("far away")
    copied = host.copy(1)
    assert set(host.paths(copied)) == {*kept, str(data / "runs/x")}
    before = dict(list_tree(data))
    (data / "runs/x").unlink()
    (data / "runs").rmdir()
    new = new_host(host)
    assert new.begin(3, paths=paths).refused == ()
    assert {name for name in kept if (new.folder / name).read_text() == name} == kept
    assert (
        dict(list_tree(data / "runs")).items()
        <= {os.path.relpath(path, b"runs"): state for path, state in before.items()}.items()
    )
    last = new_host(host, "c")
    assert set(last.begin(4).refused) == {os.fsencode(data / "runs"), os.fsencode(data / "runs/x")}
    assert (last.folder / "ckpt/a").exists()


@pytest.mark.parametrize(
    "path",
    ["/", "~/", "..", "ckpt/../..", "/etc/x", "/proc", "/dev/shm/x", "/usr/x", "HOME", "HOME/herd",
     "HOME/.tpuherd", "HOME/.tpuherd/x", "/sys"],
)  # fmt: skip
def test_paths_of_the_system_and_of_herd_are_refused(host: KeptHost, path: str) -> None:
    with pytest.raises(ValueError, match="keep: "):
        host.begin(2, paths=(path.replace("HOME", str(host.home)),))


def test_paths_in_each_other_are_refused(host: KeptHost) -> None:
    for paths in (("a", "a/b"), (".", "a"), ("/data/x", "/data")):
        with pytest.raises(ValueError, match="name one of them"):
            host.begin(2, paths=paths)
    host.begin(2, paths=("a", "ab"))


def test_what_is_left_out_is_kept_where_it_is_named_within_another(host: KeptHost) -> None:
    host.begin(2, paths=("repo", "repo/.git", "repo/.env"))
    for name in ("repo/a", "repo/.git/HEAD", "repo/.git/x.lock", "repo/.env", "repo/b/.git/x"):
        host.put(name)
    assert sorted(host.paths(host.copy(1))) == ["repo/.env", "repo/.git/HEAD", "repo/a"]


# ---- what changes --------------------------------------------------------------------------------


def test_what_did_not_change_is_not_written_again(host: KeptHost) -> None:
    host.put("big", os.urandom(1 << 20))
    host.put("small", "1")
    first = host.copy(1)
    again = host.copy(2)
    assert (again.generation, again.is_new) == (first.generation, False)
    host.put("small", "2")
    second = host.copy(3)
    rows = {row.path: row for row in host.manifest(second).rows}
    assert rows[b"big"].part.startswith("parts/w0000/000000001.0000000001.")
    assert rows[b"small"].part.startswith("parts/w0000/000000001.0000000003.")
    (host.folder / "x.lock").write_text("")
    assert not host.copy(4).is_new, "the time of a folder alone is no change"


def test_what_the_script_removed_does_not_return(host: KeptHost) -> None:
    host.put("ckpt/1"), host.put("ckpt/2")
    host.copy(1)
    (host.folder / "ckpt/1").unlink()
    (host.folder / "data/corpus").unlink()
    (host.folder / "data").rmdir()
    copied = host.copy(2)
    assert host.paths(copied) == ["ckpt/2"]
    new = new_host(host)
    new.begin(2)
    assert sorted(path.name for path in new.folder.rglob("*")) == ["2", "ckpt", "train.py"]
    assert new.copy(1).is_new and new.paths(new.copy(1)) == ["ckpt/2"]


def test_a_changed_product_of_setup_is_kept_and_comes_back(host: KeptHost) -> None:
    host.put("data/corpus", "the script's")
    assert host.paths(host.copy(1)) == ["data/corpus"]
    new = new_host(host)
    new.begin(2)
    assert (new.folder / "data/corpus").read_text() == "the script's"
    assert new.paths(new.copy(1)) == ["data/corpus"], "it stays the script's"


def test_a_restart_goes_on_with_the_parts_that_are_there(host: KeptHost) -> None:
    host.put("big", os.urandom(1 << 20))
    host.put("link").unlink()
    (host.folder / "link").symlink_to("big")
    parts = [host.manifest(host.copy(1)).parts]
    host.begin(2, same_node=True)
    parts.append(host.manifest(host.copy(1)).parts)
    new = new_host(host)
    new.begin(3)
    new.put("more")
    parts.append(new.manifest(new.copy(1)).parts)
    assert parts[0] == parts[1] and len(parts[2]) == 2 and set(parts[0]) < set(parts[2])
    (new.folder / "big").write_bytes(os.urandom(1 << 20))
    new.begin(4, same_node=True)
    assert new.manifest(new.copy(1)).parts != parts[2], "its content is compared"


def test_many_small_parts_are_joined_and_old_ones_go(host: KeptHost, store: FolderStore) -> None:
    for number in range(1, 60):
        host.put(f"log{number}", f"{number}" * 3000)
        assert len(host.manifest(host.copy(number)).parts) <= 41
    there = {one.name for one in store.list("parts/")}
    assert len(there) <= 60
    host.put("last")
    last = host.copy(60)
    assert len(host.paths(last)) == 60
    assert host.content(last, "log7") == b"7" * 3000
    for number in range(1, 60):
        host.put(f"log{number}", "new")
    host.copy(61), host.put("log1", "newer"), host.copy(62)
    needed = {part.name for n in (61, 62) for part in host.manifest_of(n).parts}
    assert {one.name for one in store.list("parts/")} == needed


def test_a_part_that_is_mostly_unused_is_written_anew(host: KeptHost) -> None:
    host.put("a", "a" * 4000), host.put("b", "b" * 100_000)
    first = host.manifest(host.copy(1)).parts
    (host.folder / "b").unlink()
    parts = host.manifest(host.copy(2)).parts
    assert len(first) == len(parts) == 1 and parts[0].bytes < 10_000


def test_a_large_file_has_parts_of_its_own(host: KeptHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_writer, "PART", 64 << 10)
    content = os.urandom(300_000)
    host.put("b-large", content), host.put("a", "a" * 50_000), host.put("c", "c" * 50_000)
    parts = host.manifest(host.copy(1)).parts
    assert len(parts) == 7 and max(part.bytes for part in parts) == 64 << 10
    host.put("a", "changed")
    assert len(host.manifest(host.copy(2)).parts) == 7
    new = new_host(host)
    new.begin(2)
    assert (new.folder / "b-large").read_bytes() == content
    assert (new.folder / "c").read_text() == "c" * 50_000


def test_what_is_over_a_bound_is_left_out_whole_and_on_all_hosts(
    tmp_path: Path, store: FolderStore
) -> None:
    hosts = [KeptHost(tmp_path / f"w{n}", store, n, 2) for n in range(2)]
    for host in hosts:
        host.begin(1, bytes_max=100_000)
        host.put("ckpt/1", "1" * 60_000), host.put("ckpt/2", "2" * 60_000)
        host.put("log", "l" * 30_000)
    hosts[1].put("ckpt/1", "small"), hosts[1].put("ckpt/2", "small")
    hosts[0].put("log", "l" * 30_001)
    for number in (1, 2):
        copies = [host.copy(number) for host in hosts]
        left_out = dict(copies[0].left_out)
        assert hosts[0].paths(copies[0]) == ["log"]
        assert left_out[b"ckpt"] == "0.00012 GB in 3 files, over 0.0001 GB"
    assert hosts[1].paths(copies[1]) == ["log"], "the same on all hosts"
    assert b"ckpt" in dict(copies[1].left_out)
    hosts[0].put("ckpt/1", "small"), hosts[0].put("ckpt/2", "small")
    hosts[0].begin(2, same_node=True, bytes_max=100_000)
    assert hosts[0].paths(hosts[0].copy(1)) == ["log"], "in each later generation"


def test_the_newest_entry_over_a_bound_is_called_what_it_may_be(host: KeptHost) -> None:
    host.begin(2, files_max=3)
    for number in range(5):
        host.put(f"ckpt/{number}")
    (why,) = dict(host.copy(1).left_out).values()
    said = "; it changed last, so it may be the checkpoint"
    assert why == f"5e-09 GB in 6 files, over 3 files{said}"


def test_more_than_can_be_looked_at_is_told(
    host: KeptHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "LOOKED_AT_MAX", 10)
    for number in range(20):
        host.put(f"d/{number}")
    assert "more than 10 files; name in `keep` what is to be kept" in host.miss(1).sentence


# ---- files that are being written ----------------------------------------------------------------

WRITER = """
import os, sys
files = {}
for line in sys.stdin:
    word, name, *rest = line.split()
    if word == "open":
        files[name] = open(name, rest[0], buffering=0)
    elif word == "write":
        files[name].seek(int(rest[1])) if len(rest) > 1 else None
        files[name].write(rest[0].encode())
    elif word == "map":
        import mmap
        with open(name, "r+b") as file:
            files[name] = mmap.mmap(file.fileno(), 0)
    elif word == "close":
        files.pop(name).close()
    print("done", flush=True)
"""


class Script:
    """A process of the attempt, which does what it is told."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            text=True,
        )

    def do(self, line: str) -> None:
        assert self.process.stdin and self.process.stdout
        print(line, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def __enter__(self) -> "Script":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def test_a_log_that_stays_open_is_kept_to_the_length_that_was_seen(host: KeptHost) -> None:
    with Script(host.folder) as script:
        script.do("open log ab")
        script.do("write log one-")
        assert dict(host.copy(1).left_out) == {b"log": copy_files.OPEN}
        script.do("write log two-")
        for number, expected in ((2, "one-two-"), (3, "one-two-three-")):
            copied = host.copy(number)
            assert host.paths(copied) == ["log"] and copied.left_out == ()
            assert host.content(copied, "log") == expected.encode()
            script.do("write log three-")


def test_a_file_that_is_rewritten_in_place_is_never_half_of_two(host: KeptHost) -> None:
    host.put("ckpt", "1" * 100)
    host.copy(1)
    with Script(host.folder) as script:
        script.do("open ckpt r+b")
        script.do("write ckpt 2222 0")
        missed = host.miss(2)
        assert missed.sentence == "files changed while they were copied, 3 times: ckpt"
        assert not missed.passed
        script.do("close ckpt")
        assert host.manifest(host.copy(3)).rows[-1].size == 100
        script.do("open ckpt r+b")
        script.do("write ckpt 3333 0")
        host.miss(4), host.miss(5)
        copied = host.copy(6)
        assert dict(copied.left_out) == {b"ckpt": copy_files.REWRITTEN}
        assert host.paths(copied) == []
    assert host.paths(host.copy(7)) == ["ckpt"]


def test_a_file_that_a_process_has_mapped_counts_as_open(host: KeptHost) -> None:
    host.put("map", "1" * 100)
    with Script(host.folder) as script:
        script.do("map map")
        assert dict(host.copy(1).left_out) == {b"map": copy_files.OPEN}
    assert host.paths(host.copy(2)) == ["map"]


def test_where_open_files_cannot_be_seen_young_ones_are_not_taken(
    host: KeptHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.begin(2, hidden=True)
    host.put("young")
    assert dict(host.copy(1).left_out) == {b"young": copy_files.OPEN}
    monkeypatch.setattr(copy_files, "YOUNG_NS", 0)
    assert host.paths(host.copy(2)) == ["young"]
    monkeypatch.undo()
    host.put("later")
    assert host.paths(host.copy(NOTICE)) == ["young"]
    assert host.paths(host.copy(END)) == ["later", "young"], "nothing runs any more"


class Meddler:
    """Changes files at each pause of the keeper, as many times as it is told."""

    def __init__(self, host: KeptHost, times: int, change: str) -> None:
        self.host, self.times, self.change = host, times, change

    def __call__(self, seconds: float) -> None:
        if self.times == 0:
            return
        self.times -= 1
        if self.change == "replace":
            self.host.put("new", f"{self.times}" * 100).replace(self.host.folder / "ckpt")
        elif self.change == "remove":
            (self.host.folder / f"old{self.times}").unlink()
        elif self.change == "append":
            with (self.host.folder / "log").open("a") as file:
                file.write("more")
        elif self.change == "create":
            self.host.put(f"later{self.times}")


@pytest.mark.parametrize("change", ["replace", "remove"])
def test_a_copy_starts_over_if_files_change_between_its_looks(host: KeptHost, change: str) -> None:
    host.put("ckpt", "1")
    for number in range(9):
        host.put(f"old{number}")
    host.keeper.pause = Meddler(host, 2, change)
    host.copy(1)
    host.keeper.pause = Meddler(host, 9, change)
    host.put("more")
    assert "3 times" in host.miss(2).sentence


@pytest.mark.parametrize("change", ["append", "create"])
def test_what_comes_after_the_first_look_does_not_matter(host: KeptHost, change: str) -> None:
    host.put("log", "1"), host.put("ckpt")
    host.copy(1)
    host.keeper.pause = Meddler(host, 9, change)
    host.put("ckpt", "2")
    assert host.paths(host.copy(2)) == ["ckpt", "log"]


def test_a_file_that_changes_while_it_is_read_costs_only_its_part(
    host: KeptHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.put("ckpt", "1" * 5000), host.put("z", "z")
    turns = iter(["2", "3"])

    def find_and_meddle(file: object, entry: object) -> None:
        if getattr(entry, "size", 0) == 5000:
            for turn in turns:
                host.put("ckpt", turn * 5000)
                break

    monkeypatch.setattr(part_writer, "find_segments", find_and_meddle)
    copied = host.copy(1)
    new = new_host(host)
    new.begin(2)
    assert (new.folder / "ckpt").read_text() == "3" * 5000
    assert len(copied.left_out) == 0


# ---- who wins ------------------------------------------------------------------------------------


def test_an_attempt_that_was_passed_publishes_nothing(host: KeptHost, store: FolderStore) -> None:
    host.put("ckpt", "1")
    host.copy(1)
    new = new_host(host)
    new.begin(2)
    host.put("ckpt", "late")
    missed = host.miss(2)
    assert (missed.sentence, missed.passed) == ("attempt 2 has begun", True)
    new.put("ckpt", "2")
    new.copy(1)
    last = new_host(host, "c")
    last.begin(3)
    assert (last.folder / "ckpt").read_text() == "2"


def test_a_thawed_predecessor_spoils_nothing(host: KeptHost, store: FolderStore) -> None:
    """Its manifest arrives after the next attempt has begun, and then it cleans up."""
    host.put("ckpt", "1")
    host.copy(1)
    host.put("ckpt", "2")
    write_new, new = store.write_new, new_host(host)

    def write_late(name: str, pieces: list[bytes]) -> bool:
        store.write_new = write_new  # type: ignore[method-assign]
        new.begin(2)
        return write_new(name, pieces)

    store.write_new = write_late  # type: ignore[method-assign, assignment]
    host.copy(2)
    assert (new.folder / "ckpt").read_text() == "1"
    third = new_host(host, "c")
    third.begin(3)
    assert (third.folder / "ckpt").read_text() == "1", "attempt 2 began with generation 1.1"


def test_a_predecessor_that_stood_still_removes_no_part_of_its_successor(
    host: KeptHost, store: FolderStore
) -> None:
    """It has seen that nobody follows, and lists the parts when one did."""
    host.put("ckpt", "1")
    host.copy(1)
    host.put("ckpt", "2")
    list_names, new = store.list, new_host(host)

    def list_late(prefix: str) -> Iterator[Stored]:
        if prefix.startswith("parts/"):
            store.list = list_names  # type: ignore[method-assign]
            new.begin(2)
            new.put("ckpt", "3")
            new.copy(1)
        return list_names(prefix)

    store.list = list_late  # type: ignore[method-assign]
    host.copy(2)
    third = new_host(host, "c")
    third.begin(3)
    assert (third.folder / "ckpt").read_text() == "3"


def test_a_damaged_generation_is_told_and_the_one_before_restored(
    host: KeptHost, store: FolderStore
) -> None:
    host.put("ckpt", "1" * 4000)
    host.copy(1)
    host.put("ckpt", "2" * 4000)
    (part,) = host.manifest(host.copy(2)).parts
    path = Path(store.url, part.name)
    path.write_bytes(path.read_bytes().replace(b"2222", b"2223"))
    for attempt, why in ((2, "ckpt is altered"), (3, "")):
        new = new_host(host, f"n{attempt}")
        if why:
            with pytest.raises(OSError, match=rf"1\.0000000002 .* is damaged: {why}"):
                new.begin(attempt)
            continue
        new.begin(attempt)
        assert (new.folder / "ckpt").read_text() == "1" * 4000


def test_a_missing_part_is_damage_and_is_noticed_by_who_wrote_it(
    host: KeptHost, store: FolderStore
) -> None:
    host.put("ckpt", "1")
    (part,) = host.manifest(host.copy(1)).parts
    store.remove(part.name)
    with pytest.raises(OSError, match="is damaged"):
        new_host(host).begin(2)
    store.remove("attempts/000000002.json")
    host.put("more")
    host.copy(2)
    host.copy(3)
    new = new_host(host, "c")
    new.begin(2)
    assert (new.folder / "ckpt").read_text() == "1", "it was copied again"


def begin_all(hosts: list[KeptHost], attempt: int) -> None:
    for host in hosts:
        host.begin(attempt)


def fresh(folder: Path, store: FolderStore, workers: int) -> list[KeptHost]:
    return [KeptHost(folder / f"w{n}", store, n, workers) for n in range(workers)]


def test_what_one_process_saved_for_all_comes_to_all(tmp_path: Path, store: FolderStore) -> None:
    hosts = fresh(tmp_path / "a", store, 3)
    begin_all(hosts, 1)
    hosts[1].put("ckpt/1", "1")
    for host in hosts:
        host.copy(1)
    hosts[1].put("ckpt/1", "2")
    hosts[1].copy(2), hosts[2].copy(2)
    for attempt in (2, 3):
        hosts = fresh(tmp_path / f"n{attempt}", store, 3)
        begin_all(hosts, attempt)
        assert [(host.folder / "ckpt/1").read_text() for host in hosts] == ["2"] * 3
        copies = [host.copy(1) for host in hosts]
        assert [host.paths(one) for host, one in zip(hosts, copies, strict=True)] == [
            [], ["ckpt/1"], [],
        ]  # fmt: skip


def test_each_worker_gets_its_own_where_contents_differ(tmp_path: Path, store: FolderStore) -> None:
    hosts = fresh(tmp_path / "a", store, 3)
    begin_all(hosts, 1)
    for host in hosts[:2]:
        host.put("shard", str(host.worker))
    for host in hosts:
        host.copy(1)
    hosts[0].put("shard", "new")
    hosts[0].copy(2), hosts[2].copy(2)
    new = fresh(tmp_path / "b", store, 3)
    begin_all(new, 2)
    assert [(host.folder / "shard").read_text() for host in new[:2]] == ["0", "1"], "2 is not whole"
    assert not (new[2].folder / "shard").exists()
    for host in new:
        host.copy(1)
    two = fresh(tmp_path / "c", store, 2)
    restored = [host.begin(3) for host in two]
    assert [(host.folder / "shard").read_text() for host in two] == ["0", "0"]
    assert restored[0].others == (1,)
    for host in two:
        host.copy(1), host.put("more"), host.copy(2)
    assert {name.name for name in store.list("parts/w0002")} == set(), "there is no worker 2"


def test_equal_contents_come_to_all(tmp_path: Path, store: FolderStore) -> None:
    hosts = fresh(tmp_path / "a", store, 2)
    begin_all(hosts, 1)
    for host in hosts:
        host.put("ckpt", "same")
        host.copy(1)
    new = fresh(tmp_path / "b", store, 3)
    restored = [host.begin(2) for host in new]
    assert [(host.folder / "ckpt").read_text() for host in new] == ["same"] * 3
    assert restored[0].others == ()


def test_what_lies_there_is_moved_aside(host: KeptHost) -> None:
    host.put("ckpt/1", "kept"), host.put("data/corpus", "kept")
    host.copy(1)
    host.put("ckpt/1", "later"), host.put("new/file", "later"), host.put("data/corpus", "later")
    restored = host.begin(2)
    assert restored.aside == f"{host.folder}.aside/2"
    assert (host.folder / "ckpt/1").read_text() == "kept"
    assert (host.folder / "data/corpus").read_text() == "kept"
    assert not (host.folder / "new").exists()
    aside = Path(restored.aside)
    assert {str(p.relative_to(aside)) for p in aside.rglob("*") if p.is_file()} == {
        "ckpt/1", "new/file", "data/corpus",
    }  # fmt: skip
    assert (aside / "new/file").read_text() == "later"


def test_without_room_nothing_starts_from_nothing(
    host: KeptHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpuherd_host.agent.keep import restore

    host.put("ckpt", "1")
    host.copy(1)
    monkeypatch.setattr(restore, "RESERVE", 1 << 60)
    with pytest.raises(OSError, match="the disk has no room for 1e-09 GB of kept files"):
        new_host(host).begin(2)


def test_links_that_lie_there_lead_nothing_outside(host: KeptHost, tmp_path: Path) -> None:
    host.put("out/x", "kept")
    host.copy(1)
    new = new_host(host)
    outside = tmp_path / "outside"
    outside.mkdir()
    (new.folder / "out").symlink_to(outside)  # as setup made it: it stays
    with pytest.raises(OSError, match="is a link"):
        new.begin(2)
    assert list(outside.iterdir()) == []


def test_the_time_for_a_copy_is_kept(host: KeptHost) -> None:
    host.put("ckpt", "1")
    assert host.miss(1, time_s=-1.0).sentence == "the time was over before all was copied"
    host.copy(2, time_s=60.0)
