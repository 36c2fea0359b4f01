"""What the page costs at 1,000 nodes: its first data, a change's way to it, and processor time.

    .venv/bin/python bench/seeing_page.py [--nodes 1000] [--jobs 20] [--seconds 20] [--rate 2]

A store is written as an engine writes it: nodes of 4 hosts with 4 chips, each with attempts and
losses behind it. `herd ui` runs as users start it. Then another process writes events at a rate
that a busy fleet of this size has, and samples of all hosts every ten seconds, while ten pages
listen. Printed: seconds until the answer that the first picture needs, seconds from the write of an
event until a page has it, and the share of one core that `herd ui` used. The engine is another
process that takes no part in this: its share is zero.
"""

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter, sleep, time
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.rigs.figures import own_row, write_figures

from tpuherd.model.samples import ChipSample, HostSample
from tpuherd.model.slots_and_plan import Goal, HistoryEvent, Offer
from tpuherd.model.stored_job import StoredJob
from tpuherd.ports import LeaseHolder
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.store.sample_store import SampleStore

HERD = Path(sys.executable).parent / "herd"
HOSTS, CHIPS, PAGES = 4, 4, 10
DAY_S = 86400.0


def slot_events(job: str, slot: str, now: float, losses: int) -> Iterator[HistoryEvent]:
    """The story of a slot: attempts of hours, each lost but the last, with saves between."""
    at = now - DAY_S
    step = 0
    for number in range(1, losses + 2):
        bid, attempt = f"{slot}-g{number}-abc", f"{slot}-a{number}-abc"
        offer = asdict(
            Offer(zone="us-central2-b", type="v4-32", runtime="r", tier="spot", price=5.0, hosts=4)
        )
        told: list[tuple[str, dict[str, Any]]] = [
            ("bid.requested", {"bid": bid, "generation": number, "offer": offer, "nodes": 1,
                               "node_digest": "d"}),
            ("bid.accepted", {"bid": bid}),
            ("bid.granted", {"bid": bid}),
            ("bid.ready", {"bid": bid}),
            ("slot.prepared", {"bid": bid, "code_digest": "c", "hosts": []}),
            ("attempt.launched", {"attempt": attempt, "number": number, "bid": bid,
                                  "code_digest": "c"}),
            ("attempt.started", {"attempt": attempt}),
            ("attempt.first_step", {"attempt": attempt, "step": step, "resumed": step}),
        ]  # fmt: skip
        for _ in range(5):
            step += 1000
            told.append(("attempt.saved", {"attempt": attempt, "step": step}))
        if number <= losses:
            told += [
                ("attempt.ended", {"attempt": attempt, "verdict": "preempted", "step": step}),
                ("bid.lost", {"bid": bid, "cause": "preempted"}),
                ("bid.withdrawn", {"bid": bid}),
                ("bid.deleted", {"bid": bid}),
            ]
        for kind, facts in told:
            at += DAY_S / (losses + 1) / 20
            yield HistoryEvent(at=at, kind=kind, job=job, slot=slot, facts={**facts, "why": kind})


def fill_store(store: Database, nodes: int, jobs: int, losses: int) -> list[str]:
    """Write all jobs; return the slots."""
    now, slots = time(), []
    for number in range(jobs):
        job, copies = f"job{number:02d}", nodes // jobs
        stored = StoredJob(job=job, goal=Goal.RUN, document={"name": job, "copies": copies},
                           made_at=now - DAY_S, changed_at=now - DAY_S)  # fmt: skip
        event = HistoryEvent(at=now - DAY_S, kind="job.submitted", job=job, slot="", facts={})
        store.put_job(stored, [event])
        for at in range(copies):
            slots.append(f"{job}-{at}")
            store.append_events(list(slot_events(job, slots[-1], now, losses)))
    store.put_slot_messages(dict.fromkeys(slots, "attempt 4 has been running for 5 h"))
    return slots


def put_samples(samples: SampleStore, slots: list[str], losses: int) -> None:
    chips = tuple(
        ChipSample(hbm_used=9 << 30, hbm_total=32 << 30, duty_percent=random.random() * 100)
        for _ in range(CHIPS)
    )
    samples.put_samples(
        [
            HostSample(host=f"{slot}-g{losses + 1}-abc/w{worker}", job=slot.rpartition("-")[0],
                       slot=slot, at=time(), cpu_percent=random.random() * 100, chips=chips)
            for slot in slots
            for worker in range(HOSTS)
        ],
        [],
    )  # fmt: skip


class ListeningPage(threading.Thread):
    """Reads an event stream, and notes when it heard of a marked event."""

    def __init__(self, port: int, token: str, seq: int) -> None:
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        headers = {"Authorization": f"Bearer {token}"}
        self.connection.request("GET", f"/api/stream?after={seq}", headers=headers)
        self.answer = self.connection.getresponse()
        self.heard: dict[str, float] = {}
        self.bytes = 0
        self.resets = 0

    def run(self) -> None:
        while line := self.answer.readline():
            now = perf_counter()
            self.bytes += len(line)
            self.resets += line.startswith(b"event: reset")
            if b"mark-" in line:
                for piece in line.split(b"mark-")[1:]:
                    self.heard.setdefault(piece[:6].decode(), now)


