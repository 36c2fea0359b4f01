"""A TPU pod is made, used over SSH, taken away and cleaned up: one minute, on this machine."""

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import asyncssh

HERE = Path(__file__).parent
HERD = Path(sys.executable).parent / "herd"
ZONE = "us-west4-a"
POD = {
    "acceleratorType": "v5litepod-16",
    "runtimeVersion": "v2-alpha-tpuv5-lite",
    "networkConfig": {"enableExternalIps": True},
    "schedulingConfig": {"spot": True},
}
ENDED = "ssh ends with status"
Heard = queue.Queue[tuple[int, str]]  #: who says what


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A simulated Cloud TPU. What talks to it here would talk to Google's in the same words."""

    folder: Path
    url: str
    ssh_port: str
    client: tuple[str | Path, ...]  #: the beginning of an ssh command line
    key: Path

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One call of the Cloud TPU API."""
        where = f"{self.url}/v2/projects/demo/locations/{ZONE}/{path}"
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(where, content, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def ssh(self, address: str, script: str) -> "subprocess.Popen[str]":
        """Run one of our scripts on a host; its output comes line by line."""
        words = [*self.client, "-i", self.key, "-p", self.ssh_port, f"demo@{address}", "bash"]
        with (HERE / script).open() as text:
            return subprocess.Popen(words, stdin=text, stdout=PIPE, stderr=PIPE, text=True)


def ssh_client(folder: Path) -> tuple[str | Path, ...]:
    """OpenSSH, told where the world keeps host keys; a stand-in where there is none that works."""
    program = folder / "bin" / "ssh"
    if (
        program.exists()
        and not subprocess.run([program, "-G", "x"], capture_output=True).returncode
    ):
        return program, "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"
    return sys.executable, HERE / "ssh_client.py"


class Story:
    """Prints what happens and when."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.bold, self.plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")

    def chapter(self, title: str) -> None:
        print(f"\n{self.bold}{title}{self.plain}", flush=True)

    def line(self, text: str) -> None:
        print(f"  {time.monotonic() - self.began:5.1f} s  {text}", flush=True)

    def call(self, words: str, answer: str) -> None:
        self.line(f"{words:<24} → {answer}")

    def begin(self, title: str) -> None:
        """A chapter that counts its own seconds."""
        self.chapter(title)
        self.began = time.monotonic()


