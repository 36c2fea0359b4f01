"""Shipping to hosts: what arrives, what travels, what is refused, and what hosts keep."""

import asyncio
import errno
import os
import random
import shutil
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.worlds import until
from tests.simulated.sync_hosts import NearHost, ShipRig, herd, tree, write
from tpuherd.errors import InvalidInput, NotFound
from tpuherd.sync.ship import Shipment, ShipOptions, ship, ship_stored
from tpuherd_host.agent.snapshots import tree as snapshot_tree


@pytest.fixture
def rig(tmp_path: Path) -> ShipRig:
    return ShipRig(tmp_path)


def blobs(host: NearHost) -> int:
    folder = Path(host.house) / "store" / "blobs"
    total = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):  # goes just now
            total += file.stat().st_size
    return total


def test_all_hosts_get_everything_and_the_uplink_carries_it_once(
    rig: ShipRig, tmp_path: Path
) -> None:
    write(rig.code, {f"d{n % 7}/f{n}": random.Random(n).randbytes(3000) for n in range(60)})
    write(rig.code, {"odd name/ü\n": "x", "a.sh": "#!"})
    (rig.code / "a.sh").chmod(0o755)
    (rig.code / "link").symlink_to(".//d1")
    (rig.code / "empty").mkdir()
    hosts = herd(tmp_path, 23)
    done = rig.ship(hosts)
    assert (done.failed, done.slow, done.unchanged) == ({}, {}, ())
    assert done.got == tuple(host.host.name for host in hosts)
    wanted = tree(rig.code)
    assert all(tree(host.home / "c") == wanted for host in hosts)
    assert [host.up for host in hosts[1:]] == [0] * 22
    assert done.bytes_up == hosts[0].up < 60 * 3000 * 1.1


def test_only_changes_travel_including_deletions(rig: ShipRig, tmp_path: Path) -> None:
    write(rig.code, {f"f{n}": random.Random(n).randbytes(2000) for n in range(300)})
    hosts = herd(tmp_path, 5)
    rig.ship(hosts)
    write(rig.code, {"f7": "edited", "new/one": "new"})
    (rig.code / "f8").unlink()
    (rig.code / "f9").rename(rig.code / "moved")
    done = rig.ship(hosts)
    assert done.failed == {}
    assert done.bytes_up < 300 * 5
    assert all(tree(host.home / "c") == tree(rig.code) for host in hosts)
    write(rig.code, {"f10": random.Random(999).randbytes(3000)})
    assert rig.ship(hosts).bytes_up < 3400  # more than a question: once
    assert all(tree(host.home / "c") == tree(rig.code) for host in hosts)
    nothing = rig.ship(hosts)
    assert nothing.bytes_up == 0
    assert len(nothing.unchanged) == 5


def test_an_edited_file_travels_once_for_all_hosts(rig: ShipRig, tmp_path: Path) -> None:
    lines = [random.Random(n).randbytes(30).hex() for n in range(20_000)]
    write(rig.code, {"big.py": "\n".join(lines), "a": "1"})
    hosts = herd(tmp_path, 3)
    rig.ship(hosts)
    lines[9000:9000] = ["one more line"] * 3
    write(rig.code, {"big.py": "\n".join(lines)})
    done = rig.ship(hosts)
    assert done.failed == {}
    assert done.bytes_up < 1.1 * len(zlib.compress("\n".join(lines).encode()))
    assert tree(hosts[2].home / "c") == tree(rig.code)


def test_cached_host_state_is_only_a_guess(rig: ShipRig, tmp_path: Path) -> None:
    """Somebody else changed the destination, removed it, or the agent's folder is gone."""
    write(rig.code, {"a": "1", "b": "b" * 9000})
    hosts = herd(tmp_path, 4)
    rig.ship(hosts)
    (tmp_path / "other").mkdir()
    other = ShipRig(tmp_path / "other")
    write(other.code, {"a": "other"})
    assert other.ship(hosts[1:2], dest="~/c").failed == {}
    shutil.rmtree(hosts[2].home / "c")
    shutil.rmtree(hosts[3].house)
    shutil.rmtree(hosts[3].home / "c")
    write(rig.code, {"a": "2"})
    done = rig.ship(hosts)
    assert done.failed == {}
    assert all(tree(host.home / "c") == tree(rig.code) for host in hosts)


def test_a_snapshot_can_be_shipped_repeatedly_by_its_id(rig: ShipRig, tmp_path: Path) -> None:
    write(rig.code, {"a": "1", "b/c": "2"})
    id, was = rig.shot().id, tree(rig.code)
    write(rig.code, {"a": "moved on"})
    rig.shot()
    hosts = herd(tmp_path, 2)

    def again() -> Shipment:
        return asyncio.run(ship_stored(id, "jobs/gpt", hosts, archive=rig.archive))

    assert [again().unchanged, again().unchanged] == [(), ("pod/w0", "pod/w1")]
    assert all(tree(host.home / "jobs/gpt") == was for host in hosts)
    with pytest.raises(NotFound):
        asyncio.run(ship_stored("0" * 64, "c", hosts, archive=rig.archive))


