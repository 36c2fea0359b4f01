"""What the server would say of made-up fleets: small, empty, huge, and with hostile names."""

from typing import Any

from tests.page.fixture_server import FixtureServer

Json = dict[str, Any]
NOW = 1_795_440_000.0
ZONES = ("us-central2-b", "us-east1-d", "europe-west4-a")
#: Names that would run, break out of an attribute, or turn the text, if anyone let them.
HOSTILE = (
    "<img src=x onerror=window.hurt=1>",
    "<script>window.hurt=1</script>",
    'x" onmouseover="window.hurt=1',
    "javascript:window.hurt=1",
    "\u202egnp.exe",
    "\x1b[31mred\x1b[0m",
    "{{7*7}}${7*7}`",
)


def build_host(worker: int, chips: int) -> Json:
    return {
        "worker": worker,
        "at": NOW - 4,
        "cpu": 31.0 + worker,
        "ram_used": 9e9,
        "ram_total": 4e11,
        "disk_free": 7e10,
        "disk_total": 1e11,
        "net_in": 1.2e6,
        "net_out": 3.4e6,
        "hbm_used": [2.1e10] * chips,
        "hbm_total": [3.2e10] * chips,
        "duty": [88.0] * chips,
        "why": "",
    }


def build_node(number: int, *, job: str = "gpt", hosts: int = 1, chips: int = 4) -> Json:
    return {
        "node": f"{job}-{number}-g1-7kq",
        "job": job,
        "slot": f"{job}-{number}",
        "zone": ZONES[number % 3],
        "type": "v4-8",
        "tier": "spot",
        "stage": "ready",
        "since": NOW - 3600,
        "per_hour": 3.22,
        "chips_per_host": chips,
        "hosts": [build_host(worker, chips) for worker in range(hosts)],
    }


def build_slot(number: int, *, job: str = "gpt") -> Json:
    return {
        "slot": f"{job}-{number}",
        "phase": "running",
        "state": "productive",
        "why": "",
        "zone": ZONES[number % 3],
        "type": "v4-8",
        "tier": "spot",
        "attempt": 2,
        "step": 1200,
        "total": 5000,
        "saved": 1100,
        "goodput": 0.91,
        "goodput_why": "",
        "cost": 12.5,
        "per_hour": 3.22,
        "node": f"{job}-{number}-g1-7kq",
    }


def build_job(name: str = "gpt", *, slots: int = 2, kind: str = "job") -> Json:
    return {
        "job": name,
        "kind": kind,
        "goal": "run",
        "phase": "running",
        "phases": {"running": slots},
        "slots": slots,
        "slices": 1,
        "ready": slots,
        "idle": 0,
        "type": ["v4-8"],
        "zones": list(ZONES[:2]),
        "attempt": 2,
        "age_s": 7200.0,
        "cost": 25.0,
        "per_hour": 6.44,
        "price_known": True,
        "goodput": 0.91,
        "goodput_why": "",
        "submitted_at": NOW - 7200,
        "slot_rows": [build_slot(number, job=name) for number in range(slots)],
    }


def build_events(job: str = "gpt") -> Json:
    return {
        "events": [
            {
                "seq": number,
                "at": NOW - 60 * number,
                "kind": "bid.granted",
                "job": job,
                "slot": f"{job}-0",
                "line": f"{job}-0-g{number}-7kq: granted in {ZONES[0]}",
            }
            for number in range(1, 6)
        ]
    }


def build_overview(jobs: list[Json] | None = None, nodes: list[Json] | None = None) -> Json:
    return {
        "now": NOW,
        "seq": 7,
        "version": "0",
        "context": "demo",
        "project": "demo",
        "world": True,
        "may_change": True,
        "notices": [],
        "problems": [],
        "engine": {"running": True, "since": NOW - 7200, "host": "here", "pid": 7, "version": "0"},
        "cost": {"total": 25.0, "today": 12.0, "per_hour": 6.44, "price_known": True},
        "jobs": jobs if jobs is not None else [build_job()],
        "nodes": nodes if nodes is not None else [build_node(0), build_node(1)],
    }


