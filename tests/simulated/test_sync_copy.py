"""Copying files and folders as they are, to and from hosts."""

import asyncio
import os
import random
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulated.sync_hosts import NearHost, herd, tree, write
from tpuherd.errors import InvalidInput, NotFound, NotReached
from tpuherd.ports import FetchedFiles
from tpuherd.sync.copy_files import CopyResult, collect_paths, copy_from, copy_to
from tpuherd.sync.ship import Shipment
from tpuherd_host.agent.frames import WINDOW
from tpuherd_host.agent.snapshots.manifest import UNHASHED, pack_row, pack_rows
from tpuherd_host.agent.snapshots.stream import StreamContent, encode_stream

WHEN = 1_500_000_000_123_456_789


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    write(folder, {"tree/a": "a", "tree/sub/b": random.Random(1).randbytes(300_000), "one": "1"})
    write(folder, {"tree/same": "a", "tree/ü\n": ""})
    (folder / "tree" / "empty").mkdir()
    (folder / "tree" / "link").symlink_to("sub/../sub")
    (folder / "tree" / "a").chmod(0o640)
    (folder / "tree" / "sub").chmod(0o750)
    os.utime(folder / "tree" / "a", ns=(WHEN, WHEN))
    os.utime(folder / "tree" / "sub", ns=(WHEN, WHEN))
    return folder


def to(paths: list[Path], dest: str, hosts: list[NearHost]) -> Shipment:
    return asyncio.run(copy_to(paths, dest, hosts))


def fetched(paths: list[str], hosts: list[NearHost], into: Path) -> CopyResult:
    return asyncio.run(copy_from(paths, hosts, into))


def facts(path: Path) -> tuple[int, int]:
    found = path.stat()
    return stat.S_IMODE(found.st_mode), found.st_mtime_ns


def test_a_folder_is_copied_to_all_hosts_over_one_uplink(here: Path, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 7)
    done = to([here / "tree"], "new", hosts)
    assert done.failed == {}
    for host in hosts:
        assert tree(host.home / "new") == tree(here / "tree")
        assert (host.home / "new" / "empty").is_dir()
        assert facts(host.home / "new" / "a") == (0o640, WHEN)
        assert facts(host.home / "new" / "sub") == (0o750, WHEN)
    assert [host.up for host in hosts[1:]] == [0] * 6


def test_destinations_work_as_with_cp(here: Path, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 1)
    home = hosts[0].home
    (home / "there").mkdir()
    for paths, dest, found in [
        ([here / "one"], "uno", "uno"),
        ([here / "one"], "there", "there/one"),
        ([here / "one"], "deep/er/", "deep/er/one"),
        ([here / "one"], "~", "one"),
        ([here / "tree"], "there", "there/tree/a"),
        ([here / "one", here / "tree"], "both", "both/tree/a"),
        ([here / "one"], str(home / "absolute"), "absolute"),
    ]:
        assert to(paths, dest, hosts).failed == {}
        assert (home / found).is_file(), (dest, found)
    write(here, {"one": "2"})
    assert to([here / "one"], "there", hosts).failed == {}
    assert (home / "there" / "one").read_text() == "2"
    assert (home / "there" / "tree" / "a").exists()
    assert to([here / "one"], "uno", hosts).failed == {}
    assert (home / "uno").read_text() == "2"


def test_obstacles_are_refused_before_anything_is_done(here: Path, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 2)
    write(hosts[1].home, {"x/tree/sub": "a file"})
    (hosts[0].home / "x").mkdir()
    done = to([here / "tree"], "x", hosts)
    assert "is no folder" in done.failed["pod/w1"]
    assert tree(hosts[1].home / "x") == {"tree/sub": ("file", b"a file")}
    assert tree(hosts[0].home / "x") == {}
    write(hosts[0].home, {"file": ""})
    assert "leads through a file" in to([here / "one"], "file/x", hosts[:1]).failed["pod/w0"]
    assert "is a file" in to([here / "one"], "file/", hosts[:1]).failed["pod/w0"]


