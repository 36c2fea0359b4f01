"""A training is preempted halfway and still finishes: two minutes, on this machine."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import tell
from follow import followed

HERE = Path(__file__).parent
HERD = Path(sys.executable).parent / "herd"
ZONES = ("us-west4-a", "us-east5-b", "us-central1-a")
BARREN = "us-central1-a"  #: has no capacity
BUCKET = "tpuherd-demo"
STEPS, TAKEN_AT = 200, 70  #: the training's steps, and the one at which it is preempted
PLAIN_STEPS = 400  #: without JAX they are short: many must be left when we see that one
SCALE = 60  #: speeds up the cloud's waiting times, but not hosts, notices and the training
GIVE_UP_S = 600.0
ERRORS = 20  #: number of requests that fail


class World:
    """A simulated Cloud TPU in a temporary folder."""

    def __init__(self, parent: Path) -> None:
        self.folder = parent / "world"
        self.environ = {**os.environ, "HOME": str(parent), "HERD_WORLD": str(self.folder)}
        for name in [name for name in self.environ if name.startswith("XDG_")]:
            del self.environ[name]
        self.page: subprocess.Popen[str] | None = None

    def herd(self, *words: str | Path, check: bool = True) -> str:
        """Run `herd …` and return its output; a failure ends the demo."""
        words = (HERD, *words)
        done = subprocess.run(
            words, env=self.environ, stdin=DEVNULL, capture_output=True, text=True
        )
        if done.returncode and check:
            what = " ".join(map(str, words[1:]))
            sys.exit(f"herd {what} ended with status {done.returncode}:\n{done.stderr}")
        return done.stdout

    def start(self, offer: Path | None) -> dict[str, Any]:
        """Start the world and return its address."""
        more: list[str | Path] = ["--offer", offer] if offer else []
        seed = ("--seed", "7", "--time-scale", str(SCALE), "--state-dir", self.folder)
        self.herd("sim", "start", "--detach", *seed, *more)
        facts: dict[str, Any] = json.loads((self.folder / "world.json").read_text())
        return facts

    def disturb(self, *words: str) -> None:
        """`herd sim weather …`."""
        self.herd("sim", "weather", *words, "--state-dir", self.folder)

    def open_page(self) -> str:
        """Serve the web page of the world, and return its address; "" if that fails."""
        self.page = subprocess.Popen(
            (HERD, "ui", "--no-browser"), env=self.environ, stdin=DEVNULL, stdout=PIPE,
            stderr=DEVNULL, text=True,
        )  # fmt: skip
        assert self.page.stdout is not None
        return next((word for word in self.page.stdout.readline().split() if "://" in word), "")

    def stop(self) -> None:
        if self.page is not None:
            self.page.terminate()
            self.page.wait()
        for words in (("engine", "stop"), ("engine", "daemon", "stop")):
            self.herd(*words, check=False)
        self.herd("sim", "stop", "--state-dir", self.folder, check=False)


def job(folder: Path, python: Path | None) -> Path:
    """Write the job file: real training if JAX is installed, else a stand-in."""
    workdir = HERE.parent / "charlm" if python else HERE / "plain"
    lines = {
        "name": "charlm",
        "accelerator": "v5litepod-16",
        "zones": f"[{', '.join(ZONES)}]",
        "tier": "spot",
        "workdir": workdir,
        "checkpoint": f"gs://{BUCKET}/charlm",
        "run": f"{python or 'python3'} train.py --steps {STEPS if python else PLAIN_STEPS}",
    }
    file = folder / "job.yaml"
    file.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()))
    return file


def play(world: World, story: tell.Story, file: Path) -> None:
    """Submit the job, preempt its node, and print what happens."""
    story.chapter("herd run job.yaml")
    for line in file.read_text().splitlines():
        story.aside(
            line.replace(str(HERE.parent), "examples").replace(str(world.folder.parent), "")
        )
    story.begin()
    world.herd("run", file, "--detach", "--yes")
    world.disturb("http-error", "503", "share=0.1", f"times={ERRORS}")
    end = time.monotonic() + GIVE_UP_S
    zone, taken = "", False
    over: set[str | None] = set()
    for heard in followed([HERD], world.environ, "charlm"):
        story.hear(heard)
        if heard.get("kind") == "attempt.first_step":
            zone = zone or story.zone
        if not taken and zone and heard.get("step", 0) >= TAKEN_AT:
            taken = True
            story.bad(f"herd sim weather drought {zone}: preempt its spot TPUs")
            world.disturb("drought", zone)
        over |= {heard.get("ended"), heard.get("kind")}
        if "logs" in over and not over.isdisjoint(("slot.done", "slot.gave_up")):
            break
        if time.monotonic() > end:
            sys.exit("the training did not end in time: see `herd events` and `herd logs`")
    report(world, story)


def report(world: World, story: tell.Story) -> None:
    """Print what the preemption cost, and that nothing is left."""
    story.chapter("What the preemption cost")
    for line in story.report():
        story.aside(line)
    story.picture()
    story.chapter("The same as a page: herd ui")
    address = world.open_page()
    story.aside(address or "it could not be served here")
    if address and sys.stdin.isatty() and sys.stdout.isatty():
        input("  Look at it, then press Enter to end the demo. ")
    world.disturb("clear")
    world.herd("down", "--all", "--yes")
    left = tell.left(json.loads((world.folder / "world.json").read_text()))
    story.aside(f"herd down --all: the cloud lists {', '.join(left) or 'nothing'}")


def interpreter(offered: Path | None) -> Path | None:
    """Return the Python of an environment that has JAX."""
    if offered is None:
        return None
    python = offered.absolute() / "bin" / "python"
    with suppress(OSError):
        if not subprocess.run([python, "-c", "import jax"], capture_output=True).returncode:
            return python
    return None


def main() -> None:
    """Run the demo in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offer", type=Path, help="an environment with JAX, shown to the hosts")
    offer = parser.parse_args().offer
    python = interpreter(offer)
    with tempfile.TemporaryDirectory(prefix="herd-demo-", ignore_cleanup_errors=True) as parent:
        world, story = World(Path(parent)), tell.Story()
        story.chapter("A simulated Cloud TPU on this machine")
        facts = world.start(offer.absolute() if offer and python else None)
        try:
            for line in setting(facts, python):
                story.aside(line)
            world.disturb("drought", BARREN)
            tell.bucket(facts, BUCKET)
            play(world, story, job(Path(parent), python))
        finally:
            world.stop()
    story.chapter("Try it yourself: `.venv/bin/herd sim start` and docs/tutorial.md.")


def setting(facts: Mapping[str, Any], python: Path | None) -> Iterator[str]:
    """Describe the world and its weather."""
    yield f"{facts['url']}, hosts: {facts['hosts']}; the cloud's delays are {SCALE} × shorter"
    yield f"zones {', '.join(ZONES)}; {BARREN} has no capacity, one request in ten fails"
    yield from (f"missing: {sentence}" for sentence in facts["missing"])
    if python is None:
        yield "JAX cannot be installed here, so plain Python stands in for the training"


if __name__ == "__main__":
    main()