def sim(folder: Path, verb: str, *words: str) -> str:
    """`herd sim …` about this world."""
    command: list[str | Path] = [HERD, "sim", verb, *words, "--state-dir", folder]
    done = subprocess.run(command, stdout=PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def follow(world: World, story: Story, until: str) -> dict[str, Any]:
    """Ask for the pod until it is in that state, telling each state on the way."""
    told = None
    while told != until:
        pod = world.ask("GET", "nodes/pod")
        if pod["state"] != told:
            told = pod["state"]
            story.call("GET nodes/pod", told)
        time.sleep(0.1)
    return pod


def create(world: World, story: Story) -> list[str]:
    """Make the pod, and give the addresses of its hosts when it is READY."""
    story.begin("A spot v5litepod-16 is created: 4 hosts × 4 chips")
    body = {**POD, "metadata": {"ssh-keys": f"demo:{world.key.with_suffix('.pub').read_text()}"}}
    world.ask("POST", "nodes?nodeId=pod", body)
    story.call("POST nodes?nodeId=pod", "an operation; our SSH key is in the node's metadata")
    pod = follow(world, story, until="READY")
    return [end["accessConfig"]["externalIp"] for end in pod["networkEndpoints"]]


def look(world: World, story: Story, hosts: list[str]) -> None:
    """Run a command on every host at once."""
    story.begin("One command runs on all of them over SSH")
    for address, session in [(address, world.ssh(address, "look.sh")) for address in hosts]:
        said, trouble = session.communicate(timeout=60)
        if session.returncode:
            sys.exit(f"ssh to {address} failed: {trouble}")
        story.call(f"ssh {address}", said.strip())


def preempt(world: World, story: Story, hosts: list[str]) -> None:
    """Train on every host, take the pod away, and show what each sees of it."""
    story.begin("A training runs on each host, and the pod is preempted")
    heard: Heard = queue.Queue()
    for worker, address in enumerate(hosts):
        session = world.ssh(address, "train.sh")
        threading.Thread(target=listen, args=[worker, session, heard], daemon=True).start()
    ended = tell(heard, story)
    time.sleep(1)  # a little training
    story.begin("herd sim preempt pod: from now on it has 30 seconds")
    sim(world.folder, "preempt", "pod")
    while ended < len(hosts):
        ended += tell(heard, story)
    follow(world, story, until="PREEMPTED")


def listen(worker: int, session: "subprocess.Popen[str]", heard: Heard) -> None:
    """Pass on what a session says, and at last how it ended."""
    assert session.stdout is not None
    assert session.stderr is not None
    for line in session.stdout:
        heard.put((worker, line.strip()))
    trouble = session.stderr.read().strip().splitlines()[-1:]
    heard.put((worker, f"{ENDED} {session.wait()}: {''.join(trouble)}"))


def tell(heard: Heard, story: Story) -> int:
    """Print what is said next, equal lines of several hosts as one; how many sessions ended."""
    said: dict[str, list[str]] = {}
    wait_s = 60.0
    with suppress(queue.Empty):
        while True:
            worker, line = heard.get(timeout=wait_s)
            said.setdefault(line, []).append(str(worker))
            wait_s = 0.2
    if not said:
        sys.exit("the hosts have fallen silent")
    for line, workers in said.items():
        story.line(f"worker {','.join(sorted(workers)):<7} {line}")
    return sum(len(workers) for line, workers in said.items() if line.startswith(ENDED))


def afterwards(world: World, story: Story, hosts: list[str]) -> None:
    """What a client finds, and how it cleans up."""
    story.begin("What is left for a client")
    _, trouble = world.ssh(hosts[0], "look.sh").communicate(timeout=60)
    story.call(f"ssh {hosts[0]}", trouble.strip())
    try:
        world.ask("POST", "nodes?nodeId=pod", POD)
    except urllib.error.HTTPError as refused:
        said = json.load(refused)["error"]["message"]
        story.call("POST nodes?nodeId=pod", f"{refused.code} {said}")
    world.ask("DELETE", "nodes/pod")
    story.call("DELETE nodes/pod", "an operation: only now are name and quota free again")
    while world.ask("GET", "nodes"):
        time.sleep(0.1)
    story.call("GET nodes", "{}")


def main() -> None:
    """Tell the whole story in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="herd-demo-") as parent:
        story, folder, key = Story(), Path(parent) / "world", Path(parent) / "key"
        pair = asyncssh.generate_private_key("ssh-ed25519")
        pair.write_private_key(str(key))
        key.chmod(0o600)
        pair.write_public_key(f"{key}.pub")
        story.chapter("A Cloud TPU of our own, on this machine")
        sim(folder, "start", "--detach", "--time-scale", "30", "--seed", "7")
        facts = json.loads((folder / "world.json").read_text())
        story.line(f"serves {facts['url']}, its hosts: {facts['hosts']}")
        for sentence in facts["missing"]:
            story.line(f"missing: {sentence}")
        world = World(
            folder=folder,
            url=facts["url"],
            ssh_port=str(facts["ssh_port"]),
            client=ssh_client(folder),
            key=key,
        )
        try:
            hosts = create(world, story)
            look(world, story, hosts)
            preempt(world, story, hosts)
            afterwards(world, story, hosts)
        finally:
            sim(folder, "stop")
    story.chapter("Nothing is left. Yours: `.venv/bin/herd sim start`, and docs/tutorial.md.")


if __name__ == "__main__":
    main()
