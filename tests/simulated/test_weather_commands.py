"""The weather over HTTP: refused, planned, reported, and reproducible."""

from pathlib import Path
from typing import Any

import pytest

from tests.simulated.in_process_world import START, Asker
from tpuherd_sim.handle import new_world
from tpuherd_sim.model.world_codec import dump_world, load_world, world_digest
from tpuherd_sim.model.world_parts import Settings
from tpuherd_sim.weather import scenario
from tpuherd_sim.weather.kinds import KINDS
from tpuherd_sim.weather.storm import storm_steps

ZONE = "us-central2-b"
PLACE = f"/v2/projects/demo/locations/{ZONE}"
SPEC = {
    "acceleratorType": "v4-16",
    "runtimeVersion": "tpu-ubuntu2204-base",
    "networkConfig": {"enableExternalIps": True},
    "schedulingConfig": {"spot": True},
}
SAMPLES = Path(__file__).parents[1] / "scenarios" / "weather"


@pytest.fixture
def world() -> Asker:
    return Asker()


def with_nodes(world: Asker, *names: str) -> Asker:
    for name in names:
        world.post(f"{PLACE}/nodes?nodeId={name}", SPEC)
    world.wait(3600.0)
    return world


def told(world: Asker, since: int = 0) -> list[tuple[float, str]]:
    """The weather's own lines of the log: seconds since the beginning, sentence."""
    lines = world.get(f"/sim/v1/log?since={since}")["lines"]
    return [
        (round(line["at"] - START, 1), line["sentence"])
        for line in lines
        if line["name"].startswith("weather.")
    ]


@pytest.mark.parametrize(
    ("kind", "body", "field", "message"),
    [
        ("prempt", {}, "do", "'prempt' is not a kind of weather; did you mean 'preempt'?"),
        ("preempt", {"taget": "x"}, "taget",
         "'taget' is not an argument of preempt; did you mean 'target'?"),
        ("preempt", {}, "target",
         "preempt needs 'target': nodes: NAME or ZONE/NAME; patterns allowed"),
        ("preempt", {"target": ["x"]}, "target",
         "'target' of preempt must be a name or a pattern, not ['x']"),
        ("preempt", {"target": "x", "notice_s": {}}, "notice_s",
         "'notice_s' of preempt must be a duration such as 90s, 10m, 2h or 1d, not {}"),
        ("preempt", {"target": "pof"}, "target",
         "no node or host matches 'pof'; did you mean 'pod'?"),
        ("reboot", {"target": "pod/w7"}, "target",
         "no node or host matches 'pod/w7'; did you mean 'pod/w1'?"),
        ("clear", {"rule": "delay-7"}, "rule", "no rule 'delay-7' is in force"),
        ("quota", {"zone": ZONE, "quota": "v4", "limit": -1}, "limit",
         "'limit' of quota must be a whole number of at least 0, not -1"),
        ("http-error", {"share": 1.5}, "share",
         "'share' of http-error must be a number from 0 to 1, not 1.5"),
    ],
)  # fmt: skip
def test_an_invalid_command_is_a_400_with_its_field(
    world: Asker, kind: str, body: dict[str, Any], field: str, message: str
) -> None:
    with_nodes(world, "pod")
    before = world_digest(world.world)
    answer = world.ask("POST", f"/sim/v1/weather/{kind}", body)
    assert (answer.status, answer.message) == (400, message)
    assert answer.said["error"]["details"][0]["fieldViolations"][0]["field"] == field
    assert world_digest(world.world) == before


def test_a_dead_node_cannot_be_hit_again(world: Asker) -> None:
    with_nodes(world, "pod")
    world.post("/sim/v1/weather/preempt", {"target": "pod", "notice_s": 0})
    world.wait(3600.0)
    answer = world.ask("POST", "/sim/v1/weather/hang", {"target": "pod"})
    assert (answer.status, answer.message) == (400, f"{ZONE}/pod is PREEMPTED")


def test_the_forecast_lists_active_rules_and_possible_commands(world: Asker) -> None:
    world.post("/sim/v1/weather/capacity", {"zone": ZONE, "type": "v4-8", "nodes": 3})
    world.post("/sim/v1/weather/delay", {"seconds": 3, "zone": ZONE, "for": "1m", "times": 2})
    steps = [{"at_s": 60, "do": "preempt", "target": "pod"}]
    world.post("/sim/v1/scenario", {"steps": steps})
    found = world.get("/sim/v1/weather")
    assert [kind["name"] for kind in found.pop("can")] == list(KINDS)
    assert found == {
        "now": START,
        "rules": [
            {
                "id": "delay-1",
                "kind": "delay",
                "match": {"zone": ZONE},
                "params": {"seconds": 3.0},
                "since": START,
                "until": START + 60.0,
                "left": 2,
                "share": 1.0,
            }
        ],
        "capacity": {f"{ZONE}/v4-8": 3},
        "planned": 1,
        "next": START + 60.0,
    }