def test_a_single_host_is_filled_and_switched_in_one_call(rig: ShipRig, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 1)
    hosts[0].dead = {"snapshot.commit"}
    for turn in range(3):
        write(rig.code, {"a": f"{turn}", "b": "b" * 100})
        assert rig.ship(hosts).failed == {}
        assert tree(hosts[0].home / "c") == tree(rig.code)


def test_a_new_host_among_old_ones_costs_only_what_it_lacks(rig: ShipRig, tmp_path: Path) -> None:
    write(rig.code, {"big": random.Random(1).randbytes(50_000), "a": "1"})
    hosts = herd(tmp_path, 4)
    rig.ship(hosts[:3])
    write(rig.code, {"a": "2"})
    assert rig.ship(hosts[:3]).bytes_up < 1000
    done = rig.ship(hosts)
    assert set(done.unchanged) == {host.host.name for host in hosts[:3]}
    assert tree(hosts[3].home / "c") == tree(rig.code)


def test_one_byte_back_and_forth_is_always_right(rig: ShipRig, tmp_path: Path) -> None:
    """Any order of edits, each shipped: every host has exactly the folder each time."""
    hosts = herd(tmp_path, 3)
    dice = random.Random(4)
    for _ in range(12):
        for name in ("a", "b/c", "b/d", "e"):
            path = rig.code / name
            roll = dice.random()
            if roll < 0.4:
                write(rig.code, {name: dice.choice([b"x", b"y", b""])})
            elif roll < 0.6 and path.exists():
                path.chmod(dice.choice([0o644, 0o755]))
            elif roll < 0.8 and path.exists():
                path.unlink()
        write(rig.code, {"z": "always"})
        assert rig.ship(hosts[dice.randrange(3) :]).failed == {}
        assert tree(hosts[2].home / "c") == tree(rig.code)


def test_a_recreated_host_gets_exactly_the_old_snapshot(rig: ShipRig, tmp_path: Path) -> None:
    write(rig.code, {"a": "one", "b": "two"})
    first, was = rig.shot(), tree(rig.code)
    write(rig.code, {"a": "other"})
    rig.shot()
    hosts = herd(tmp_path, 2)
    done = asyncio.run(ship(first, "c", hosts, archive=rig.archive))
    assert done.failed == {}
    assert tree(hosts[1].home / "c") == was


# ---- what stands at the destination --------------------------------------------------------------


def test_files_made_on_a_host_stay_and_edits_there_are_undone(rig: ShipRig, tmp_path: Path) -> None:
    write(rig.code, {"train.py": "1", "lib/x.py": "x", "lib/y.py": "y", "gone/z.py": "z"})
    hosts = herd(tmp_path, 1)
    c = hosts[0].home / "c"
    rig.ship(hosts)
    write(c, {"out/step1": "weights", "lib/notes": "mine", "gone/left": "mine", "log": "mine"})
    write(c, {"lib/__pycache__/x.pyc": "x", "gone/__pycache__/z.pyc": "z"})
    write(c, {"lib/x.py": "edited in place"})
    running = os.open(c, os.O_RDONLY)  # as the working directory of a process
    write(rig.code, {"train.py": "2"})
    (rig.code / "gone" / "z.py").unlink()
    done = rig.ship(hosts)
    assert (done.failed, done.kept) == ({}, {})
    mine = {"out/step1": "weights", "lib/notes": "mine", "gone/left": "mine", "log": "mine"}
    here = tree(c)
    for name, content in {**mine, "lib/__pycache__/x.pyc": "x"}.items():
        assert here.pop(name) == ("file", content.encode())
    assert here == tree(rig.code)
    with open("log", "a", opener=lambda p, f: os.open(p, f, dir_fd=running)) as log:
        log.write(", and goes on")
    os.stat("out/step1", dir_fd=running)
    os.close(running)
    assert (c / "log").read_text() == "mine, and goes on"


def test_an_edit_in_place_is_seen_though_nothing_else_changed(rig: ShipRig, tmp_path: Path) -> None:
    write(rig.code, {"a": "one", "b": "two", "d": "x"})
    hosts = herd(tmp_path, 2)
    rig.ship(hosts)
    write(hosts[1].home / "c", {"a": "ONE"})
    (hosts[1].home / "c" / "b").unlink()
    (hosts[1].home / "c" / "d").chmod(0o755)
    done = rig.ship(hosts)
    assert done.unchanged == ("pod/w0",)
    assert tree(hosts[1].home / "c") == tree(rig.code)


def test_editing_a_tree_damages_no_stored_content(rig: ShipRig, tmp_path: Path) -> None:
    write(rig.code, {"a": "one", "b": "b"})
    hosts = herd(tmp_path, 1)
    rig.ship(hosts)
    write(hosts[0].home / "c", {"a": "spoiled in place"})
    rig.ship(hosts, dest="d")
    assert tree(hosts[0].home / "d") == tree(rig.code)