def test_special_files_are_skipped_and_named(here: Path, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 1)
    pipe = here / "tree" / "pipe"
    os.mkfifo(pipe)
    done = to([here / "tree"], "x", hosts)
    assert (done.failed, done.skipped) == ({}, (str(pipe),))
    with pytest.raises(InvalidInput, match="pipe: not a file or folder"):
        to([pipe], "y", hosts)
    os.mkfifo(hosts[0].home / "queue")
    told = fetched(["queue"], hosts, tmp_path / "back").failed["pod/w0"]
    assert told.endswith("queue: neither a file nor a folder")


def test_two_nodes_of_one_name_are_told_apart(here: Path, tmp_path: Path) -> None:
    hosts = [herd(tmp_path / zone, 1)[0] for zone in ("us-a", "eu-b")]
    for host, zone in zip(hosts, ("us-a", "eu-b"), strict=True):
        host.host = replace(host.host, zone=zone, incarnation=zone)
    assert to([here / "one"], "uno", hosts).got == ("us-a/pod/w0", "eu-b/pod/w0")
    assert [(host.home / "uno").read_text() for host in hosts] == ["1", "1"]
    assert set(fetched(["uno"], hosts, tmp_path / "back").got) == {"us-a/pod/w0", "eu-b/pod/w0"}


def test_an_empty_copy_is_refused_with_a_sentence(here: Path, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 1)
    with pytest.raises(NotFound, match="nothing does not exist"):
        to([here / "nothing"], "x", hosts)
    with pytest.raises(InvalidInput, match="with the others"):
        to([here / "one", here / "tree" / ".." / "one"], "x", hosts)


def test_a_folder_is_copied_back_unchanged(here: Path, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 1)
    to([here / "tree"], "x", hosts)
    os.mkfifo(hosts[0].home / "x" / "pipe")
    done = fetched(["x"], hosts, tmp_path / "back")
    assert done.failed == {}
    assert tree(tmp_path / "back") == tree(here / "tree")
    assert facts(tmp_path / "back" / "a") == (0o640, WHEN)
    assert facts(tmp_path / "back" / "sub") == (0o750, WHEN)
    assert done.skipped["pod/w0"][0].endswith("x/pipe")
    assert fetched(["x/a"], hosts, tmp_path / "file").failed == {}
    assert (tmp_path / "file").read_text() == "a"


def test_names_that_a_mac_takes_for_one_are_not_copied_over_each_other(tmp_path: Path) -> None:
    (host,) = herd(tmp_path, 1)
    write(host.home, {"out/Log": "1", "out/log": "2"})
    for name in ("here", "mac"):
        (tmp_path / name).mkdir()
    (tmp_path / "MAC").symlink_to(tmp_path / "mac")  # found by both of its names, as on a Mac
    assert fetched(["out"], [host], tmp_path / "here").failed == {}
    (sentence,) = fetched(["out"], [host], tmp_path / "mac").failed.values()
    assert sentence.startswith("out/Log and out/log differ only by case, and ")
    assert list((tmp_path / "mac").iterdir()) == []


def test_several_hosts_copy_into_a_folder_each(tmp_path: Path) -> None:
    hosts = herd(tmp_path, 4)
    for number, host in enumerate(hosts):
        write(host.home, {"log.1": f"{number}", "log.2": "x", "other": ""})
    hosts[2].down = True
    done = fetched(["log.*"], hosts, tmp_path / "all")
    assert done.failed == {"pod/w2": "pod/w2 is down"}
    found = {name: content for name, (_, content) in tree(tmp_path / "all").items()}
    wanted = {f"pod-w{n}/log.1": b"%d" % n for n in (0, 1, 3)}
    assert found == {**wanted, **{f"pod-w{n}/log.2": b"x" for n in (0, 1, 3)}}
    done = fetched(["nothing*"], hosts[:1], tmp_path / "none")
    assert done.failed == {"pod/w0": "nothing* is not there"}