def test_a_rule_ends_by_command_by_time_and_by_count(world: Asker) -> None:
    for limit in ({}, {"for": 10}, {"times": 2}):
        world.post("/sim/v1/weather/http-error", {"method": "nodes.list", **limit})
    assert world.ask("DELETE", "/sim/v1/weather/http-error-1").status == 200
    assert world.ask("DELETE", "/sim/v1/weather/http-error-1").status == 404
    assert world.ask("GET", f"{PLACE}/nodes").status == 503
    world.wait(10.0)
    assert [rule["id"] for rule in world.get("/sim/v1/weather")["rules"]] == ["http-error-3"]
    statuses = [world.ask("GET", f"{PLACE}/nodes").status for _ in range(4)]
    assert statuses == [503, 503, 200, 200]
    assert world.get("/sim/v1/weather")["rules"] == []


def test_rules_never_affect_weather_calls(world: Asker) -> None:
    for kind in ("http-error", "lost-response", "delay"):
        world.post(f"/sim/v1/weather/{kind}", {})
    answer = world.ask("POST", "/sim/v1/weather/clear", {"rule": "all"})
    assert answer.status == 200 and not answer.response.lost and answer.response.delay_s == 0.0


def test_a_share_strikes_at_its_rate_and_reproducibly() -> None:
    def statuses() -> list[int]:
        world = Asker()
        world.post("/sim/v1/weather/http-error", {"share": 0.3})
        return [world.ask("GET", f"{PLACE}/nodes").status for _ in range(400)]

    once = statuses()
    assert 0.22 < once.count(503) / len(once) < 0.38
    assert once == statuses()


def test_repeated_steps_happen_at_their_times_until_the_end(world: Asker) -> None:
    with_nodes(world, "pod")
    began = round(world.now - START, 1)
    steps = [
        {"at_s": "1h", "do": "drought", "zone": ZONE, "for": "30m"},
        {"at_s": 100, "do": "hang", "target": "pod/w0", "for": 10},
        {"at_s": 50, "every_s": 100, "until_s": 260, "do": "reboot", "target": "pod/w1"},
        {"at_s": 10, "do": "crash", "target": "nobody"},
    ]
    assert world.post("/sim/v1/scenario", {"steps": steps}) == {"planned": 4}
    since = world.get("/sim/v1/log")["next"]
    world.wait(2 * 3600.0)
    assert told(world, since) == [
        (began + 10, "crash had no effect: no node or host matches 'nobody'"),
        (began + 50, f"rebooted {ZONE}/pod/w1"),
        (began + 100, f"froze {ZONE}/pod/w0, for 10 s"),
        (began + 110, f"resumed {ZONE}/pod/w0"),
        (began + 150, f"rebooted {ZONE}/pod/w1"),
        (began + 250, f"rebooted {ZONE}/pod/w1"),
        (began + 3600, f"drought in {ZONE} (capacity was unlimited), for 30 min"),
        (began + 5400, f"capacity in {ZONE} is unlimited (was 0)"),
    ]


def test_the_times_of_a_scenario_follow_the_time_scale() -> None:
    settings = Settings(seed=1, created=START, time_scale=60.0)
    world = Asker(world=new_world(settings))
    steps = [{"at_s": "1h", "do": "drought", "zone": ZONE, "for": "2h"}]
    world.post("/sim/v1/scenario", {"steps": steps})
    world.wait(200.0)
    assert told(world)[1:] == [
        (60.0, f"drought in {ZONE} (capacity was unlimited), for 2 h"),
        (180.0, f"capacity in {ZONE} is unlimited (was 0)"),
    ]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({}, "a scenario needs 'steps', a list"),
        ([1], "step 1: a step must be an object such as {'at_s': 60, 'do': 'preempt', …}"),
        ([{"at_s": 1}], "step 1: None is not a kind of weather"),
        ([{"do": "clear", "rule": "all"}, {"do": "crash", "taget": "x"}],
         "step 2: 'taget' is not an argument of crash; did you mean 'target'?"),
        ([{"do": "clear", "rule": "all", "at_s": -1}], "step 1: 'at_s' must be a duration"),
        ([{"do": "clear", "rule": "all", "every_s": 0.1}], "step 1: 'every_s' must be"),
    ],
)  # fmt: skip
def test_a_scenario_is_planned_completely_or_not_at_all(
    world: Asker, steps: object, message: str
) -> None:
    answer = world.ask("POST", "/sim/v1/scenario", {"steps": steps})
    assert answer.status == 400 and answer.message.startswith(message)
    assert world.get("/sim/v1/weather")["planned"] == 0