def test_new_host_files_in_the_way_are_kept_aside_and_named(rig: ShipRig, tmp_path: Path) -> None:
    write(rig.code, {"a": "one"})
    hosts = herd(tmp_path, 1)
    rig.ship(hosts)
    write(hosts[0].home / "c", {"results": "the host's"})
    write(rig.code, {"results": "the user's"})
    done = rig.ship(hosts)
    assert done.kept == {"pod/w0": ("results",)}
    for turn in range(6):  # and no later cleaning takes it
        write(rig.code, {"a": f"{turn}"})
        rig.ship(hosts)
    kept = list((Path(hosts[0].house) / "trees").rglob("results"))
    assert b"the host's" in [path.read_bytes() for path in kept]


def test_old_trees_and_contents_are_deleted(rig: ShipRig, tmp_path: Path) -> None:
    hosts = herd(tmp_path, 1)
    for turn in range(20):
        write(rig.code, {"a": random.Random(turn).randbytes(10_000), "b": "b"})
        assert rig.ship(hosts).failed == {}
    trees = next(iter((Path(hosts[0].house) / "trees").iterdir()))

    def tidy() -> bool:
        old = [path for path in trees.iterdir() if path.is_dir()]
        return len(old) == 2 and blobs(hosts[0]) < 13 * 10_000  # and the one in place

    until(tidy, "what is old to go")


@pytest.mark.parametrize(
    ("before", "dest", "sentence"),
    [
        ({"c": "a file"}, "c", "c is a file"),
        ({"c": "a file"}, "c/d", "leads through a file"),
        ({"c/x": "mine"}, "c", "herd did not put there"),
        ({}, ".", "cannot be a destination"),
        ({}, "..", "cannot be a destination"),
        ({}, "~", "cannot be a destination"),
        ({}, "/", "cannot be a destination"),
        ({}, "", "is empty"),
        ({}, ".tpuherd/x", "belongs to the agent"),
    ],
)
def test_a_destination_that_is_not_ours_is_refused(
    rig: ShipRig, tmp_path: Path, before: dict[str, str], dest: str, sentence: str
) -> None:
    write(rig.code, {"a": "one"})
    hosts = herd(tmp_path, 2)
    write(hosts[1].home, before)
    was = tree(hosts[1].home)
    done = rig.ship(hosts, dest=dest)
    assert sentence in done.failed["pod/w1"]
    assert (done.got, done.unsure) == ((), ())
    assert rig.ship(hosts[1:], dest=dest).unsure == ()
    assert {n: v for n, v in tree(hosts[1].home).items() if not n.startswith(".tpuherd/")} == was
    assert not (hosts[0].home / "c").exists()


def test_force_merges_with_existing_files_and_loses_nothing(rig: ShipRig, tmp_path: Path) -> None:
    write(rig.code, {"a": "new", "sub/x": "new"})
    hosts = herd(tmp_path, 1)
    write(hosts[0].home / "c", {"a": "old", "sub/y": "old", "other": "old"})
    done = rig.ship(hosts, options=ShipOptions(force=True))
    assert done.failed == {}
    found = {name: content for name, (_, content) in tree(hosts[0].home / "c").items()}
    assert found == {"a": b"new", "sub/x": b"new", "sub/y": b"old", "other": b"old"}
    assert done.kept == {"pod/w0": ("a",)}


def test_a_destination_may_be_a_link_an_empty_folder_or_deep_down(
    rig: ShipRig, tmp_path: Path
) -> None:
    write(rig.code, {"a": "one"})
    hosts = herd(tmp_path, 1)
    home = hosts[0].home
    (home / "disk").mkdir()
    (home / "c").symlink_to("disk")
    assert rig.ship(hosts).failed == {}
    assert (home / "c").is_symlink()
    assert (home / "disk" / "a").read_text() == "one"
    assert rig.ship(hosts, dest="x/y/z").failed == {}
    assert rig.ship(hosts, dest=str(home / "absolute")).failed == {}
    assert rig.ship(hosts, dest="~/tilde").failed == {}
    assert {"absolute", "tilde"} <= {path.name for path in home.iterdir()}


def test_without_atomic_exchange_a_switch_still_works(
    rig: ShipRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(one: Path, other: Path) -> None:
        raise OSError(errno.EINVAL, "not on this file system")

    monkeypatch.setattr(snapshot_tree, "exchange_paths", never)
    hosts = herd(tmp_path, 1)
    for content in "123":
        write(rig.code, {"a": content})
        assert rig.ship(hosts).failed == {}
        assert tree(hosts[0].home / "c") == tree(rig.code)


def test_shipping_to_no_hosts(rig: ShipRig) -> None:
    write(rig.code, {"a": ""})
    with pytest.raises(InvalidInput):
        rig.ship([])
