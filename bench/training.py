"""What `tpuherd_host.train` costs a training, and what it gains in bad weather.

    .venv/bin/python bench/training.py [--parts step,loader,save,start,notice,storm] [--rounds 5]

step    microseconds that `Run` adds to a step
loader  samples per second from tars: ours, webdataset, Grain; in one process, rounds alternate
save    how long an asynchronous save of 100 MB blocks the training
start   examples/charlm in four processes with two chips each: from their start to the end of the
        first step, with an empty and with a full compilation cache
notice  the same: from SIGTERM in one of them to a complete checkpoint, and to the end of the last
storm   examples/charlm on a v5litepod-16 of a world with its engine: calm, and preempted three
        times, the second time without notice; the ratio of the goodput in `herd status`

Rates, and results from a busy machine, are meaningful as ratios only. Needs the environments train
and inside of tests/integration/clients/make_venv.sh.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import own_row, pair_row, write_figures

from tests.conformance.world import until
from tests.integration.engines import Owner, owner

Rows = list[dict[str, object]]
ROOT = Path(__file__).parents[1]
CLIENTS = ROOT / ".venv-clients"
FORMS = {"pieces": "inside", "orbax": "train"}  #: which checkpoints an environment makes
HOSTS, CHIPS = 4, 2
STORM_STEPS = 400
STROKES = ((100, True), (200, False), (300, True))  #: at which step, and whether with notice
GIVE_UP_S = 600.0


def python(name: str) -> Path:
    """Of an environment of the clients."""
    return CLIENTS / name / "bin" / "python"


def environment(home: str, **more: str) -> dict[str, str]:
    """What a process finds; nothing of this user's."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "PYTHONPATH": str(ROOT / "src"),
        "JAX_PLATFORMS": "cpu",
        **more,
    }


def inside(part: str, rounds: int) -> Any:
    """A part that is measured within one process."""
    words: list[str | Path] = [python("train"), ROOT / "bench/rigs/training.py", str(rounds), part]
    with tempfile.TemporaryDirectory() as home:
        env = environment(home, HERD_WORKERS="1")
        done = subprocess.run(words, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])[part]


def step(rounds: int) -> Rows:
    """Of a training that does nothing else."""
    found = inside("step", rounds)
    print(f"Run, a step that does nothing   {median(found):.1f} µs", flush=True)
    return [own_row("a step of `Run` that does nothing", "µs", found)]


def loader(rounds: int) -> Rows:
    """Ours first."""
    rates = inside("loader", rounds)
    ours = rates.pop("ours")
    for name, theirs in rates.items():
        rate, ratio = median(theirs), median(ours) / median(theirs)
        print(f"{name:<30}  {rate:,.0f} samples/s; ours is {ratio:.2f} × that", flush=True)
    return [
        {**pair_row("samples read from tars", "1/s", ours, peer, theirs), "more_is_better": True}
        for peer, theirs in rates.items()
    ]


def save(rounds: int) -> Rows:
    """By form."""
    found = inside("save", rounds)
    rows = []
    for place, what in enumerate(("blocks the training", "is complete after")):
        ours, theirs = found["pieces"][place], found["orbax"][place]
        figure = f"an asynchronous save of 100 MB {what}"
        rows.append(pair_row(figure, "ms", ours, "Orbax's format", theirs))
        print(f"{figure}: {median(ours):.0f} ms, in Orbax's format {median(theirs):.0f} ms")
    return rows


@dataclass(frozen=True)
class Pod:
    """Four processes that train, and what the first one tells of its steps."""

    processes: Sequence["subprocess.Popen[bytes]"]
    report_socket: socket.socket
    begun: float

    def past(self, step: int) -> float:
        """When the first one has reported this step or a later one."""
        end = time.monotonic() + GIVE_UP_S
        while time.monotonic() < end:
            try:
                told = json.loads(self.report_socket.recv(1 << 16))
            except TimeoutError:
                statuses = [process.poll() for process in self.processes]
                if any(statuses):
                    sys.exit(f"before step {step} processes ended with {statuses}")
                continue
            if told.get("step", 0) >= step:
                return time.monotonic()
        sys.exit(f"step {step} did not come in {GIVE_UP_S:.0f} s")

    def ended(self) -> list[int]:
        """Their statuses, when the last one has ended."""
        return [process.wait(120) for process in self.processes]