def test_planned_steps_can_be_dropped_but_started_ones_still_end(world: Asker) -> None:
    steps = [
        {"at_s": 10, "do": "drought", "zone": ZONE, "for": 100},
        {"at_s": 50, "do": "capacity", "zone": "us-east1-d", "nodes": 1},
    ]
    world.post("/sim/v1/scenario", {"steps": steps})
    world.wait(20.0)
    assert world.ask("DELETE", "/sim/v1/scenario").said == {"dropped": 1}
    world.wait(200.0)
    assert world.get("/sim/v1/weather")["capacity"] == {}


def test_the_end_of_a_drought_keeps_later_settings(world: Asker) -> None:
    world.post("/sim/v1/weather/drought", {"zone": ZONE, "for": "1h"})
    world.wait(60.0)
    world.post("/sim/v1/weather/capacity", {"zone": ZONE, "nodes": 4})
    world.wait(3600.0)
    assert world.get("/sim/v1/weather")["capacity"] == {f"{ZONE}/*": 4}


def test_droughts_that_overlap_end(world: Asker) -> None:
    world.post("/sim/v1/weather/drought", {"zone": ZONE, "for": "1h"})
    world.wait(1800.0)
    world.post("/sim/v1/weather/drought", {"zone": ZONE, "for": "1h"})
    world.wait(3600.0)
    assert world.get("/sim/v1/weather")["capacity"] == {}


def test_the_log_is_read_from_a_position(world: Asker) -> None:
    for _ in range(3):
        world.post("/sim/v1/weather/delay", {"times": 1})
    first = world.get("/sim/v1/log")
    assert [line["number"] for line in first["lines"]] == [0, 1, 2] and not first["more"]
    assert world.get(f"/sim/v1/log?since={first['next']}")["lines"] == []
    assert [line["number"] for line in world.get("/sim/v1/log?since=1")["lines"]] == [1, 2]
    assert world.get("/sim/v1/log?since=9")["next"] == 3
    assert world.ask("GET", "/sim/v1/log?since=now").status == 400


def test_a_limited_number_is_picked_reproducibly() -> None:
    def picked() -> list[str]:
        world = with_nodes(Asker(), *(f"gpt-{number}" for number in range(6)))
        done = world.post("/sim/v1/weather/hang", {"target": "gpt-*", "pick": 3})["done"]
        return [hit["target"] for hit in done]

    assert len(set(picked())) == 3
    assert picked() == picked()


def played(steps: list[dict[str, Any]], hours: int, stride: float) -> Asker:
    """A world with some nodes under that weather, looked at in strides."""
    world = Asker()
    world.post("/sim/v1/scenario", {"steps": steps})
    with_nodes(world, "gpt-0", "gpt-1")
    for _ in range(int(hours * 3600 / stride)):
        world.wait(stride)
    return world


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_weather_makes_the_same_world(seed: int) -> None:
    steps = storm_steps(seed, [ZONE, "us-east1-d"], 12)
    once = played(steps, 12, 600.0)
    assert world_digest(once.world) == world_digest(played(steps, 12, 600.0).world)
    assert world_digest(once.world) == world_digest(played(steps, 12, 43200.0).world), (
        "strides don't matter"
    )
    assert world_digest(load_world(dump_world(once.world))) == world_digest(once.world)
    assert world_digest(once.world) != world_digest(
        played(storm_steps(seed + 9, [ZONE], 12), 12, 600.0).world
    )


def test_a_trace_is_the_capacity_that_a_client_can_get(world: Asker) -> None:
    text = (
        f"seed: 3\ntraces:\n  - {{file: two_zones.json, zone: {ZONE}, type: v4-16, offset: 10m}}\n"
    )
    read = scenario.parse_scenario(text, read=lambda path: (SAMPLES / "good" / path).read_text())
    world.post("/sim/v1/scenario", {"steps": scenario.scenario_steps(read)})
    # The levels of the file from its third tick on. A change lies before the tick that shows it.
    for number, level in enumerate((2, 0, 0, 1, 1, 4, 4, 4, 0, 0)):
        world.wait(START + number * 300.0 - world.now)
        assert world.get("/sim/v1/weather")["capacity"] == {f"{ZONE}/v4-16": level}
