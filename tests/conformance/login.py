"""A user's key in a file and in an ssh-agent, and ssh as that user calls it."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.world import World, run


@dataclass(frozen=True)
class Login:
    """A user of this machine with a key where gcloud expects it."""

    world: World
    key: Path
    env: dict[str, str]  #: of every client this user starts

    @property
    def line(self) -> str:
        """What goes into the metadata `ssh-keys` so that this user may log in."""
        kind, text, *_ = self.key.with_suffix(".pub").read_text().split()
        return f"{self.env['USER']}:{kind} {text} {self.env['USER']}"

    def options(self) -> list[str]:
        """Options for every OpenSSH program."""
        files = {"UserKnownHostsFile": self.key.parent / "known", "IdentityFile": self.key}
        said = {"StrictHostKeyChecking": "no", "IdentitiesOnly": "yes", "LogLevel": "ERROR"}
        words = [f"{name}={value}" for name, value in (said | files).items()]
        words.append(f"Port={self.world.facts['ssh_port']}")
        return ["-F", "none", *(part for word in words for part in ("-o", word))]

    def ssh(self, ip: str, *more: str, user: str = "") -> list[str]:
        """The words that begin an ssh command to a host."""
        return ["ssh", *self.options(), *more, f"{user or self.env['USER']}@{ip}"]

    def addresses(self, zone: str, node: str) -> list[str]:
        """The external addresses of a node's workers, in order."""
        where = f"v2/projects/{self.world.facts['project']}/locations/{zone}/nodes/{node}"
        ends = self.world.ask("GET", where)["networkEndpoints"]
        return [end["accessConfig"]["externalIp"] for end in ends]


@contextmanager
def logged_in(world: World) -> Iterator[Login]:
    """Make the key and start the agent; end it afterwards."""
    key = world.home / ".ssh" / "google_compute_engine"
    key.parent.mkdir(mode=0o700, exist_ok=True)
    words: list[str | Path] = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", key]
    subprocess.run(words, check=True)
    env = dict(world.env)
    said = run(["ssh-agent", "-s"], env).stdout
    env |= dict(re.findall(r"(SSH_\w+)=([^;]+);", said))
    try:
        subprocess.run(["ssh-add", "-q", key], env=env, check=True)
        yield Login(world, key, env)
    finally:
        os.kill(int(env["SSH_AGENT_PID"]), signal.SIGTERM)
