"""A user with jobs in all phases in a world of this process, at one moment: commands as typed.

The world answers over loopback HTTP, hosts have no agents, and the lease of an engine is taken, so
that no command starts one. `FixedWorld.run` returns what a command prints, without what differs
between machines.
"""

import asyncio
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

from tests.simulated.in_process_world import START
from tests.unit.event_stories import StoryLog
from tpuherd._version import __version__
from tpuherd.accounting.goodput import GoodputState
from tpuherd.cli.main import run
from tpuherd.clock import WallClock
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.settings import project_access
from tpuherd.settings.folders import logs_folder
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogHost, LogInfo, LogStore
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
    "tier": "spot",
    "zones": [ZONE],
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
        """Return the text without paths, ports, versions and names of this machine."""
        for found, shown in (
            (str(self.home), "HOME"),
            (self.url, "http://WORLD"),
            (self.url.rpartition(":")[2], "PORT"),
            (__version__, "VERSION"),
        ):
            text = text.replace(found, shown)
        return re.sub(r"\b3\.1[1-9]\.\d+\b", "3.PYTHON", text)

    def store(self) -> Database:
        """Open the user's store."""
        scope = project_access.resolve_scope({"HOME": str(self.home)}, world=self.home / "world")
        return Database(scope.store_folder, NOW)


@contextmanager
def open_fixed_world(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[FixedWorld]:
    """Begin in the folder `work` of the home, with all jobs."""
    for name in [name for name in os.environ if VARIABLES.match(name)]:
        monkeypatch.delenv(name)
    for name, value in {**ENVIRONMENT, "HOME": str(home), "HERD_WORLD": f"{home}/world"}.items():
        monkeypatch.setenv(name, value)
    time.tzset()
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    monkeypatch.setattr("os.uname", lambda: os.uname_result(UNAME))
    clock = StoppedClock()
    for name in ("now", "sleep", "wait"):
        work = getattr(clock, name)
        monkeypatch.setattr(WallClock, name, lambda _, *given, work=work: work(*given))
    monkeypatch.chdir(write_home(home))
    world = make_world()
    with serve_world(world) as url:
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
    "sweep.yaml": (
        "name: lr\naccelerator: v4-8\ntier: spot\nrun: 'echo {lr}'\n"
        "sweep:\n  method: grid\n  parameters:\n    lr: [0.1, 0.2]\n"
    ),
    "items.txt": "a\nb\n",
    "train.log": "step 1\nRuntimeError: Unable to initialize backend 'tpu'\n",
}


def write_world(home: Path, url: str) -> None:
    facts = {
        "format": 1, "version": __version__, "url": url, "port": int(url.rpartition(":")[2]),
        "ssh_port": 1, "tunnel_port": 2, "network": 1, "project": "demo",
        "project_number": 123456789012, "hosts": "none", "missing": [], "started": START,
        "pid": os.getpid(), "time_scale": 1.0,
    }  # fmt: skip
    (home / "world").mkdir()
    (home / "world" / "world.json").write_text(json.dumps(facts))


# ---- the world -----------------------------------------------------------------------------------


def make_world() -> World:
    """Make a world with the nodes of the jobs that have some, and one of nobody."""
    world = new_world(Settings(seed=1, created=START, time_scale=1.0))
    for name in ("gpt-0-g1-7kq", "dev-0-g1-7kq", "lost-0-g1-7kq"):
        node = {"acceleratorType": "v4-32", "runtimeVersion": "tpu-ubuntu2204-base",
                "networkConfig": {"enableExternalIps": True}}  # fmt: skip
        spec = [{"parent": f"projects/demo/locations/{ZONE}", "nodeId": name, "node": node}]
        body = {"tpu": {"nodeSpec": spec}, "spot": {}}
        ask(world, "POST", f"{PLACE}/queuedResources?queuedResourceId={name}", body, START)
    ask(world, "POST", "/storage/v1/b?project=demo",
        {"name": "ann-runs", "location": "US-CENTRAL2"}, START)  # fmt: skip
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
            for name, value in response.headers:
                self.send_header(name, value)
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
    items = ("a", "b")
    story = trials_story()
    story.tell("map.started", items=items_digest(items), count=2)
    story.tell("map.items", items=items_digest(items), first=0, texts=list(items))
    return story


GRID = {"method": "grid", "parameters": {"lr": [0.1, 0.2]}, "metric": "loss", "goal": "minimize"}
ITEMS = {"method": "items", "items": items_digest(("a", "b")), "trials": 2}
#: By name: what has happened, what is wanted, what its slot says, and fields of its own.
JOBS: dict[str, tuple[Callable[[], StoryLog], Goal, str, dict[str, Any]]] = {
    "gpt": (running_story, Goal.RUN, "attempt 1 has run for 5 min", {}),
    "dev": (idle_story, Goal.IDLE, "is ready", {}),
    "bert": (waiting_story, Goal.RUN, "waits for capacity: us-central2-b refused 1 min ago", {}),
    "sad": (failed_story, Goal.RUN, "gave up: it failed 4 times", {}),
    "lost": (preempted_story, Goal.RUN, "waits for a new node", {}),
    "fine": (done_story, Goal.RUN, "is done", {}),
    "off": (done_story, Goal.GONE, "is stopped", {}),
    "lrs": (trials_story, Goal.RUN, "trial 1 runs", {"sweep": GRID}),
    "evals": (items_story, Goal.RUN, "item 1 runs", {"sweep": ITEMS}),
}


def fill_store(fixed: FixedWorld) -> None:
    """Put the jobs and their logs where commands read them, and take the lease."""
    store = fixed.store()
    for job, (tell, goal, _, fields) in JOBS.items():
        document = {"name": job, **DOCUMENT, **fields}
        store.append_events([rename_event(event, job) for event in tell().events])
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
    store.put_slot_messages({f"{job}-0": row[2] for job, row in JOBS.items()})
    started = HistoryEvent(at=NOW - 600, kind="engine.started", facts={"pid": 4242})
    store.append_events([started])
    holder = LeaseHolder(pid=4242, host="desk", who="ann@desk")
    assert store.take_lease(holder, NOW - 600, DAY_S) is not None
    store.close()
    write_logs(fixed)


def rename_event(event: HistoryEvent, job: str) -> HistoryEvent:
    """Return the same event of another job, in a zone that exists."""
    text = json.dumps(asdict(event)).replace("gpt", job)
    text = text.replace('"zone": "z"', f'"zone": "{ZONE}"').replace('"price": 3600.0', '"price": 9')
    text = text.replace('"runtime": "r"', '"runtime": "tpu-ubuntu2204-base"')
    return HistoryEvent(**json.loads(text))


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
