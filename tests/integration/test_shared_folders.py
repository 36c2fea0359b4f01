"""A folder can be shared with hosts: they read it, and their writes to it are discarded."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.integration.running_hosts import host_rig, need, run, view
from tpuherd_sim.hosts.shared_folders import closed_folders, shared_folders

pytestmark = pytest.mark.real
VENV = Path(sys.prefix)


def test_files_of_a_virtual_environment_are_found(tmp_path: Path) -> None:
    base, source, venv = tmp_path / "python", tmp_path / "source", tmp_path / "venv"
    for folder in (base / "bin", source, venv / "lib/python3.11/site-packages"):
        folder.mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\nversion = 3.11\n")
    (venv / "lib/python3.11/site-packages/x.pth").write_text(f"{source}\nimport sys\n/no/such\n")
    assert shared_folders(venv) == sorted(map(str, (base, source, venv)))
    (tmp_path / "link").symlink_to(venv)
    assert shared_folders(tmp_path / "link") == sorted(
        map(str, (base, source, venv, tmp_path / "link"))
    )


@pytest.mark.skipif(os.getuid() != 0, reason="without root, hosts are processes of this user")
def test_offers_that_the_hosts_user_can_not_read_are_named_and_hosts_run(tmp_path: Path) -> None:
    need("processes")
    closed = tmp_path / "mine"
    (closed / "venv").mkdir(parents=True)
    closed.chmod(0o700)

    async def story() -> None:
        async with host_rig("processes", offers=(closed / "venv",)) as here:
            (host,) = await here.apply(view())
            await host.ensure_account("alice")
            assert (await run(host, "ls -A $HOME", user="alice")).text == ".bashrc\n.profile"
            (sentence,) = here.pool.missing
            (folder,) = closed_folders([str(closed)])  # pytest's own folders may be private too
            assert f"`chmod o+x {folder}`" in sentence

    asyncio.run(story())


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="runs in no virtual environment")
def test_the_virtual_environment_of_the_tests_works_inside(mode: str) -> None:
    if mode == "namespaces-user" and not all(readable(Path(path)) for path in shared_folders(VENV)):
        pytest.skip("the interpreter lives where only root can go")

    async def story() -> None:
        async with host_rig(mode, offers=(VENV,)) as here:
            (host,) = await here.apply(view())
            await host.ensure_account("alice")
            script = f"{VENV}/bin/python -c 'import click, sys; print(sys.prefix)'"
            done = await run(host, script, "alice")
            assert (done.code, done.text) == (0, str(VENV))
            assert (
                await run(host, f"echo x > {VENV}/of-a-host && cat {VENV}/of-a-host")
            ).text == "x"

    asyncio.run(story())
    assert not (VENV / "of-a-host").exists()


def opened(folder: Path) -> None:
    """Everybody may come in."""
    for path in (folder, *folder.parents):
        mode = path.stat().st_mode
        if not mode & 0o001:
            path.chmod(mode | 0o055)


def test_neighbors_of_shared_folders_stay_outside(mode: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "project/data").mkdir(parents=True)
    (home / "more").mkdir()
    (home / "secret").write_text("s3cret")
    (home / "project/data/one").write_text("1")
    opened(tmp_path)

    async def story() -> None:
        async with host_rig(mode, offers=(home / "project", home / "more")) as here:
            one, other = await here.apply(view(0), view(1))
            assert (await run(one, f"ls {home}")).text == "more\nproject"
            await run(one, f"echo 2 > {home}/project/data/one; rm -rf {home}/project/data")
            assert (await run(other, f"cat {home}/project/data/one")).text == "1"

    asyncio.run(story())
    assert (home / "project/data/one").read_text() == "1"


def readable(path: Path) -> bool:
    """Whether everybody can go there."""
    return all(each.stat().st_mode & 0o1 for each in (path, *path.parents))


def test_a_folder_shared_below_tmp_survives_a_reboot(mode: str, tmp_path: Path) -> None:
    place = tmp_path / "offered"
    (place / "data").mkdir(parents=True)
    (place / "data/one").write_text("1")
    opened(tmp_path)
    litter = "/tmp/litter/deep"

    async def story() -> None:
        async with host_rig(mode, offers=(place,)) as here:
            (host,) = await here.apply(view())
            made = f"mkdir -p {litter} && ln -s /nowhere {litter}/link && touch {litter}/x /tmp/x"
            assert (await run(host, f"{made} && cat {place}/data/one")).text == "1"
            await run(host, "reboot")
            await here.reports_log.wait_for_report("a-0", "rebooted", 0)
            again = await here.change("a-0", boot=1)
            assert again is not None
            assert (await run(again, f"cat {place}/data/one")).text == "1"
            assert (await run(again, "test -e /tmp/litter -o -e /tmp/x")).code == 1

    asyncio.run(story())
