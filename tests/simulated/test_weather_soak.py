"""A stubborn user in a storm: every result is an answer, is logged, and is reproducible."""

from itertools import count
from typing import Any

import pytest

from tests.simulated.in_process_world import Asker
from tests.simulated.invariants import broken, forgotten
from tpuherd_sim.model.world_codec import world_digest
from tpuherd_sim.weather.log_text import log_sentence, plain_sentence
from tpuherd_sim.weather.storm import storm_steps

TYPES = {"us-central2-b": "v4-16", "us-east1-d": "v3-32"}
HOURS = 8
WANTED = 3  #: nodes a zone
OVER = {"PREEMPTED", "TERMINATED", "SUSPENDED", "FAILED"}
WEATHERS_OWN = {429, 500, 503}


class User(Asker):
    """Asks for nodes and queued resources by turns, and clears away what is dead."""

    statuses: set[int]

    def tried(self, method: str, target: str, body: object = None) -> Any:
        """The answer, or None if it was a refusal."""
        answer = self.ask(method, target, body)
        self.statuses.add(answer.status)
        return answer.said if answer.status == 200 else None

    def look(self, zone: str, numbers: "count[int]") -> None:
        """One look at a zone, and what follows from it."""
        place = f"/v2/projects/demo/locations/{zone}"
        nodes = self.tried("GET", f"{place}/nodes")
        requests = self.tried("GET", f"{place}/queuedResources")
        if nodes is None or requests is None:
            return
        direct = [
            (node["name"], node["state"])
            for node in nodes.get("nodes", [])
            if "queuedResource" not in node
        ]
        queued = [
            (one["name"], one["state"]["state"]) for one in requests.get("queuedResources", [])
        ]
        for name, state in (*direct, *queued):
            if state in OVER:
                self.tried("DELETE", f"/v2/{name}")
        for _ in range(WANTED - len(direct) - len(queued)):
            self.create(place, zone, next(numbers))

    def create(self, place: str, zone: str, number: int) -> None:
        """Something new."""
        node = {"acceleratorType": TYPES[zone], "runtimeVersion": "tpu-ubuntu2204-base"}
        if number % 2:
            spot = {"schedulingConfig": {"spot": True}}
            self.tried("POST", f"{place}/nodes?nodeId=n{number}", {**node, **spot})
            return
        slot = {"parent": place.removeprefix("/v2/"), "nodeId": f"q{number}", "node": node}
        body = {
            "tpu": {"nodeSpec": [slot]},
            "spot": {},
            "queueingPolicy": {"validUntilDuration": "1800s"},
        }
        self.tried("POST", f"{place}/queuedResources?queuedResourceId=q{number}", body)


def stormy(seed: int) -> User:
    """The world after the storm and some calm hours."""
    user = User()
    user.statuses = set()
    steps = storm_steps(seed, list(TYPES), HOURS, 4.0, nodes=3)
    user.post("/sim/v1/scenario", {"steps": steps})
    numbers = count()
    for _ in range(HOURS * 30):
        user.wait(120.0)
        for zone in TYPES:
            user.look(zone, numbers)
    user.wait(7 * 3600.0)
    return user


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_storm_breaks_no_invariant_of_the_world(seed: int) -> None:
    user = stormy(seed)
    assert user.statuses >= {200, 503} and user.statuses <= {200, 400, 404, 409} | WEATHERS_OWN
    assert broken(user.world, user.now) == []
    assert forgotten(user.world) == []
    assert [line for line in user.world.log if log_sentence(line) == plain_sentence(line)] == []
    struck = {line.facts["kind"] for line in user.world.log if line.name == "weather.struck"}
    assert len(struck) >= 8


def test_a_storm_is_reproducible() -> None:
    assert world_digest(stormy(4).world) == world_digest(stormy(4).world)
