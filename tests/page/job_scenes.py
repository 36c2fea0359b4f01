"""What the server would say of one made-up job: preempted once, failed once, with logs."""

from typing import Any

from tests.page.fixture_server import FixtureServer
from tests.page.fleets import NOW, Json, build_job, build_node, build_overview, build_slot

START = NOW - 7200
#: Per slot: seconds and state, one after the other.
STORY = (
    (300, "queue_first"),
    (120, "provision"),
    (60, "host_setup"),
    (30, "starting"),
    (3000, "productive"),
    (200, "wasted"),
    (10, "detect"),
    (600, "capacity_wait"),
    (120, "provision"),
    (60, "host_setup"),
    (30, "starting"),
    (2670, "productive"),
)
#: The seconds that the loss cost a slot, of those that it was meant to work.
LOST_S = 200 + 10 + 600 + 120 + 60 + 30
MEANING = "what a second was spent on"


def build_spans() -> list[list[Any]]:
    spans, at = [], START
    for seconds, state in STORY:
        spans.append([at, at + seconds, state])
        at += seconds
    return spans


def build_attempt(number: int, verdict: str | None, **more: Any) -> Json:
    return {
        "number": number,
        "attempt": f"gpt-0-a{number}-7kq",
        "bid": "gpt-0-g1-7kq",
        "zone": "us-central2-b",
        "type": "v4-8",
        "launched_at": START + 480 * number,
        "duration_s": 3200.0,
        "verdict": verdict,
        "why": "",
        "resumed": 0,
        "startup": {"import_s": 6.1, "compile_s": 20.0},
        "step": 900,
        "first_failing": "",
        "exit": None,
        "lines": [],
        "finding": None,
        **more,
    }


def build_attempts() -> list[Json]:
    finding = {"id": "hbm", "cause": "The program needs more HBM.", "fix": "Use a smaller batch."}
    failed = {
        "first_failing": "w0",
        "exit": 1,
        "lines": ["Traceback", "\x1b[31mRESOURCE_EXHAUSTED\x1b[0m"],
        "finding": finding,
    }
    return [
        build_attempt(1, "failure", **failed),
        build_attempt(2, "preempted", why="the node was preempted"),
        build_attempt(3, None),
    ]


def build_incident(slot: str) -> Json:
    parts = {"detect": 10.0, "queue": 600.0, "provision": 120.0, "setup": 60.0, "start": 30.0}
    return {
        "slot": slot,
        "at": START + 3710,
        "finished": True,
        "verdict": "preempted",
        "why": "the node was preempted",
        "attempt": 2,
        "from_zone": "us-central2-b",
        "to_zone": "us-east1-d",
        "seconds": 820.0,
        "parts": parts,
        "startup": {"import_s": 6.1},
        "steps_lost": 80,
    }


def build_detail(number: int, job: str) -> Json:
    return {
        **build_slot(number, job=job),
        "price_known": True,
        "steps_lost": 80,
        "wanted_s": 7200.0,
        "seconds": {},
        "bids": [],
        "attempts": build_attempts(),
        "recoveries": [],
    }


def build_job_page(name: str = "gpt", *, slots: int = 2) -> Json:
    job = build_job(name, slots=slots)
    names = [one["slot"] for one in job["slot_rows"]]
    states = sorted({state for _, state in STORY})
    return {
        **job,
        "who": "ada@laptop",
        "document": {"name": name, "run": "python3 train.py", "env": {"LR": "0.1"}},
        "engine": True,
        "problems": [],
        "slot_details": [build_detail(number, name) for number in range(slots)],
        "timeline": {"start": START, "end": NOW, "slots": {one: build_spans() for one in names}},
        "states": [
            {"state": one, "title": one.replace("_", " "), "meaning": MEANING} for one in states
        ],
        "incidents": [build_incident(one) for one in names],
    }


def build_line(number: int, worker: int, text: str, *, stream: str = "stdout") -> Json:
    return {
        "id": f"{number}.{worker}",
        "at": NOW - 60 + number,
        "slot": "gpt-0",
        "worker": worker,
        "stream": stream,
        "text": text,
    }


def build_lines() -> list[Json]:
    """Ten steps that all four hosts print alike, and one line of one host."""
    lines = [build_line(step, worker, f"step {step}") for step in range(10) for worker in range(4)]
    return [*lines, build_line(11, 2, "only here\x1b[0m", stream="stderr")]


def build_event(number: int, line: str) -> Json:
    kind = line.split()[0]
    slot = {"job": "gpt", "slot": "gpt-0"}
    return {"seq": number, "at": NOW - 100 + number, "kind": kind, "line": line, **slot}


def serve_job(server: FixtureServer, name: str = "gpt") -> None:
    base = f"/api/jobs/{name}"
    points = [[NOW - 3600 + 60 * at, 2.0, 2.1, 2.2] for at in range(60)]
    series = {"slot": f"{name}-0", "host": "", "chip": None, "name": "loss", "points": points}
    server.content |= {
        base: build_job_page(name),
        f"{base}/series": {"series": [series]},
        f"{base}/logs": {"lines": build_lines(), "more": False},
        "/api/events": {"events": [build_event(3, "bid.lost gpt-0-g1-7kq preempted")]},
    }


def build_wide_overview(*, jobs: int = 10, slots: int = 100) -> Json:
    """1,000 nodes of 4 hosts of 4 chips."""
    names = [f"train-{number}" for number in range(jobs)]
    return build_overview(
        jobs=[build_job(name, slots=slots) for name in names],
        nodes=[build_node(at, job=name, hosts=4) for name in names for at in range(slots)],
    )