def build_trial(number: int, *, phase: str = "complete", why: str = "") -> Json:
    rate = 10.0 ** (-5 + number % 7 * 0.5)
    value = (
        None
        if phase in {"failed", "waiting"}
        else 0.3 + abs(number % 7 - 4) * 0.11 + number % 5 * 0.01
    )
    return {
        "trial": number,
        "phase": phase,
        "value": value,
        "step": 100 * (number % 9),
        "params": {
            "lr": rate,
            "batch": (64, 128, 256)[number % 3],
            "optimizer": ("adam", "lion")[number % 2],
        },
        "slot": f"lr-{number % 4}",
        "run_id": f"lr-{number}",
        "attempts": 1 + number % 3,
        "preemptions": number % 3,
        "seconds": 600.0 + 31 * number,
        "why": why,
        "nan": False,
        "points": [[100 * at, (value or 1.0) + 2.0 / (at + 1)] for at in range(9)],
    }


def build_sweep(name: str = "lr", *, trials: int = 28) -> Json:
    phases = ["complete", "complete", "pruned", "complete", "failed", "running", "complete"]
    rows = [build_trial(at, phase=phases[at % len(phases)]) for at in range(trials)]
    ended = [row for row in rows if row["phase"] == "complete"]
    best = min(ended, key=lambda row: row["value"])["trial"] if ended else None
    counts = {word: sum(row["phase"] == word for row in rows) for word in dict.fromkeys(phases)}
    return {
        "sweep": name,
        "method": "bayes",
        "metric": "loss",
        "goal": "minimize",
        "planned": 40,
        "phases": {word: many for word, many in counts.items() if many},
        "best": best,
        "trials": rows,
    }


def build_capacity() -> Json:
    rows = [
        {
            "zone": zone,
            "type": "v4-8",
            "tier": "spot",
            "requested": 40,
            "refused": 12,
            "granted": 28,
            "wait_s": 240.0,
            "life_s": 9300.0,
            "refusal": "no_capacity",
            "refused_s_ago": 600.0,
            "message": "There is no more capacity in the zone",
        }
        for zone in ZONES
    ]
    hours = [
        {
            "zone": zone,
            "type": "v4-8",
            "tier": "spot",
            "hour": hour,
            "requested": 6,
            "granted": (hour + 2 * at) % 7,
            "refused": 6 - (hour + 2 * at) % 7,
            "wait_s": 60.0 * 1.4**hour,
            "life_s": 600.0 * 1.25**hour,
        }
        for at, zone in enumerate(ZONES)
        for hour in range(24)
        if (hour + at) % 11
    ]
    return {"rows": rows, "hours": hours}


def build_cost(jobs: tuple[str, ...] = ("gpt", "lr", "vit")) -> Json:
    days = [
        {
            "date": f"2026-11-{day:02}",
            "start": NOW - (23 - day) * 86400,
            "end": NOW - (22 - day) * 86400,
            "cost": 40.0 + day,
            "price_known": True,
            "jobs": {job: (40.0 + day) / len(jobs) for job in jobs},
        }
        for day in range(10, 24)
    ]
    rows = [
        {
            "job": job,
            "removed": at == 2,
            "total": 310.0 - at,
            "today": 12.5,
            "per_hour": 3.22 * (at < 2),
            "price_known": True,
            "max_cost": 500.0,
            "forecast_day": 30.0,
            "forecast_month": 740.0,
            "limit_at": None,
        }
        for at, job in enumerate(jobs)
    ]
    return {
        "now": NOW,
        "total": 930.25,
        "today": 37.5,
        "per_hour": 6.44,
        "price_known": True,
        "jobs": rows,
        "days": days,
        "forecast": {"day": 92.0, "month": 2210.0, "day_end": NOW, "month_end": NOW},
        "sentences": ["gpt reaches its limit of $500.00 in 2 d 11 h."],
    }


def build_report(job: str = "gpt") -> Json:
    seconds = {
        "productive": 61_000.0,
        "capacity_wait": 3100.0,
        "provision": 900.0,
        "starting": 450.0,
    }
    return {
        "job": job,
        "goodput": 0.93,
        "goodput_why": "",
        "cost": 88.4,
        "price_known": True,
        "seconds": seconds,
        "money": {"productive": 81.0, "provision": 1.2},
        "steps_lost": 412,
        "states": [{"state": "productive", "title": "training", "meaning": "work that counts"}],
        "incidents": [{"slot": f"{job}-0", "at": NOW - 900, "seconds": 412.0, "finished": True}],
    }


