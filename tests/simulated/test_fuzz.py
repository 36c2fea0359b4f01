"""Ten thousand odd requests: no 500, no broken invariant, all of it reproducible.

Every test's name holds its seed: `pytest 'tests/simulated/test_fuzz.py::test_…[seed-7]'` is
the same run again.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.conformance.schema import Document, document
from tests.simulated.fuzz_requests import EVERY_METHOD, VERSIONS, ApiMethod, RequestAuthor
from tests.simulated.in_process_world import START
from tests.simulated.invariants import broken, forgotten, restless
from tpuherd.catalogue import discovery
from tpuherd_sim.handle import advance_world, handle_request, new_world, take_override
from tpuherd_sim.live_world import may_change_world
from tpuherd_sim.model.compute_errors import STORAGE
from tpuherd_sim.model.http_types import Request, Response
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_codec import world_digest
from tpuherd_sim.model.world_parts import Settings

SEEDS = 20
REQUESTS = 500  #: of each seed
CHECK_EVERY = 10
WRITE_EVERY = 100
REST_S = 40 * 86400.0  #: more than the 30 days of a queued resource that the weather holds up
STATUS = re.compile(r"[A-Z_]{4,30}")
OLD_STYLE = ("compute", *STORAGE)

seeds = pytest.mark.parametrize("seed", range(SEEDS), ids=lambda seed: f"seed-{seed}")


def fresh(seed: int) -> World:
    """Every third world is fast, every fifth waits for its hosts to report."""
    scale = 60.0 if seed % 3 == 2 else 1.0
    return new_world(Settings(seed=seed, created=START, time_scale=scale, real_hosts=seed % 5 == 4))


def story(seed: int, world: World) -> Iterator[tuple[float, Request]]:
    """Requests with their times, generated as the world runs."""
    author, now = RequestAuthor(seed, world), START
    for _ in range(REQUESTS):
        pause = author.chance.expovariate(1) * author.chance.choice([0.1, 5, 60, 600])
        now += pause
        yield now, author.request()


@cache
def schemas(version: str) -> Document:
    return document(discovery(version))


@cache
def patterns() -> tuple[tuple[str, re.Pattern[str], ApiMethod], ...]:
    """How to tell from a request which method it calls; those with a verb first."""
    ordered = sorted(EVERY_METHOD, key=lambda one: ":" not in one.template)
    return tuple(
        (one.http, re.compile("/" + re.sub(r"\{\w+\}", "[^/]+", one.template)), one)
        for one in ordered
    )


def method_of(request: Request) -> ApiMethod | None:
    for http, pattern, method in patterns():
        if http == request.method and pattern.fullmatch(request.path.rstrip("/")):
            return method
    return None


def faults_of(request: Request, response: Response) -> list[str]:
    """What is wrong with an answer."""
    if response.status >= 500:
        return [f"HTTP {response.status}: {response.body[:300]!r}"]
    "".join(text for _, text in response.headers).encode()
    if not response.body:
        silent = response.headers or response.status in (204, 304) or request.method == "HEAD"
        return [] if silent else ["nothing was said"]
    if response.body.startswith((b"<!", b"<?", b"--batch")):  # the front end's, XML, parts
        page = response.status == 404 and b"<title>Error 404" in response.body
        return [] if page or response.status == 200 or b"<Code>" in response.body else ["a page"]
    request = take_override(request)
    said = json.loads(response.body)
    if response.status >= 400:
        return list(error_faults(request, response.status, said))
    method = method_of(request)
    return schemas(method.version).faults(method.id, said) if method else []


def error_faults(request: Request, status: int, said: Any) -> Iterator[str]:
    """An error must have the shape that is documented for its API."""
    error = said.get("error")
    if isinstance(error, str):
        if "token" not in request.path or not said.get("error_description"):
            yield f"an error of OAuth's shape: {said}"
        return
    if not isinstance(error, dict) or error.get("code") != status or not error.get("message"):
        yield f"an error without code or message: {said}"
        return
    if request.path.strip("/").split("/")[0] in OLD_STYLE:
        for one in error.get("errors") or [{}]:
            if not all(isinstance(one.get(name), str) for name in ("message", "domain", "reason")):
                yield f"an error of Compute without errors[]: {said}"
        return
    if not STATUS.fullmatch(str(error.get("status"))):
        yield f"an error without a status: {said}"
    for detail in error.get("details", []):
        if not detail.get("@type", "").startswith("type.googleapis.com/google.rpc."):
            yield f"a detail of no type: {detail}"


@seeds
def test_no_request_breaks_the_world(seed: int) -> None:
    world = fresh(seed)
    answers = 0
    for number, (now, request) in enumerate(story(seed, world)):
        response = handle_request(world, request, now)
        faults = faults_of(request, response)
        if number % CHECK_EVERY == 0:
            faults += broken(world, now)
        if number % WRITE_EVERY == 0:
            faults += forgotten(world)
        assert not faults, f"seed {seed}, request {number} at {now - START:.3f} s: {request}\n" + (
            "\n".join(faults)
        )
        answers += response.status < 300
    assert answers > REQUESTS / 5, "nearly everything was refused: the fuzz has lost its teeth"


@pytest.mark.parametrize("seed", range(0, SEEDS, 5), ids=lambda seed: f"seed-{seed}")
def test_reads_change_nothing(seed: int) -> None:
    world = fresh(seed)
    for number, (now, request) in enumerate(story(seed, world)):
        advance_world(world, now)
        if number % 5 or may_change_world(world, request):
            handle_request(world, request, now)
            continue
        before = world_digest(world)
        handle_request(world, request, now)
        assert world_digest(world) == before, f"seed {seed}, request {number}: {request}"


@pytest.mark.parametrize("seed", range(2, SEEDS, 5), ids=lambda seed: f"seed-{seed}")
def test_the_recorded_writes_rebuild_the_same_world(seed: int) -> None:
    world = fresh(seed)
    journal = []
    now = START
    for now, request in story(seed, world):
        advance_world(world, now)
        if may_change_world(world, request):
            journal.append((now, request))
        handle_request(world, request, now)
    again = fresh(seed)
    for at, request in journal:
        handle_request(again, request, at)
    advance_world(again, now)
    assert world_digest(again) == world_digest(world)


@pytest.mark.parametrize(
    "seed", [seed for seed in range(SEEDS) if seed % 5 == 3], ids=lambda seed: f"seed-{seed}"
)
def test_every_world_settles(seed: int) -> None:
    world, now = fresh(seed), START
    for now, request in story(seed, world):
        handle_request(world, request, now)
    clear = Request(method="POST", path="/sim/v1/weather/clear", body=b'{"rule": "all"}')
    assert handle_request(world, clear, now).status in (200, 400, 404)
    advance_world(world, now + REST_S)
    assert list(restless(world)) == []
    assert broken(world, now + REST_S) == []


def test_every_method_of_every_version_is_called() -> None:
    asked = set()
    for seed in range(SEEDS):
        for _, request in story(seed, fresh(seed)):
            asked.add(method_of(request))
    assert set(EVERY_METHOD) <= asked
    assert {method.version for method in EVERY_METHOD} == set(VERSIONS)