@contextmanager
def pod(folder: Path, form: str, steps: int) -> Iterator[Pod]:
    """examples/charlm, which saves twice at its begin, and then at a notice only."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    place = folder / "ear"
    place.unlink(missing_ok=True)
    words: list[str | Path] = [python(FORMS[form]), "train.py", "--steps", str(steps)]
    words += ["--checkpoints", folder / "saved", "--every", "100000"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as report_socket:
        report_socket.bind(str(place))
        report_socket.settimeout(1.0)
        env = environment(
            str(folder),
            JAX_NUM_CPU_DEVICES=str(CHIPS),
            HERD_COORDINATOR=f"127.0.0.1:{port}",
            HERD_WORKERS=str(HOSTS),
        )
        begun = time.monotonic()
        processes = [
            subprocess.Popen(
                words,
                cwd=ROOT / "examples" / "charlm",
                env=env | {"HERD_WORKER": str(host)} | ({} if host else {"HERD_STEPS": str(place)}),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for host in range(HOSTS)
        ]
        try:
            yield Pod(processes, report_socket, begun)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def start(rounds: int) -> Rows:
    """The first time in a home, and again with what was compiled then."""
    found = []
    with tempfile.TemporaryDirectory() as home:
        for _ in range(rounds + 1):
            with pod(Path(home), "pieces", 3) as running:
                found.append(running.past(1) - running.begun)
                running.ended()
            subprocess.run(["rm", "-rf", f"{home}/saved"], check=True)
    warm = f"{median(found[1:]):.1f} s ({min(found[1:]):.1f} to {max(found[1:]):.1f})"
    print(f"4 × 2, start → first step       {found[0]:.1f} s, compiled before {warm}", flush=True)
    figure = "four JAX processes of two chips, start to first step"
    return [own_row(figure, "s", found[:1]), own_row(f"{figure}, compiled before", "s", found[1:])]


def notice(rounds: int) -> Rows:
    """By form; the checkpoint has 1.3 MB."""
    times: dict[str, tuple[list[float], list[float]]] = {}
    for form in FORMS:
        durable, over = times.setdefault(form, ([], []))
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as home, pod(Path(home), form, 100_000) as running:
                running.past(30)
                saved = Path(home, "saved")
                old = set(saved.glob("step-*/whole.json"))
                told = time.monotonic()
                running.processes[-1].send_signal(signal.SIGTERM)
                while not set(saved.glob("step-*/whole.json")) - old:
                    time.sleep(0.002)
                durable.append(time.monotonic() - told)
                statuses = running.ended()
                over.append(time.monotonic() - told)
                assert statuses == [75] * HOSTS, statuses
        whole, end = median(durable), median(over)
        print(
            f"4 × 2, notice, {form:<15}  durable after {whole:.2f} s, all ended after {end:.2f} s"
        )
    figures = ("notice to a complete checkpoint of 1.3 MB", "notice to the end of all processes")
    return [
        pair_row(figure, "s", ours, "Orbax's format", theirs)
        for figure, ours, theirs in zip(figures, times["pieces"], times["orbax"], strict=True)
    ]


def storm(rounds: int) -> Rows:
    """In one world, one after the other."""
    offered = python("inside").parents[1]
    ratios, losses = [], []
    for _ in range(rounds):
        with owner("--time-scale", "60", "--offer", str(offered)) as user:
            user.bucket("charlm")
            calm, wild = trained(user, "calm", ()), trained(user, "storm", STROKES)
        ratio = wild["goodput"] / calm["goodput"]
        each = (wild["wanted_s"] - calm["wanted_s"]) / len(STROKES)
        print(f"charlm, {STORM_STEPS} steps, {len(STROKES)} preemptions", flush=True)
        print(f"  goodput {wild['goodput']:.2f}, calm {calm['goodput']:.2f}: {ratio:.2f} of it")
        seconds = f"{wild['wanted_s']:.0f} s, calm {calm['wanted_s']:.0f} s: {each:.0f} s each"
        print(f"  {seconds}; {wild['steps_lost']} steps lost", flush=True)
        ratios.append(ratio)
        losses.append(each)
    return [
        {**own_row("goodput of charlm with three preemptions to that in calm", "share", ratios),
         "more_is_better": True},
        own_row("the same, time per preemption", "s", losses),
    ]  # fmt: skip


def trained(user: Owner, name: str, strokes: Sequence[tuple[int, bool]]) -> Any:
    """What is known about a finished slot."""
    user.job(
        name, f"{python('inside')} train.py --steps {STORM_STEPS}", accelerator="v5litepod-16",
        workdir=str(ROOT / "examples/charlm"), checkpoint="gs://charlm",
        zones=["us-west4-a", "us-east5-b"],
    )  # fmt: skip

    for step, noticed in strokes:
        said = f"step {step:4}  loss"
        until(partial(heard, user, name, said), said, seconds=GIVE_UP_S)
        user.world.herd("preempt", f"{name}-0-*", *([] if noticed else ["--no-notice"]))
    done = user.herd("wait", name, seconds=GIVE_UP_S)
    assert done.returncode == 0, done.stderr
    return json.loads(user.herd("status", name, "--json").stdout)["slot_details"][0]


def heard(user: Owner, name: str, word: str) -> bool:
    """Whether a line of the job's log begins so. Nothing is started to look."""
    logs = [said for about, said in user.said().items() if about.startswith(f"{name}-0-")]
    return any(line.startswith(word) for said in logs for line in said)


PARTS: dict[str, Callable[[int], Rows]] = {
    "step": step, "loader": loader, "save": save, "start": start, "notice": notice, "storm": storm,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if not all(python(name).exists() for name in FORMS.values()):
        print("training: no .venv-clients/train and inside here: make_venv.sh train inside")
        return
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    rows: Rows = []
    for part in asked.parts.split(","):
        rows += PARTS[part](1 if part == "storm" else asked.rounds)
    if asked.json:
        write_figures(asked.json, "Training", rows)


if __name__ == "__main__":
    main()
