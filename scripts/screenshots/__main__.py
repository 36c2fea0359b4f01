"""Take the pictures of the page that the docs show: a world, jobs, preemptions, a sweep, a browser.

`make screenshots` runs it: about five minutes, with Debian's chromium. It writes docs/images/*.png.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
HERD = Path(sys.executable).parent / "herd"
IMAGES = ROOT / "docs" / "images"
SCALE = "30"
ZONE = "us-central2-b"
WAIT_S = 240.0  #: until the jobs have something to show
BYTES_MAX = 300_000  #: of a picture
BUCKET = "pictures"
#: A stand-in for training: a loss that falls, a checkpoint each 20 steps, a resume after a loss.
TRAIN = """\
import math, os, random, time
from tpuherd_host import train
from tpuherd_host.report import report
from tpuherd_host.train.storage import place

while os.environ.get("HERD_WORKER", "0") != "0":
    time.sleep(1)
where, run = place(os.environ["HERD_CHECKPOINT"]), train.Run()
try:
    run.start = int(where.read("step"))
except FileNotFoundError:
    pass
for step in run.steps(4000):
    time.sleep(0.5)
    report(loss=round(0.4 + 2.2 * math.exp(-step / 90) + random.random() * 0.08, 4))
    if run.stopping or (step + 1) % 20 == 0:
        where.write("step", [str(step + 1).encode()])
        run.saved(step + 1)
"""
#: The pictures: file, size, colours, address behind the #, text to wait for.
PICTURES = (
    ("page-fleet.png", (1280, 800), "light", "/", "gpt"),
    ("page-job.png", (1280, 1330), "light", "/jobs/gpt", "Loss"),
    ("page-sweep.png", (1280, 1100), "light", "/sweeps/curve", "best"),
    ("page-world.png", (1280, 1000), "light", "/world", "What happened"),
    ("page-phone.png", (390, 844), "dark", "/jobs/gpt", "Loss"),
)
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()


class Home:
    """A user with an empty home and a world."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.world = folder, folder / "world"
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8",
                        "HERD_WORLD": str(self.world), "LOGNAME": "me"}  # fmt: skip

    def herd(self, *words: str, check: bool = True) -> str:
        done = subprocess.run([HERD, *words], env=self.environ, cwd=self.folder, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True)  # fmt: skip
        if done.returncode and check:
            sys.exit(f"herd {' '.join(words)} ended with status {done.returncode}:\n{done.stderr}")
        return done.stdout

    @contextmanager
    def open_world(self) -> Iterator[None]:
        state = ("--state-dir", str(self.world))
        self.herd("sim", "start", "--detach", "--seed", "7", "--time-scale", SCALE, *state)
        try:
            yield
        finally:
            for words in (
                ("engine", "stop"),
                ("engine", "daemon", "stop"),
                ("sim", "stop", *state),
            ):
                self.herd(*words, check=False)

    @contextmanager
    def serve_page(self) -> Iterator[str]:
        words = [HERD, "ui", "--no-browser"]
        with subprocess.Popen(
            words, env=self.environ, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            yield found[0]
            process.send_signal(signal.SIGINT)

    def create_bucket(self) -> None:
        facts = json.loads((self.world / "world.json").read_text())
        url = f"{facts['url']}/storage/v1/b?project={facts['project']}"
        body = json.dumps({"name": BUCKET, "location": "US"}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30):
            pass

    def submit(self, name: str, **fields: object) -> None:
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps({"name": name, "tier": "spot", "zones": "any", **fields}))
        kind = "sweep" if "sweep" in fields else "run"
        self.herd(kind, str(file), "--detach", "--yes")


def start_jobs(home: Home) -> None:
    code = home.folder / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    run = {"workdir": str(code), "run": "python3 train.py"}
    home.submit("gpt", accelerator="v4-16", copies=3, checkpoint=f"gs://{BUCKET}/gpt", **run)
    home.submit("vit", accelerator="v5litepod-16", copies=1, checkpoint=f"gs://{BUCKET}/vit", **run)
    shutil.copytree(ROOT / "examples" / "sweep", home.folder / "sweep")
    sweep = {
        "method": "random", "trials": 12, "metric": "loss",
        "parameters": {"lr": {"min": 1e-3, "max": 1, "log": True},
                       "width": {"min": 2, "max": 16, "int": True}, "momentum": [0, 0.9]},
    }  # fmt: skip
    home.submit("curve", accelerator="v5litepod-4", copies=2, workdir=str(home.folder / "sweep"),
                run="python3 train.py --lr {lr} --width {width} --momentum {momentum}",
                sweep=sweep)  # fmt: skip


def read_steps(home: Home) -> list[int]:
    page = json.loads(home.herd("status", "gpt", "--json"))
    return [slot["step"] or 0 for slot in page["slot_details"]]


def wait_for_steps(home: Home, least: int) -> None:
    end = time.monotonic() + WAIT_S
    while min(read_steps(home), default=0) < least and time.monotonic() < end:
        time.sleep(2)


def take_pictures(address: str, wanted: set[str]) -> None:
    home, _, token = address.partition("?")
    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for file, (wide, high), colours, path, text in PICTURES:
            if wanted and file not in wanted:
                continue
            context = browser.new_context(viewport={"width": wide, "height": high})
            page = context.new_page()
            page.emulate_media(color_scheme="dark" if colours == "dark" else "light")
            page.goto(f"{home}?{token}")
            page.goto(f"{home}#{path}")
            page.locator("main").get_by_text(text).first.wait_for()
            page.wait_for_timeout(2500)
            page.screenshot(path=str(IMAGES / file))
            size = (IMAGES / file).stat().st_size
            print(f"{file}: {size / 1000:.0f} kB")
            assert size <= BYTES_MAX, f"{file} is too large for the repository"
            context.close()
        browser.close()


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        with home.open_world():
            home.create_bucket()
            start_jobs(home)
            wait_for_steps(home, 150)
            home.herd("sim", "preempt", "gpt-1-*")
            wait_for_steps(home, 300)
            home.herd("sim", "preempt", "gpt-2-*", "--no-notice")
            time.sleep(15)
            with home.serve_page() as address:
                take_pictures(address, set(sys.argv[1:]))


if __name__ == "__main__":
    main()
