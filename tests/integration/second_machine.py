"""A second machine: a real sshd on loopback whose logins have another home, and a route to it."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.world import until
from tpuherd.cli import wheel
from tpuherd.cli.via_layout import ROOT

SSHD = Path("/usr/sbin/sshd")
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
SetEnv HOME={home} PATH={path}
"""
CLIENT = """\
Host vm
    HostName 127.0.0.1
    Port {port}
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known
    StrictHostKeyChecking accept-new
    BatchMode yes
"""


@dataclass(frozen=True)
class Machine:
    """It is called vm."""

    home: Path
    ssh: str  #: for HERD_SSH

    def furnish(self) -> None:
        """As `herd context install` does, without asking PyPI for what is here already."""
        folder = self.home / ROOT / wheel.wheel_stamp()
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin/python"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        program.chmod(0o755)
        (folder / "ready").touch()
        (self.home / ROOT / "current").symlink_to(wheel.wheel_stamp())


@contextmanager
def second_machine() -> Iterator[Machine]:
    """One, gone at the end."""
    if not SSHD.exists() or shutil.which("ssh") is None:
        pytest.skip("needs OpenSSH's server and client")
    folder = Path(tempfile.mkdtemp(prefix="vm-"))
    home = folder / "home"
    home.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = {"port": port, "folder": folder, "home": home, "path": os.environ["PATH"]}
    (folder / "sshd_config").write_text(SERVER.format(**words))
    (folder / "ssh_config").write_text(CLIENT.format(**words))
    for name in ("host", "key"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
    ssh = f"ssh -F {folder}/ssh_config"
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            return subprocess.run([*ssh.split(), "vm", "true"], check=False).returncode == 0

        until(answers, "sshd")
        yield Machine(home, ssh)
        ending = f"for one in {ROOT}/*/herd; do $one keeper stop --now; $one engine stop; done"
        subprocess.run([*ssh.split(), "vm", f"cd; {ending}"], capture_output=True, check=False)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
