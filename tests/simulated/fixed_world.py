"""A user with jobs in all phases in a world of this process, at one moment: commands as typed.

The world answers over loopback HTTP, hosts have no agents, and the lease of an engine is taken, so
that no command starts one. `FixedWorld.run` returns what a command prints, without what differs
between machines.
"""

import asyncio
import fcntl
import http.server
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

import tpuherd_sim
from tests.simulated.in_process_world import START
from tests.simulated.test_sample_store import value
from tests.unit.event_stories import StoryLog
from tpuherd._version import __version__
from tpuherd.accounting.goodput import GoodputState
from tpuherd.cli.main import run
from tpuherd.clock import WallClock
from tpuherd.engine.desired_slots import load_desired_state
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, Slot
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.settings import project_access
from tpuherd.settings.folders import logs_folder
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogHost, LogInfo, LogStore
from tpuherd.store.sample_store import SampleStore
from tpuherd.sweeps.map_items import items_digest
from tpuherd_host.agent.log_records import Record
from tpuherd_sim.handle import handle_request, new_world
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import Settings

NOW = START + 1200.0
ZONE = "us-central2-b"
PLACE = f"/v2/projects/demo/locations/{ZONE}"
DAY_S = 86400.0
#: What a test process has and a user of the fixed world has not.
VARIABLES = re.compile(r"XDG_|HERD_|GOOGLE_|CLOUDSDK_|WANDB_|SSH_|.*_proxy$|.*_PROXY$|COLUMNS$")
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb", "TZ": "UTC", "USER": "ann",
    "COLUMNS": "80", "NO_GCE_CHECK": "true",
}  # fmt: skip
UNAME = ("Linux", "laptop", "6.1", "#1", "x86_64")
DOCUMENT: Mapping[str, Any] = {
    "accelerator": "v4-32",
    "zones": ZONE,
    "run": "python3 train.py",
}


@dataclass(kw_only=True)
class FixedWorld:
    """Runs commands in its home."""

    home: Path
    url: str
    world: World
    clock: "StoppedClock"
    capture: Callable[[], tuple[str, str]]

    def run(self, *words: str) -> tuple[int, str, str]:
        """Return the status, the output and the messages of a command."""
        self.clock.slept_s = 0.0
        try:
            status = run(words)
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = self.capture()
        return status, self.normalise(out), self.normalise(err)

    def normalise(self, text: str) -> str:
        """Return the text without paths, ports, keys and versions of this machine."""
        for found, shown in (
            (str(self.home), "HOME"),
            (str(Path(tpuherd_sim.__file__).parent), "TPUHERD_SIM"),
            (self.url, "http://WORLD"),
            (__version__, "VERSION"),
        ):
            text = text.replace(found, shown)
        port = self.url.rpartition(":")[2]  # never digits within another number
        text = re.sub(rf"(?<!\d){port}(?!\d)", "PORT", text)
        text = re.sub(r"AAAAC3NzaC1lZDI1NTE5\S{48}", "KEY", text)
        return re.sub(r"\b3\.1[1-9]\.\d+\b", "3.PYTHON", text)

    def look(self) -> None:
        """Store what the planner says of each slot, as the engine does."""
        _, out, _ = self.run("engine", "plan", "--json")
        store = self.store()
        store.put_slot_messages(json.loads(out)["states"])
        store.close()

    def store(self) -> Database:
        """Open the user's store."""
        scope = project_access.resolve_scope({"HOME": str(self.home)}, world=self.home / "world")
        return Database(scope.store_folder, NOW)

    def kept(self) -> tuple[object, ...]:
        """Return what the user has stored: jobs, and whether there are contexts."""
        store = self.store()
        jobs = dict(store.stored_jobs())
        store.close()
        return jobs, (self.home / ".config/tpuherd/contexts.json").exists()


