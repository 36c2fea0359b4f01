"""Runs programs as root, by sudo without a password, and writes root's files."""

import os
import shutil
import subprocess
from typing import Mapping, NamedTuple, Optional

from tpuherd_host.agent.state_machine.transition import CallRefused

SECONDS = 30.0
INSTALL_S = 300  #: also for another installation to end: new VMs upgrade themselves at first
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


class Finished(NamedTuple):
    """A program that has ended."""

    status: int
    output: str  #: of both streams

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:200] if lines else f"it ended with status {self.status}"


class RootCommands:
    """Programs of this host, run as root with the login's environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = f"{environment.get('PATH', os.defpath)}:{SYSTEM_PATH}"
        self.environment = {**environment, "PATH": path, "LC_ALL": "C"}

    def run(self, *words: str, seconds: float = SECONDS, text: Optional[str] = None) -> Finished:
        """Run a program to its end, with `text` as its input."""
        before = [] if os.geteuid() == 0 else ["sudo", "-n"]
        limited = ["timeout", "-k", "5", f"{seconds:g}", *words]
        try:
            done = subprocess.run(
                [*before, *limited],
                input=(text or "").encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self.environment,
                timeout=seconds + 10,
            )
        except OSError as error:
            raise CallRefused(
                "broken", f"{error.filename} can't be run: {error.strerror}"
            ) from None
        except subprocess.TimeoutExpired:
            return Finished(124, "")
        output = done.stdout.decode("utf-8", "replace")
        if before and "password is required" in output:
            raise CallRefused(
                "broken", "sudo needs a password on this host, and only root may mount"
            )
        return Finished(done.returncode, output)

    def require(self, *words: str, seconds: float = SECONDS, text: Optional[str] = None) -> None:
        """Run a program that must succeed."""
        done = self.run(*words, seconds=seconds, text=text)
        if done.status:
            raise CallRefused("broken", f"{' '.join(words[:2])}: {done.last_line}")

    def write_file(self, path: str, text: str) -> None:
        """Replace a file of root's at once, with rights for all to read it."""
        fresh = f"{path}.herd-new"
        self.require("tee", fresh, text=text)
        self.require("chmod", "644", fresh)
        self.require("mv", fresh, path)

    def install(self, program: str, package: str) -> None:
        """Install the package that has the program, unless it is here."""
        if shutil.which(program, path=self.environment["PATH"]):
            return
        patience = f"DPkg::Lock::Timeout={INSTALL_S}"
        apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", patience)
        words = (*apt, "install", "-y", "--no-install-recommends", package)
        done = self.run(*words, seconds=INSTALL_S)
        if done.status:  # the lists of a new image are old
            self.run(*apt, "update", seconds=INSTALL_S)
            done = self.run(*words, seconds=INSTALL_S)
        if done.status or not shutil.which(program, path=self.environment["PATH"]):
            said = done.last_line if done.status else f"it has no {program}"
            raise CallRefused("broken", f"{package} can't be installed: {said}")
