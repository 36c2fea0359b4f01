"""SFTP served by us where the machine has no sftp-server: the files are the host's own."""

import os
from pathlib import Path

import pytest

from tests.integration.running_hosts import WALLED, need
from tests.integration.test_host_ssh import run
from tests.integration.test_host_ssh_sessions import SshRig, at_home
from tpuherd_sim.hosts import sftp_server

pytestmark = [pytest.mark.real, pytest.mark.needs("ssh", "ssh-keygen", "scp", "sftp")]


@pytest.fixture(params=[*WALLED, "processes"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kind of hosts on a machine without an sftp-server."""
    monkeypatch.setattr(sftp_server, "PROGRAMS", ())
    need(str(request.param))
    return str(request.param)


async def batch(here: SshRig, *lines: str) -> tuple[int, str, str]:
    """What sftp says to these commands."""
    words = here.ssh()
    target, options = words[-1], words[1:-1]
    options[options.index("-p")] = "-P"
    done = await run(["sftp", *options, "-q", "-b", "-", target], "\n".join(lines).encode())
    return done.code, done.out.decode(), done.err


def test_files_belong_to_the_user_of_the_host(mode: str, tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(os.urandom(3 << 20))

    async def work(here: SshRig) -> None:
        code, _, error = await batch(
            here,
            f"put {blob} sent",
            "mkdir deep",
            "rename sent deep/moved",
            "chmod 600 deep/moved",
            "ln -s deep/moved link",
            f"get link {tmp_path}/back",
            f"put {blob} gone",
            "rm gone",
            "df",
        )
        assert code == 0, error
        assert (tmp_path / "back").read_bytes() == blob.read_bytes()
        seen = await here.said("stat -c %a deep/moved; readlink link; ls; id -u; stat -c %u link")
        mode_, link, *names, me, owner = seen.split()
        assert (mode_, link, names) == ("600", "deep/moved", ["deep", "link"])
        assert owner == me
        assert "deep" not in await here.said("ls", worker=1), "another host has them, too"
        code, shown, error = await batch(here, "pwd", "ls -l deep")
        assert code == 0, error
        assert str(3 << 20) in shown
        assert await here.said("pwd") in shown

    at_home(mode, tmp_path, work)


def test_permissions_of_the_user_apply(mode: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the machine")

    async def work(here: SshRig) -> None:
        refused = [f"get {secret} {tmp_path}/stolen", "ls nowhere"]
        if mode != "namespaces-user":  # with its single user id everybody is root of the host
            refused.append("put id /etc/tpuherd-test")
        for line in refused:
            code, _, error = await batch(here, f"lcd {tmp_path}", line)
            assert code == 1, line
            assert "denied" in error or "No such file" in error or "not found" in error, error
        assert not (tmp_path / "stolen").exists()
        assert not Path("/etc/tpuherd-test").exists()

    at_home(mode, tmp_path, work)


#: Of this host: one that is a mere process sees the whole machine's.
SFTP_ENDS = """
while for pid in $(pgrep -x sftp-server); do readlink /proc/$pid/cwd; done | grep -Fx "$HOME"
do sleep 0.05; done >/dev/null
"""


def test_sftp_ends_with_its_client(mode: str, tmp_path: Path) -> None:
    async def work(here: SshRig) -> None:
        code, _, error = await batch(here, "pwd")
        assert code == 0, error
        assert await here.said(f"timeout 10 bash -c '{SFTP_ENDS}' && echo ended") == "ended"

    at_home(mode, tmp_path, work)