def test_a_growing_log_is_cut_at_its_size_and_a_shrinking_one_is_refused(
    tmp_path: Path,
) -> None:
    hosts = herd(tmp_path, 1)
    log = hosts[0].home / "run" / "log"
    # More than the host may send unread goes first: the log is listed by then, but not read.
    size_before = 4 * WINDOW
    write(log.parent, {"smaller": random.Random(1).randbytes(size_before)})
    listed = size_before + 1

    def changed(size: int) -> None:
        def passing(piece: bytes) -> bytes:
            if log.stat().st_size == listed:  # once: the host may read it from then on
                log.write_text("y" * size)
            return piece

        log.write_text("x" * listed)
        hosts[0].passing = passing

    changed(listed + 50)
    assert fetched(["run"], hosts, tmp_path / "a").failed == {}
    assert (tmp_path / "a" / "log").read_text() == "y" * listed
    changed(50)
    assert "shrank" in fetched(["run"], hosts, tmp_path / "b").failed["pod/w0"]
    assert not (tmp_path / "b").exists()


def test_a_host_cannot_choose_where_we_write(tmp_path: Path) -> None:
    """What a host sends is checked: no path leads out of the folder it was fetched into."""
    hosts = herd(tmp_path, 1)
    write(hosts[0].home, {"x": "evil"})
    rows = pack_rows([pack_row(b"../../stolen", stat.S_IFREG | 0o644, 4, UNHASHED)])
    lie = b"".join(encode_stream({"give": 1}, rows, [StreamContent(0, 4, [b"evil"])], lambda: 1))
    hosts[0].passing = lambda piece: lie
    done = fetched(["x"], hosts, tmp_path / "into" / "deep")
    assert "not a path in a snapshot" in done.failed["pod/w0"]
    assert not list(tmp_path.rglob("stolen"))


def collected(host: NearHost, into: Path, within_s: float) -> FetchedFiles:
    paths = ["job/small", "job/results", "job/none"]
    return asyncio.run(collect_paths(paths, host, into, "w0", within_s))


def test_of_a_host_that_goes_the_smallest_files_have_come_and_the_others_are_named(
    tmp_path: Path,
) -> None:
    host = NearHost(tmp_path / "hosts", 0)
    (host.home / "job/results").mkdir(parents=True)
    (host.home / "job/small").write_text("all")
    (host.home / "job/results/a-model.npz").write_bytes(os.urandom(8 << 20))
    (host.home / "job/results/log.txt").write_text("lines")
    came = 0

    def passing(piece: bytes) -> bytes:
        nonlocal came
        came += len(piece)
        if came > 4 << 20:
            raise NotReached("the node is gone")
        return piece

    host.passing = passing
    found = collected(host, tmp_path / "here", 60.0)
    assert found.came == ["small", "results/log.txt"]
    assert found.cut_off == ["results/a-model.npz", "job/none"]
    assert found.bytes == len("all") + len("lines")
    here = tmp_path / "here/w0"
    assert (here / "results/log.txt").read_text() == "lines"
    assert sorted(path.name for path in here.rglob("*")) == ["log.txt", "results", "small"]


def test_of_a_host_that_says_nothing_all_is_cut_off_in_time(tmp_path: Path) -> None:
    host = NearHost(tmp_path / "hosts", 0)
    host.dead = {"give"}
    found = collected(host, tmp_path / "here", 0.1)
    assert (found.came, found.cut_off) == ([], ["job/small", "job/results", "job/none"])


def test_without_a_time_a_host_that_goes_is_a_failure(tmp_path: Path) -> None:
    host = NearHost(tmp_path / "hosts", 0)
    host.down = True
    with pytest.raises(NotReached):
        asyncio.run(collect_paths(["job"], host, tmp_path / "here", "w0"))
