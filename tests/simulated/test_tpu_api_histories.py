"""Random histories: replayed, split differently, saved halfway, they end the same."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulated.in_process_world import START
from tests.simulated.tpu_user import ONE_HOST, PARENT, POD, SPOT, fresh
from tpuherd_sim.handle import advance_world, handle_request, next_due_time
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_codec import dump_world, load_world, world_digest

STEPS = 120
NAMES = ("a", "b", "c")
SEEDS = range(6)
Step = tuple[float, Request]


def history(seed: int) -> Iterator[Step]:
    """What somebody without a plan asks for, at odd times."""
    chance = random.Random(seed)
    now = START
    for _ in range(STEPS):
        now += chance.choice((0.0, 0.3, 2.0, 31.0, 200.0, 2000.0))
        method, target, body = chance.choice(ASKED)(chance)
        path, _, query = target.partition("?")
        sent = b"" if body is None else json.dumps(body).encode()
        yield now, Request(method=method, path=path, query=query, body=sent)


Asked = tuple[str, str, Any]


def create(chance: random.Random) -> Asked:
    spec = chance.choice((ONE_HOST, POD, {**ONE_HOST, **SPOT}, {**POD, **SPOT}))
    return "POST", f"/v2/{PARENT}/nodes?nodeId={chance.choice(NAMES)}", spec


def preemptible(chance: random.Random) -> Asked:
    spec = {**ONE_HOST, "schedulingConfig": {"preemptible": True}}
    return "POST", f"/v2/{PARENT}/nodes?nodeId={chance.choice(NAMES)}", spec


def verb(chance: random.Random) -> Asked:
    name = chance.choice(("stop", "start", "simulateMaintenanceEvent", "performMaintenance"))
    return "POST", f"/v2alpha1/{PARENT}/nodes/{chance.choice(NAMES)}:{name}", {}


def patch(chance: random.Random) -> Asked:
    mask = chance.choice(("labels", "metadata", "networkConfig.enableExternalIps", "state"))
    body = {"labels": {"a": str(chance.randrange(9))}, "metadata": {"ssh-keys": "x"}}
    return "PATCH", f"/v2/{PARENT}/nodes/{chance.choice(NAMES)}?updateMask={mask}", body


def delete(chance: random.Random) -> Asked:
    name = chance.choice((*NAMES, "qa-0", "qb-0", "qb-1"))
    return "DELETE", f"/v2/{PARENT}/nodes/{name}", None


def queue(chance: random.Random) -> Asked:
    name, count = chance.choice((("qa", 1), ("qb", 2)))
    slot: dict[str, Any] = {"parent": PARENT, "node": ONE_HOST, "nodeId": f"{name}-0"}
    if count > 1:
        slot = {"parent": PARENT, "node": ONE_HOST, "multisliceParams": {"nodeCount": count}}
    body: dict[str, Any] = {"tpu": {"nodeSpec": slot}}
    body |= chance.choice(({"spot": {}}, {}, {"guaranteed": {}}))
    if chance.random() < 0.5:
        body["queueingPolicy"] = {"validUntilDuration": f"{chance.randrange(1, 300)}s"}
    query = f"queuedResourceId={name}&requestId={chance.randrange(4)}"
    return "POST", f"/v2/{PARENT}/queuedResources?{query}", body


def dequeue(chance: random.Random) -> Asked:
    force = chance.choice(("", "?force=true"))
    return "DELETE", f"/v2/{PARENT}/queuedResources/{chance.choice(('qa', 'qb'))}{force}", None


def reset(chance: random.Random) -> Asked:
    return "POST", f"/v2/{PARENT}/queuedResources/{chance.choice(('qa', 'qb'))}:reset", {}


def look(chance: random.Random) -> Asked:
    kind = chance.choice(("nodes", "queuedResources", "operations"))
    return "GET", f"/v2/projects/demo/locations/-/{kind}?pageSize=2", None


def weather(chance: random.Random) -> Asked:
    name, body = chance.choice(
        (
            ("preempt", {"target": chance.choice(("*", *NAMES))}),
            ("preempt", {"target": chance.choice(("q*", *NAMES)), "notice_s": 0}),
            ("maintain", {"target": chance.choice(NAMES), "notice_s": 4000}),
            ("crash", {"target": f"{chance.choice(NAMES)}/w0"}),
            ("reboot", {"target": f"{chance.choice(NAMES)}/w0"}),
            ("capacity", {"zone": "us-central2-b", "nodes": chance.randrange(5)}),
            ("capacity", {"zone": "us-central2-b", "nodes": "unlimited"}),
            ("operation-error", {"code": 13, "times": 1, "share": 0.5}),
            ("slow-operation", {"factor": 3, "times": 1}),
            ("endless-operation", {"times": 1}),
            ("stuck-suspending", {"times": 1}),
            ("late-fill", {"after_s": 50, "times": 1}),
            ("recycle-ip", {"times": 1}),
            ("quota", {"zone": "us-central2-b", "quota": "v4", "limit": chance.randrange(64)}),
        )
    )
    return "POST", f"/sim/v1/weather/{name}", body


ASKED = (
    create,
    create,
    queue,
    queue,
    preemptible,
    verb,
    patch,
    delete,
    dequeue,
    reset,
    look,
    weather,
)
seeds = pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed-{seed}")


def live(steps: Iterator[Step], scale: float) -> World:
    """The world after a history, at its end."""
    world, now = fresh(time_scale=scale), START
    for now, request in steps:
        answer = handle_request(world, request, now)
        assert answer.status < 500, (request, answer.body)
    advance_world(world, now + 100.0)
    return world


@seeds
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_the_same_history_makes_the_same_world(seed: int, scale: float) -> None:
    assert world_digest(live(history(seed), scale)) == world_digest(live(history(seed), scale))


@seeds
def test_reads_make_no_difference(seed: int) -> None:
    """Where no rule of the weather is in force; where one is, the journal notes reads as well."""
    asked = [step for step in history(seed) if "weather" not in step[1].path]
    wrote = [step for step in asked if step[1].method != "GET"]
    end = (START + 10**7, Request(method="GET", path="/"))
    assert world_digest(live(iter([*asked, end]), 1.0)) == world_digest(
        live(iter([*wrote, end]), 1.0)
    )


@seeds
def test_the_steps_by_which_time_advances_make_no_difference(seed: int) -> None:
    chance = random.Random(seed)
    one, other, before = fresh(), fresh(), START
    for now, request in history(seed):
        for at in sorted(chance.uniform(before, now) for _ in range(4)):
            advance_world(other, at)
        while (due := next_due_time(other)) is not None and due <= now:
            advance_world(other, due)
        assert handle_request(one, request, now) == handle_request(other, request, now)
        before = now
    assert dump_world(one) == dump_world(other)


@seeds
def test_a_saved_world_continues(seed: int) -> None:
    chance = random.Random(seed)
    one, other = fresh(), fresh()
    for now, request in history(seed):
        if chance.random() < 0.2:
            written = json.loads(json.dumps(dump_world(other)))
            other = load_world(written)
            assert json.loads(json.dumps(dump_world(other))) == written
        handle_request(one, request, now)
        handle_request(other, request, now)
    assert world_digest(one) == world_digest(other)


@seeds
def test_every_world_settles_and_forgets(seed: int) -> None:
    world = live(history(seed), 1.0)
    handle_request(
        world, Request(method="POST", path="/sim/v1/weather/clear", body=b'{"rule":"all"}'), START
    )
    for _ in range(3):
        end = START + 10**8
        advance_world(world, end)
        for key in world.requests:
            path = f"/v2/{PARENT}/queuedResources/{key.partition('/')[2]}"
            handle_request(world, Request(method="DELETE", path=path, query="force=true"), end)
        for key in world.nodes:
            path = f"/v2/{PARENT}/nodes/{key.partition('/')[2]}"
            handle_request(world, Request(method="DELETE", path=path), end)
        advance_world(world, end + 10**7)
    assert not world.nodes and not world.requests
    assert all(operation.endless for operation in world.operations.values())
    books = world.books
    assert len(books.external_free) == books.external_made
    assert len(books.internal_free) == books.internal_made
    assert not world.agenda and not world.rendered and not world.places


@seeds
def test_a_list_equals_single_gets(seed: int) -> None:
    """Answers are kept until something changes: never longer."""
    world = fresh()
    for now, request in history(seed):
        handle_request(world, request, now)
        for kind, records in (("nodes", world.nodes), ("queuedResources", world.requests)):
            path = f"/v2/{PARENT}/{kind}"
            listed = handle_request(world, Request(method="GET", path=path), now)
            single = [
                json.loads(
                    handle_request(world, Request(method="GET", path=f"{path}/{id}"), now).body
                )
                for id in sorted(key.partition("/")[2] for key in records)
            ]
            assert json.loads(listed.body).get(kind, []) == single
