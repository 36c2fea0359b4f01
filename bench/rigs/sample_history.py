"""What the series of hosts and chips cost: bytes, reads, and the engine's share of a core."""

import math
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from tpuherd.clock import WallClock
from tpuherd.engine.host_samples import SampleCollector, parse_sample
from tpuherd.model.observed import HostRun, HostStatus, RunState
from tpuherd.model.samples import SeriesName
from tpuherd.store.sample_store import SampleStore

START = 1_790_000_000.0
DAY = 86_400.0
GIB = 1 << 30
CHIPS = 4  #: of a host
NAMES = ("hbm_used", "duty", "hbm_total")


def sample_event(chance: random.Random, seconds: float) -> dict[str, Any]:
    """What an agent sends: a training step's load, with noise."""
    duty = 0.0 if seconds % 1800 < 60 else chance.gauss(93.0, 2.0)  # it saves each half hour
    return {
        "event": "sample", "time": START,
        "cpu": round(min(100.0, max(0.0, chance.gauss(22, 4))), 1),
        "ram": [int(chance.gauss(60, 0.4) * GIB), 400 * GIB],
        "disk": [int((70 - seconds / DAY / 10) * GIB), 100 * GIB],
        "net": [chance.randrange(20_000, 4_000_000), chance.randrange(20_000, 900_000)],
        "chips": [
            [int(24 * GIB + chance.randrange(3) * (GIB >> 4)), 33_550_229_504,
             round(min(100.0, max(0.0, duty + chance.gauss(0, 0.5))), 1)]
            for _ in range(CHIPS)
        ],
    }  # fmt: skip


def fill_days(store: SampleStore, hosts: int, days: float) -> None:
    """Write days of samples and reports: every 10 s on the last day, and before that once a minute.

    What is kept of the earlier days is the same for both: values of about ten minutes.
    """
    chance = random.Random(1)
    early = [60.0 * row for row in range(int((days - 1) * 1440))]
    for row, seconds in enumerate([*early, *((days - 1) * DAY + 10.0 * n for n in range(8640))]):
        at = START + seconds
        samples = [
            parse_sample(sample_event(chance, seconds), f"gpt-0-g1-me/w{host}", "gpt-0", at)
            for host in range(hosts)
        ]
        loss = 2.0 + 8.0 * math.exp(-seconds / DAY) + chance.gauss(0, 0.02)
        values = [
            (SeriesName(job="gpt", slot="gpt-0", name="loss"), at, loss),
            (SeriesName(job="gpt", slot="gpt-0", name="step"), at, float(row * 7)),
        ]
        store.put_samples(samples, values)


def measure_history(chips: int = 64, days: float = 30.0) -> dict[str, float]:
    """Keep a month of one pod: all of it by ten minutes, the last day in full."""
    hosts = chips // CHIPS
    with tempfile.TemporaryDirectory() as folder:
        store = SampleStore(Path(folder))
        fill_days(store, hosts, days)
        end = START + days * DAY
        store.close()
        pages = store.file.stat().st_size
        reader = SampleStore(Path(folder))
        times = []
        for _ in range(3):
            begun = time.process_time()
            found = reader.read_series("gpt", NAMES, since=START, until=end)
            times.append(time.process_time() - begun)
        begun = time.process_time()
        fine = reader.read_series("gpt", NAMES, since=end - 3600, until=end)
        hour_s = time.process_time() - begun
        reader.close()
        assert len(found) == len(fine) == chips * len(NAMES)
        assert all(500 < len(one.points) <= 600 for one in found)
    return {"bytes": pages, "per_chip": pages / chips, "month_s": min(times), "hour_s": hour_s}


def measure_engine(nodes: int = 1000, hosts: int = 1, rounds: int = 90) -> dict[str, float]:
    """Take what so many nodes send, and return the shares of a core: parsing, and writing."""
    chance = random.Random(2)
    events = [sample_event(chance, 100.0) for _ in range(50)]
    clock = WallClock()
    taken: list[Any] = []
    statuses = [
        (f"job{node}-0", HostStatus(node=f"job{node}-0-g1-me", worker=worker, incarnation="1",
                                    reached=True, heard_at=0.0))
        for node in range(nodes) for worker in range(hosts)
    ]  # fmt: skip
    parse_s = write_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        store = SampleStore(Path(folder))
        for row in range(rounds):
            at = START + 10.0 * row
            collector = SampleCollector(store, clock, lambda *_, **__: None)  # type: ignore[arg-type]
            begun = time.process_time()
            for place, (slot, status) in enumerate(statuses):
                collector.take_sample(status, slot, events[place % 50])
                if status.worker == 0:
                    for _ in range(2):  # a step event and a heartbeat
                        run = HostRun(
                            attempt="a1", word=RunState.RUNNING, step=row, metrics={"loss": 2.0}
                        )
                        collector.take_report(status, slot, run)
            parse_s += time.process_time() - begun
            samples, values = collector._hosts.values(), collector._values.values()
            taken = [
                type(one)(**{**{name: getattr(one, name) for name in one.__slots__}, "at": at})
                for one in samples
            ]
            stamped = [(name, at, value) for name, _, value in values]
            begun = time.process_time()
            store.put_samples(taken, stamped)
            write_s += time.process_time() - begun
        store.close()
    seconds = rounds * 10.0
    return {"hosts": len(taken), "parse": parse_s / seconds, "write": write_s / seconds}


def report_history() -> tuple[dict[str, float], dict[int, float]]:
    """Print all of it; return a month's figures, and the share of a core by hosts of a node."""
    month = measure_history()
    print(
        f"30 days of 64 chips: {month['bytes'] / 1e6:.1f} MB, {month['per_chip'] / 1e3:.0f} kB a"
        f" chip; {len(NAMES)} names of all chips over 30 days in {month['month_s']:.2f} s of"
        f" processor time, over the last hour in {month['hour_s']:.2f} s"
    )
    shares = {}
    for hosts in (1, 4):
        load = measure_engine(1000, hosts)
        print(
            f"1,000 nodes of {hosts} hosts: {100 * load['parse']:.1f} % of a core to take samples"
            f" and reports, {100 * load['write']:.1f} % to keep them"
        )
        shares[hosts] = load["parse"] + load["write"]
    return month, shares