def build_quota() -> Json:
    def limit(place: str, allowed: int | None, used: int) -> Json:
        return {
            "place": place,
            "type": "v4",
            "tier": "spot",
            "unit": "chips",
            "allowed": allowed,
            "used": used,
            "jobs": {"gpt": used, "": 0},
            "source": "grant",
        }

    return {
        "limits": [
            limit("us-central2-b", 64, 16),
            limit("us-east1-d", 32, 32),
            limit("elsewhere", None, 4),
        ],
        "trouble": "",
    }


def build_world() -> Json:
    arguments = [
        {
            "name": "target",
            "type": "target",
            "default": None,
            "needed": True,
            "unit": "",
            "choices": [],
            "meaning": "nodes: NAME or ZONE/NAME",
        },
        {
            "name": "notice_s",
            "type": "duration",
            "default": 30.0,
            "needed": False,
            "unit": "s",
            "choices": [],
            "meaning": "how long before",
        },
    ]
    return {
        "now": NOW,
        "seed": 3,
        "time_scale": 30.0,
        "zones": list(ZONES),
        "nodes": [
            {
                "node": f"gpt-{at}-g1-7kq",
                "zone": ZONES[at],
                "type": "v4-8",
                "tier": "spot",
                "state": "READY" if at else "CREATING",
                "hosts": 1,
            }
            for at in range(3)
        ],
        "rules": [
            {
                "id": "http-error-1",
                "kind": "http-error",
                "match": {"zone": ZONES[0]},
                "params": {"http": 503},
                "since": NOW - 60,
                "until": NOW + 60,
                "left": None,
                "share": 0.5,
            }
        ],
        "capacity": {f"{ZONES[0]}/v4-8": 4},
        "planned": 0,
        "next": None,
        "can": [
            {
                "name": "preempt",
                "family": "stroke",
                "meaning": "preempts nodes",
                "example": "preempt gpt-1",
                "arguments": arguments,
            },
            {
                "name": "delay",
                "family": "rule",
                "meaning": "the API delays its responses",
                "example": "delay 5",
                "arguments": [],
            },
        ],
        "log": [{"at": NOW - 90 + at, "sentence": f"node gpt-{at} is READY"} for at in range(3)],
    }


def serve_fleet(server: FixtureServer) -> None:
    """A small fleet with everything in it."""
    server.content |= {
        "/api/overview": build_overview(),
        "/api/sweeps/lr": build_sweep(),
        "/api/capacity": build_capacity(),
        "/api/cost": build_cost(),
        "/api/cost/gpt": build_report(),
        "/api/cost/lr": build_report("lr"),
        "/api/cost/vit": build_report("vit"),
        "/api/quota": build_quota(),
        "/api/world": build_world(),
        "/api/events": build_events(),
    }


def serve_hostile_fleet(server: FixtureServer) -> None:
    """The same with hostile text wherever text comes from outside."""
    serve_fleet(server)
    sweep = build_sweep()
    for at, name in enumerate(HOSTILE):
        sweep["trials"][at] |= {"params": {name: name, "lr": 0.1}, "slot": name, "why": name}
    sweep["metric"] = HOSTILE[0]
    capacity = build_capacity()
    for at, row in enumerate(capacity["rows"]):
        row |= {"zone": HOSTILE[at], "message": HOSTILE[at + 1]}
    for one in capacity["hours"]:
        one["zone"] = HOSTILE[one["hour"] % 3]
    quota = build_quota()
    quota["limits"][0] |= {"place": HOSTILE[0], "jobs": {HOSTILE[1]: 3}}
    world = build_world()
    world["nodes"][0]["node"] = HOSTILE[0]
    world["rules"][0] |= {"id": HOSTILE[1], "match": {"zone": HOSTILE[2]}}
    world["log"][0]["sentence"] = HOSTILE[0]
    events = build_events()
    events["events"][0] |= {"line": HOSTILE[0], "job": HOSTILE[3], "slot": HOSTILE[2]}
    server.content |= {
        "/api/events": events,
        "/api/overview": build_overview(
            jobs=[build_job(), *(build_job(name) for name in HOSTILE)],
            nodes=[build_node(at, job=name) for at, name in enumerate(HOSTILE)],
        ),
        "/api/sweeps/lr": sweep,
        "/api/capacity": capacity,
        "/api/cost": {**build_cost(HOSTILE[:4]), "sentences": list(HOSTILE)},
        **{f"/api/cost/{name}": build_report(name) for name in HOSTILE[:4]},
        "/api/quota": {**quota, "trouble": HOSTILE[0]},
        "/api/world": world,
    }
