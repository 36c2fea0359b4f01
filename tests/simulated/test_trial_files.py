"""What trials make in one folder: each finds its own files again, and none of another's."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.sync_hosts import NearHost, ShipRig, herd, tree, write
from tpuherd.errors import HerdError
from tpuherd.ports import RpcRequest

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
