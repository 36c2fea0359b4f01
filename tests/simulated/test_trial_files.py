"""What trials make in one folder: each finds its own files again, and none of another's."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.sync_hosts import NearHost, ShipRig, herd, tree, write
from tpuherd.errors import HerdError
from tpuherd.ports import RpcRequest
from tpuherd_host.agent.snapshots import trial_base

CODE = {"train.py": "train", "config/a.yaml": "lr: 1", "config/b.yaml": "lr: 2"}


@pytest.fixture
def host(tmp_path: Path) -> NearHost:
    """A host with code, and with what a setup made."""
    rig, (host,) = ShipRig(tmp_path), herd(tmp_path, 1)
    write(rig.code, CODE)
    assert rig.ship([host]).failed == {}
    write(host.home / "c", {"venv/bin/python": "elf", "data/corpus": "words"})
    (host.home / "c/out").mkdir()
    return host


def begin(host: NearHost, trial: str) -> Mapping[str, Any]:
    arguments = {"dest": "c", "slot": "lr-0", "trial": trial}
    return asyncio.run(host.call(RpcRequest(name="trial.begin", arguments=arguments)))


def test_each_trial_finds_its_own_files_and_none_of_another(host: NearHost) -> None:
    folder, clean = host.home / "c", tree(host.home / "c")
    assert begin(host, "t0")["moved"] == 0
    write(folder, {"ckpt.txt": "0", "runs/a/log": "0", "data/cache": "0", "out/x": "0"})
    write(folder, {"config/a.yaml": "lr: 7", "config/c.yaml": "0"})
    (folder / "train.py").unlink()
    (folder / "latest").symlink_to("runs/a")
    (folder / "new").mkdir()
    first = tree(folder)
    assert begin(host, "t0")["moved"] == 0
    assert tree(folder) == first, "a try of the same trial finds its files"

    found = begin(host, "t1")
    aside = host.home / "c.trials/t0"
    assert found == {"moved": 8, "trial": "t0", "folder": str(aside)}
    assert tree(folder) == clean
    made = {"ckpt.txt": "0", "runs/a/log": "0", "data/cache": "0", "out/x": "0"}
    made |= {"config/a.yaml": "lr: 7", "config/c.yaml": "0"}
    assert {name: (aside / name).read_text() for name in made} == made
    assert (aside / "latest").is_symlink() and (aside / "new").is_dir()

    write(folder, {"ckpt.txt": "1"})
    assert begin(host, "t0")["moved"] == 1
    assert {name: (folder / name).read_text() for name in made} == made
    assert (folder / "latest").resolve() == (folder / "runs/a").resolve()
    assert not aside.exists() and (host.home / "c.trials/t1/ckpt.txt").read_text() == "1"


def test_what_a_later_setup_makes_stays(host: NearHost) -> None:
    folder = host.home / "c"
    begin(host, "t0")
    write(folder, {"ckpt.txt": "0", "__pycache__/train.pyc": "code"})
    assert begin(host, "")["moved"] == 1
    write(folder, {"model/weights": "setup"})
    begin(host, "t0")
    assert (folder / "ckpt.txt").read_text() == "0"
    assert begin(host, "t1")["moved"] == 1
    assert not (folder / "ckpt.txt").exists()
    assert (folder / "model/weights").exists() and (folder / "__pycache__/train.pyc").exists()


def test_without_code_yet_nothing_happens(tmp_path: Path) -> None:
    (host,) = herd(tmp_path, 1)
    assert begin(host, "")["moved"] == 0


@pytest.mark.parametrize("name", ["..", "a/b", ".x", "a\n"])
def test_a_name_that_leads_elsewhere_is_refused(host: NearHost, name: str) -> None:
    with pytest.raises(HerdError, match="must consist of letters"):
        begin(host, name)


# ---- what the setup made -------------------------------------------------------------------------


def call(host: NearHost, verb: str, **arguments: Any) -> Mapping[str, Any]:
    asked = {"dest": "c", "slot": "lr-0", **arguments}
    return asyncio.run(host.call(RpcRequest(name=verb, arguments=asked)))


def spoil(folder: Path) -> None:
    """Write into what the setup made in every way that a script may."""
    write(folder, {"data/corpus": "WORDS", "venv/lib/pkg/a.py": "lr = 9"})
    (folder / "venv/lib/pkg/b.py").unlink()
    (folder / "venv/bin/python").chmod(0o600)
    shutil.rmtree(folder / "cache")
    (folder / "cache").symlink_to("data")
    (folder / "model").unlink()
    write(folder, {"model/step1": "state"})
    (folder / "latest").unlink()
    (folder / "latest").symlink_to("model")


def set_up(host: NearHost) -> Path:
    folder = host.home / "c"
    write(folder, {f"venv/lib/pkg/{name}.py": f"{name} = 1" for name in "ab"})
    write(folder, {"cache/x": "x", "model": "weights", "config/local.yaml": "lr: 3"})
    (folder / "latest").symlink_to("data")
    (folder / "venv/bin/python").chmod(0o755)
    return folder


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mode for path in folder.rglob("*")}


@pytest.mark.parametrize("kept", [True, False], ids=["prepared", "by the first trial"])
def test_no_trial_finds_what_another_wrote_into_what_the_setup_made(
    host: NearHost, kept: bool
) -> None:
    folder = set_up(host)
    inode, clean, rights = folder.stat().st_ino, tree(folder), modes(folder)
    if kept:
        assert call(host, "trial.keep") == {}
    begin(host, "t0")
    spoil(folder)
    first = tree(folder)
    assert begin(host, "t1")["moved"] > 0
    assert (tree(folder), modes(folder)) == (clean, rights)
    assert folder.stat().st_ino == inode, "the same folder, at the same path"
    spoil(folder)
    begin(host, "t2")
    assert (tree(folder), modes(folder)) == (clean, rights)
    begin(host, "t0")
    assert {name: first[name] for name in first if name != "venv/lib/pkg/b.py"}.items() <= tree(
        folder
    ).items()


def test_a_file_whose_time_was_set_back_is_found(host: NearHost) -> None:
    corpus = set_up(host) / "data/corpus"
    begin(host, "t0")
    before = corpus.stat()
    corpus.write_text("WORDS")
    os.utime(corpus, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert begin(host, "t1")["moved"] == 1
    assert corpus.read_text() == "words"


def test_a_trial_that_writes_nothing_leaves_every_file_untouched(host: NearHost) -> None:
    folder = set_up(host)
    begin(host, "t0")
    inodes = {path: path.lstat().st_ino for path in folder.rglob("*")}
    for number in range(1, 4):
        assert begin(host, f"t{number}")["moved"] == 0
    assert {path: path.lstat().st_ino for path in folder.rglob("*")} == inodes


def test_a_hard_link_to_a_cache_outside_is_not_written_through(host: NearHost) -> None:
    folder = set_up(host)
    cached = host.home / "uv-cache"
    cached.write_text("a = 1")
    (folder / "venv/lib/pkg/a.py").unlink()
    os.link(cached, folder / "venv/lib/pkg/a.py")
    begin(host, "t0")
    with (folder / "venv/lib/pkg/a.py").open("r+") as file:
        file.write("a = 2")
    assert cached.read_text() == "a = 1"
    begin(host, "t1")
    assert (folder / "venv/lib/pkg/a.py").read_text() == "a = 1"


def test_compiled_python_of_a_changed_file_does_not_stay(host: NearHost) -> None:
    folder = set_up(host)
    begin(host, "t0")
    write(folder, {"train.py": "TRAIN", "__pycache__/train.pyc": "of t0"})
    write(folder, {"venv/lib/pkg/__pycache__/a.pyc": "of a"})
    begin(host, "t1")
    assert not (folder / "__pycache__").exists()
    assert (folder / "venv/lib/pkg/__pycache__/a.pyc").exists()


def test_what_is_safe_is_removed_and_only_that(host: NearHost) -> None:
    folder = set_up(host)
    begin(host, "t0")
    write(folder, {"out/x": "0", "data/corpus": "mine"})
    call(host, "trial.begin", trial="t1", safe="t7")
    assert (host.home / "c.trials/t0/out/x").exists()
    write(folder, {"out/x": "1", "runs/a/log": "1"})
    assert call(host, "trial.begin", trial="t2", safe="t1")["moved"] == 0
    assert not (folder / "runs").exists()
    assert sorted(path.name for path in (host.home / "c.trials").iterdir()) == ["t0"]
    call(host, "trial.begin", trial="t0", safe="t2")
    call(host, "trial.begin", trial="t3", safe="t0")
    assert not (host.home / "c.trials").exists()


def test_what_comes_before_the_first_trial_belongs_to_all(host: NearHost) -> None:
    folder = set_up(host)
    call(host, "trial.keep")
    write(folder, {"data/more": "put there by hand"})
    begin(host, "t0")
    write(folder, {"data/more": "spoilt"})
    begin(host, "t1")
    assert (folder / "data/more").read_text() == "put there by hand"
    begin(host, "")
    write(folder, {"data/more": "by the next setup"})
    begin(host, "t2")
    (folder / "data/more").unlink()
    begin(host, "t3")
    assert (folder / "data/more").read_text() == "by the next setup"


def clone_by_reading(source: int, target: int) -> bool:
    """As on a file system that can clone."""
    os.sendfile(target, source, 0, 1 << 20)
    return True


def test_a_copy_that_does_not_fit_is_refused_with_what_to_do(
    host: NearHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = set_up(host)
    clean = tree(folder)
    monkeypatch.setattr(trial_base, "RESERVE", 1 << 60)
    why = str(call(host, "trial.keep")["refused"])
    assert re.search(r"GB in 7 files in .*/c\. .* outside of the folder", why)
    with pytest.raises(HerdError, match="GB in 7 files"):
        begin(host, "t0")
    assert tree(folder) == clean
    monkeypatch.setattr(trial_base, "clone_file", clone_by_reading)
    assert call(host, "trial.keep") == {}


def test_a_folder_of_an_agent_of_before_keeps_what_the_setup_made(host: NearHost) -> None:
    folder = set_up(host)
    begin(host, "t0")
    (record,) = host.home.glob(".tpuherd/trees/*/trial.json")
    shutil.rmtree(next(iter(host.home.glob(".tpuherd/trees/*.base"))))
    before = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    record.write_text(json.dumps({"trial": "t0", "before": before}))
    clean = tree(folder)
    write(folder, {"ckpt": "0"})
    assert begin(host, "t1")["moved"] == 1
    assert tree(folder) == clean
    write(folder, {"data/corpus": "spoilt"})
    begin(host, "t2")
    assert tree(folder) == clean