@contextmanager
def page_process(environ: dict[str, str]) -> Iterator[tuple[int, int, str, float]]:
    """`herd ui` as a process: pid, port, token, seconds until it printed its address."""
    begun = perf_counter()
    with subprocess.Popen(
        [HERD, "ui", "--no-browser", "--port", "4399"], env=environ, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode()
        took = perf_counter() - begun
        try:
            yield process.pid, 4399, address.partition("token=")[2].split()[0], took
        finally:
            process.terminate()


def used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


def fetch(port: int, token: str, path: str) -> tuple[float, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    begun = perf_counter()
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    body = connection.getresponse().read()
    return perf_counter() - begun, body


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--losses", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=2.0, help="events a second")
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        environ = {"HOME": home, "PATH": os.environ["PATH"], "HERD_WORLD": f"{home}/world"}
        Path(home, "world").mkdir()
        facts = {"project": "demo", "url": "http://127.0.0.1:9", "ssh_port": 9, "pid": 1}
        Path(home, "world", "world.json").write_text(json.dumps(facts))
        scope = project_access.resolve_scope(environ)
        store = Database(scope.store_folder, time())
        epoch = hold_lease(store)
        slots = fill_store(store, said.nodes, said.jobs, said.losses)
        samples = SampleStore(scope.store_folder)
        put_samples(samples, slots, said.losses)
        with page_process(environ) as (pid, port, token, started):
            rows = measure(said, (store, samples, slots), (pid, port, token))
            print(f"herd ui printed its address after {started:.2f} s")
        store.release_lease(epoch)
    if said.json:
        rows.append(own_row("start of `herd ui` until it prints its address", "s", [started]))
        write_figures(said.json, "The page", [{**row, "at": said.nodes} for row in rows])


def hold_lease(store: Database) -> int:
    """Keep an engine from being started."""
    now = time()
    holder = LeaseHolder(
        pid=os.getpid(), host="elsewhere", who="bench", epoch=0, taken_at=now, until=now
    )
    epoch = store.take_lease(holder, now, 3600.0)
    assert epoch is not None
    return epoch


def measure(
    said: argparse.Namespace,
    there: tuple[Database, SampleStore, list[str]],
    page: tuple[int, int, str],
) -> list[dict[str, object]]:
    store, samples, slots = there
    pid, port, token = page
    first, body = fetch(port, token, "/api/overview")
    again = min(fetch(port, token, "/api/overview")[0] for _ in range(5))
    job = min(fetch(port, token, f"/api/jobs/{slots[0].rpartition('-')[0]}")[0] for _ in range(3))
    seq = json.loads(body)["seq"]
    pages = [ListeningPage(port, token, seq) for _ in range(PAGES)]
    for one in pages:
        one.start()
    sleep(1.0)
    idle, begun = used_s(pid), perf_counter()
    sleep(5.0)
    idle_share = (used_s(pid) - idle) / (perf_counter() - begun)
    used, begun = used_s(pid), perf_counter()
    written: dict[str, float] = {}
    sampled_at = begun
    for number in range(int(said.seconds * said.rate)):
        slot, mark = random.choice(slots), f"{number:06d}"
        facts = {"attempt": f"{slot}-a{said.losses + 1}-abc", "step": number, "why": f"mark-{mark}"}
        event = HistoryEvent(at=time(), kind="attempt.saved", job=slot.rpartition("-")[0],
                             slot=slot, facts=facts)  # fmt: skip
        store.append_events([event])
        written[mark] = perf_counter()
        if perf_counter() - sampled_at > 10:
            sampled_at = perf_counter()
            put_samples(samples, slots, said.losses)
        sleep(1 / said.rate)
    sleep(0.5)
    share = (used_s(pid) - used) / (perf_counter() - begun)
    late = sorted(
        one.heard[mark] - at for one in pages for mark, at in written.items() if mark in one.heard
    )
    lost = PAGES * len(written) - len(late)
    print(f"{len(slots)} nodes, {len(body) / 1e6:.2f} MB of overview, {PAGES} pages")
    print(f"overview: first {first:.3f} s, later {again:.3f} s; a job of 50 slots {job:.3f} s")
    print(
        f"an event reaches a page after {median(late):.3f} s (p99 {late[int(len(late) * 0.99)]:.3f}"
        f" s), {lost} lost, {sum(one.resets for one in pages)} resets"
    )
    print(f"herd ui: {share:.1%} of a core with events, {idle_share:.1%} without;"
          f" {memory_mb(pid):.0f} MB")  # fmt: skip
    return [
        own_row("the page's first data, first and again", "s", [first, again]),
        own_row("an event's way to ten open pages", "s", late),
        own_row("`herd ui` with events", "% of a core", [100 * share]),
        own_row("`herd ui` without events", "% of a core", [100 * idle_share]),
        own_row("memory of `herd ui`", "MB", [memory_mb(pid)]),
    ]


if __name__ == "__main__":
    main()