@contextmanager
def open_fixed_world(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[FixedWorld]:
    """Begin in the folder `work` of the home, with all jobs."""
    for name in [name for name in os.environ if VARIABLES.match(name)]:
        monkeypatch.delenv(name)
    for name, text in {**ENVIRONMENT, "HOME": str(home), "HERD_WORLD": f"{home}/world"}.items():
        monkeypatch.setenv(name, text)
    time.tzset()
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    monkeypatch.setattr("os.uname", lambda: os.uname_result(UNAME))
    clock = StoppedClock()
    for name in ("now", "sleep", "wait"):
        work = getattr(clock, name)
        monkeypatch.setattr(WallClock, name, lambda _, *given, work=work: work(*given))
    monkeypatch.chdir(write_home(home))
    world = make_world()
    with serve_world(world) as url, hold_world(home):
        write_world(home, url)
        fixed = FixedWorld(home=home, url=url, world=world, clock=clock,
                           capture=lambda: read_capture(capfd))  # fmt: skip
        fill_store(fixed)
        yield fixed


class StoppedClock:
    """Time passes only while a command sleeps, and then at once."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def now(self) -> float:
        return NOW + self.slept_s

    async def sleep(self, seconds: float) -> None:
        self.wait(seconds)
        await asyncio.sleep(0)

    def wait(self, seconds: float) -> None:
        self.slept_s += seconds


def read_capture(capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    said = capfd.readouterr()
    return said.out, said.err


# ---- the home ------------------------------------------------------------------------------------


def write_home(home: Path) -> Path:
    """Write what the user has, and return the folder with code and job files."""
    config = home / ".config" / "tpuherd"
    config.mkdir(parents=True)
    (config / "owner").write_text("7kq")
    work = home / "work"
    work.mkdir()
    (work / "train.py").write_text("print('step 1')\n")
    for name, lines in JOB_FILES.items():
        (work / name).write_text(lines)
    return work


JOB_FILES = {
    "job.yaml": "name: new\naccelerator: v4-8\ntier: spot\nrun: hostname\n",
    "idle.yaml": "name: new\naccelerator: v4-8\n",
    "sweep.yaml": (
        "name: lr\naccelerator: v4-8\ntier: spot\nrun: 'echo {lr}'\n"
        "sweep:\n  method: grid\n  parameters:\n    lr: [0.1, 0.2]\n"
    ),
    "items.txt": "a\nb\n",
    "receivers.yaml": "- kind: webhook\n  url: http://127.0.0.1:1/\n",
    "train.log": "step 1\nRuntimeError: Unable to initialize backend 'tpu'\n",
}


def write_world(home: Path, url: str) -> None:
    facts = {
        "format": 1, "version": __version__, "url": url, "port": int(url.rpartition(":")[2]),
        "ssh_port": 1, "tunnel_port": 2, "network": 1, "project": "demo",
        "project_number": 123456789012, "hosts": "none", "missing": [], "started": START,
        "pid": os.getpid(), "time_scale": 1.0,
    }  # fmt: skip
    (home / "world" / "world.json").write_text(json.dumps(facts))


# ---- the world -----------------------------------------------------------------------------------


def make_world() -> World:
    """Make a world with the nodes of three jobs, an orphan, and two buckets."""
    world = new_world(Settings(seed=1, created=START, time_scale=1.0))
    for name in ("gpt-0-g1-7kq", "dev-0-g1-7kq", "lost-0-g1-7kq", "old-0-g3-7kq"):
        node = {"acceleratorType": "v4-32", "runtimeVersion": "tpu-ubuntu2204-base",
                "networkConfig": {"enableExternalIps": True}}  # fmt: skip
        spec = [{"parent": f"projects/demo/locations/{ZONE}", "nodeId": name, "node": node}]
        body = {"tpu": {"nodeSpec": spec}, "spot": {}}
        ask(world, "POST", f"{PLACE}/queuedResources?queuedResourceId={name}", body, START)
    for project, name in (("demo", "ann-runs"), ("other", "theirs")):
        bucket = {"name": name, "location": "US-CENTRAL2"}
        ask(world, "POST", f"/storage/v1/b?project={project}", bucket, START)
    return world


def ask(world: World, method: str, target: str, body: Any, now: float) -> None:
    path, _, query = target.partition("?")
    request = Request(
        method=method, path=path, query=query, headers={}, body=json.dumps(body).encode()
    )
    response = handle_request(world, request, now)
    assert response.status == 200, response.body


@contextmanager
def serve_world(world: World) -> Iterator[str]:
    """Serve the world at NOW; yields its address."""
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            path, _, query = self.path.partition("?")
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(size)
            request = Request(
                method=self.command, path=path, query=query, headers=headers, body=body
            )
            with lock:
                response = handle_request(world, request, NOW)
            self.send_response_only(response.status)
            for header in response.headers:
                self.send_header(*header)
            self.send_header("date", self.date_time_string(int(NOW)))
            self.send_header("content-length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, format: str, *args: object) -> None:
            return

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def hold_world(home: Path) -> Iterator[None]:
    """Hold the lock of a world that runs in this process."""
    (home / "world").mkdir()
    with (home / "world" / "lock").open("w") as lock:
        lock.write(str(os.getpid()))
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---- the jobs ------------------------------------------------------------------------------------


def running_story() -> StoryLog:
    story = StoryLog(START)
    story.get(10, 200, 30)
    story.launch(10, step=0)
    story.wait(300, GoodputState.PRODUCTIVE)
    story.tell("attempt.saved", attempt=story.attempt, step=100)
    return story


def idle_story() -> StoryLog:
    story = StoryLog(START)
    story.get(10, 200, 30)
    return story


def waiting_story() -> StoryLog:
    story = StoryLog(START)
    story.ask()
    message = "There is no more capacity in the zone"
    story.tell("bid.refused", bid=story.bid, refusal="stockout", message=message)
    story.wait(60, GoodputState.QUEUE_FIRST)
    return story


def failed_story() -> StoryLog:
    story = running_story()
    lines = ["RESOURCE_EXHAUSTED: Attempting to allocate 12.50G."]
    story.end(Verdict.FAILURE, host="gpt-0-g1-7kq/w2", exit=1, finding="oom-hbm-alloc",
              last_at=story.now, lines=lines)  # fmt: skip
    story.tell("slot.gave_up", why="it failed 4 times")
    return story


def preempted_story() -> StoryLog:
    story = running_story()
    story.end(Verdict.PREEMPTED, last_at=story.now, step=140, exit=137)
    story.lose()
    return story


def done_story() -> StoryLog:
    story = running_story()
    story.end(Verdict.SUCCESS, exit=0, last_at=story.now)
    story.tell("slot.done", why="it succeeded")
    return story


def trials_story() -> StoryLog:
    """A sweep whose first trial is complete and whose second runs."""
    story = running_story()
    for number, loss in enumerate((0.5, 0.25)):
        story.tell("trial.created", trial=number, params={"lr": 0.1 * (number + 1)},
                   run_id=f"gpt-t{number}", metric="loss", direction="minimize")  # fmt: skip
        story.tell("trial.assigned", trial=number, resumed=False, usage={})
        story.tell("trial.reported", trial=number, step=10, value=loss)
        if number == 0:
            story.tell("trial.ended", trial=number, outcome="complete", why="its command is done")
    return story


def items_story() -> StoryLog:
    """A map whose first item is complete."""
    story = StoryLog(START)
    story.tell("map.started", slot="", items=items_digest(("a", "b")), count=2)
    story.tell("map.items", slot="", items=items_digest(("a", "b")), first=0, texts=["a", "b"])
    story.get(10, 200, 30)
    story.launch(10, step=0)
    params = {"item": 0}
    story.tell("trial.created", trial=0, params=params, run_id="gpt-t0", metric="", direction="")
    story.tell("trial.assigned", trial=0, resumed=False, usage={})
    story.tell("trial.ended", trial=0, outcome="complete", why="its command is done")
    return story


GRID = {"method": "grid", "parameters": {"lr": [0.1, 0.2]}, "metric": "loss", "goal": "minimize"}
ITEMS = {"method": "items", "items": items_digest(("a", "b")), "trials": 2}
#: By name: what has happened, what is wanted, and fields of its own.
JOBS: dict[str, tuple[Callable[[], StoryLog], Goal, dict[str, Any]]] = {
    "gpt": (running_story, Goal.RUN, {}),
    "dev": (idle_story, Goal.IDLE, {}),
    "bert": (waiting_story, Goal.RUN, {}),
    "sad": (failed_story, Goal.RUN, {}),
    "lost": (preempted_story, Goal.RUN, {}),
    "fine": (done_story, Goal.RUN, {}),
    "off": (done_story, Goal.GONE, {}),
    "lrs": (trials_story, Goal.RUN, {"sweep": GRID}),
    "evals": (items_story, Goal.RUN, {"sweep": ITEMS}),
}


def fill_store(fixed: FixedWorld) -> None:
    """Put the jobs and their logs where commands read them, and take the lease."""
    store = fixed.store()
    for job, (_, goal, fields) in JOBS.items():
        document = {"name": job, **DOCUMENT, **fields}
        store.put_job(
            StoredJob(
                job=job,
                goal=goal,
                document=document,
                made_at=START,
                changed_at=START,
                who="ann@desk",
            )
        )
    place = project_access.resolve_access(os.environ)
    slots = load_desired_state(store.stored_jobs(), place, owner="7kq").desired_slots.slots
    for job, (tell, *_) in JOBS.items():
        slot = slots[f"{job}-0"]
        store.append_events([rename_event(event, slot) for event in tell().events])
    started = HistoryEvent(at=NOW - 600, kind="engine.started", facts={"pid": 4242})
    store.append_events([started])
    holder = LeaseHolder(pid=4242, host="desk", who="ann@desk")
    assert store.take_lease(holder, NOW - 600, DAY_S) is not None
    store.close()
    write_samples(place.store_folder)
    write_logs(fixed)


def rename_event(event: HistoryEvent, slot: Slot) -> HistoryEvent:
    """Return the same event of another slot, with what it is offered and runs."""
    text = json.dumps(asdict(event)).replace("gpt", slot.job)
    for found, shown in (
        ('"zone": "z"', f'"zone": "{ZONE}"'),
        ('"price": 3600.0', '"price": 9.0'),
        ('"runtime": "r"', '"runtime": "tpu-ubuntu2204-base"'),
        ('"node_digest": "d"', f'"node_digest": "{slot.node_digest}"'),
        ('"code_digest": "c"', f'"code_digest": "{slot.code_digest}"'),
    ):
        text = text.replace(found, shown)
    return HistoryEvent(**json.loads(text))


def write_samples(store_folder: Path) -> None:
    samples = SampleStore(store_folder)
    values = [value("loss", NOW - ago, 2.0 + ago / 100) for ago in (300.0, 200.0, 100.0)]
    samples.put_samples([], values)
    samples.close()


def write_logs(fixed: FixedWorld) -> None:
    shelf = LogStore(logs_folder(fixed.home / ".local/state/tpuherd", world=fixed.home / "world",
                                 project=""))  # fmt: skip
    lines = {"gpt": "step 100", "sad": "RESOURCE_EXHAUSTED: Attempting to allocate 12.50G."}
    for job, line in lines.items():
        place = LogHost(zone=ZONE, node=f"{job}-0-g1-7kq", worker=0, incarnation="1")
        info = LogInfo(id=f"{job}-0-a1-7kq", kind="attempt", title="python3 train.py", target=job,
                       started=START + 240, places=(place,), number=1)  # fmt: skip
        shelf.write_info(info)
        writer = shelf.open_writer(info.id, place)
        writer.put(0, Record(START + 300, 1, f"{line}\n".encode()))
        writer.close()
