"""Altered answers of the cloud, for every function that asks it, and for the engine.

`python -m tests.simulated.fuzz_answers 10000` alters so many of each, from seeds. Functions are
found by themselves: a new one in tpuherd.cloud that takes `rest` is called, too.
"""

import asyncio
import importlib
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

import httpx2

import tpuherd.cloud
from tests.hostile_words import mutate, mutate_bytes
from tests.simulated.cloud_user import ZONE, User, live
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_ports import RequestFault
from tests.simulated.engine_programs import Script
from tests.simulated.engine_world import TYPE
from tests.simulated.fuzz_seeds import play_seeds
from tests.simulated.test_cloud_malformed import CALLS
from tpuherd.cloud.bids_api import BidsApi
from tpuherd.cloud.firewall_rules import FirewallRule
from tpuherd.errors import HerdError
from tpuherd_sim.model.http_types import Request

Asking = Callable[[User, BidsApi], Awaitable[Any]]
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
FACTS_MAX = 64_000  #: characters of one event's facts
FOREVER_S = 4 * 3600.0
LYING_S = 1200.0
SHARE = 0.25  #: of the engine's answers that are altered
SCRIPTS = {"*": Script(steps=60, step_s=5.0)}
PAGE = b"<!DOCTYPE html><title>502</title><h1>The server encountered an error</h1>" * 20
#: Nodes of somebody else: one as if it were of our job, one by another tool.
OTHERS = ("gpt-0-g1-zzz", "pod")
EVENTS_APART = 300  #: of a history: at most so many, and one for each lie
#: What functions are called with, by the names of their parameters.
ARGUMENTS: Mapping[str, Any] = {
    "project": "demo", "name": "default", "location": "US", "asked": ["storage.objects.get"],
    "member": "user:a@b.c", "roles": ["roles/storage.admin"], "role": "roles/viewer",
    "email": "a@b.iam.gserviceaccount.com", "id": "herd", "title": "herd", "path": "x",
    "network": "default", "public": "ssh-ed25519 AAAA", "fingerprint": "ab",
    "permissions": ["tpu.nodes.list"], "change": lambda items: items,
    "content": {"name": "operations/x"},
    "rule": FirewallRule(name="x", network="default", sources=("0.0.0.0/0",)),
}  # fmt: skip


def found_calls() -> dict[str, Asking]:
    """Every public function of tpuherd.cloud that takes `rest`."""
    calls: dict[str, Asking] = {}
    for info in pkgutil.iter_modules(tpuherd.cloud.__path__):
        module = importlib.import_module(f"tpuherd.cloud.{info.name}")
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction):
            names = list(inspect.signature(function).parameters)
            own = function.__module__ == module.__name__ and not name.startswith("_")
            if own and names[:1] == ["rest"]:
                calls[f"{info.name}.{name}"] = asking(function, names[1:])
    return calls


def asking(function: Callable[..., Awaitable[Any]], names: list[str]) -> Asking:
    """Call it with what its parameters are named after."""

    def ask(user: User, bids: BidsApi) -> Awaitable[Any]:
        given = {**ARGUMENTS, "clock": user.clock}
        return function(user.cloud.rest, *(given[name] for name in names))

    return ask


ALL_CALLS: Mapping[str, Asking] = {**CALLS, **found_calls()}


def spoil(answer: httpx2.Response, dice: Random) -> httpx2.Response:
    """An answer with its content altered; sometimes with another status."""
    status, piece = answer.status_code, answer.content
    if dice.random() < 0.05:
        return httpx2.Response(dice.choice([500, 502, 503, 200]), content=PAGE)
    try:
        content = json.loads(piece)
    except ValueError:
        content = {}
    if dice.random() < 0.2:
        piece = mutate_bytes(piece, dice)
    else:
        if isinstance(content, dict) and dice.random() < 0.3:
            content = mistake_items(content, dice)
        else:
            content = mutate(content, dice)
        while dice.random() < 0.4:
            content = mutate(content, dice)
        text = json.dumps(content, ensure_ascii=dice.random() < 0.5)
        piece = text.encode(errors="surrogatepass")
    if dice.random() < 0.15:
        status = dice.choice([200, 204, 302, 400, 401, 403, 404, 409, 429, 500, 503])
    return httpx2.Response(status, content=piece)


def mistake_items(content: dict[str, Any], dice: Random) -> dict[str, Any]:
    """The answer with a wrong page token, or a list whose items are doubled, lost or mixed up."""
    lists = [name for name, value in content.items() if isinstance(value, list) and value]
    if not lists or dice.random() < 0.3:
        return {**content, "nextPageToken": dice.choice(["2", "x", "", 7, None, "é" * 5000])}
    name = dice.choice(lists)
    items = list(content[name])
    if dice.random() < 0.5 and all(isinstance(one, dict) for one in items):
        fields = dice.sample(items, len(items))
        taken = dice.choice(["name", "state", "createTime", "queuedResource", "networkEndpoints"])
        items = [{**one, taken: other.get(taken)} for one, other in zip(items, fields, strict=True)]
    elif dice.random() < 0.5:
        items += dice.sample(items, dice.randrange(1, len(items) + 1))
    else:
        items = dice.sample(items, dice.randrange(len(items)))
    return {**content, name: items}


async def ask_altered(user: User, bids: BidsApi, name: str, dice: Random) -> str:
    """Call one function, whose answers are altered; what was wrong, if anything."""

    async def answered(request: httpx2.Request) -> httpx2.Response:
        return spoil(await type(user.wire).handle_async_request(user.wire, request), dice)

    user.wire.handle_async_request = answered  # type: ignore[method-assign]
    try:
        async with asyncio.timeout(FOREVER_S):
            found = await ALL_CALLS[name](user, bids)
    except HerdError as error:
        long = len(error.sentence) > 2000
        return f"a sentence of {len(error.sentence)} characters" if long else ""
    except TimeoutError:
        return "it never ended"
    except Exception as error:  # noqa: BLE001 - any other error is a finding
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        del user.wire.handle_async_request
    names = [getattr(one, "name", "") for one in getattr(found, "nodes", ())]
    names += list(getattr(found, "observations", ()))
    return next((f"the name {one!r}" for one in names if one and not ID.fullmatch(one)), "")


def alter_answers(seed: int, many: int) -> list[str]:
    """What was wrong when so many calls got altered answers."""
    dice, found = Random(seed), []

    async def main(user: User) -> None:
        bids = BidsApi(user.cloud, user.clock, 22, user.cloud.list_nodes)
        await user.node("pod", metadata={"tpuherd": "{}"})
        await user.node("gpt-0-g1-abc", ZONE)
        for number in range(many):
            name = dice.choice(sorted(ALL_CALLS))
            if said := await ask_altered(user, bids, name, dice):
                found.append(f"call {number}, {name}: {said}")

    live(main)
    return found


def lie_to_engine(seed: int, many: int) -> list[str]:
    """What was wrong in a history in which so many answers to the engine were altered."""
    dice = Random(seed)
    altered = 0

    def before(request: Request) -> RequestFault | None:
        nonlocal altered
        if altered >= many or dice.random() > SHARE:
            return None
        altered += 1
        return lambda answer: spoil(answer, dice)

    async def plot(play: EngineHarness) -> list[str]:
        for name in OTHERS:
            body = {"acceleratorType": TYPE, "runtimeVersion": "v2-alpha-tpuv5"}
            play.sim.ask(
                "POST", f"/v2/projects/demo/locations/us-east5-a/nodes?nodeId={name}", body
            )
        play.before = before
        play.submit(SimJob(job="gpt"))
        play.submit(SimJob(job="bert"))
        await play.until(lambda: altered >= many, LYING_S + 60.0 * many)
        play.before = lambda request: None
        for job in ("gpt", "bert"):
            ended = partial(play.sim.fleet.bucket.finished.__contains__, f"{job}-0")
            await play.until(ended, 4 * 3600.0)
            play.down(job)
        found = list(play.troubles)
        if not await play.until(lambda: not play.sim.remains(), 3600.0):
            found.append(f"after down there is {play.sim.remains()}")
        return [*found, *judge_lies(play, altered)]

    found: list[str] = perform(plot, seed=seed, scripts=SCRIPTS)
    return found


def judge_lies(play: EngineHarness, altered: int) -> Iterator[str]:
    """What must not be, whatever the cloud says; that nodes were replaced is no mistake."""
    for slot in ("gpt-0", "bert-0"):
        if slot not in play.sim.fleet.bucket.finished:
            yield f"{slot} never came to its end"
    hard = ("not ours", "no job wants it", "in a minute", "begins while")
    yield from (one for one in play.watch.faults if any(word in one for word in hard))
    touched = {one.name for one in play.mutations() if one.name in OTHERS}
    yield from (f"{name} is not ours, and was changed" for name in sorted(touched))
    left = {one.id for one in play.sim.world.nodes.values() if one.state == "READY"}
    yield from (f"{name} of another owner is gone" for name in OTHERS if name not in left)
    told = play.events()
    if len(told) > EVENTS_APART + altered:
        yield f"{len(told)} events"
    sizes = {event.kind: len(json.dumps(dict(event.facts))) for event in told}
    yield from (f"{kind} has {size} characters" for kind, size in sizes.items() if size > FACTS_MAX)


def main() -> int:
    many, bad = play_seeds({"call": alter_answers, "engine": lie_to_engine})
    print(f"{many} answers to {len(ALL_CALLS)} functions, {many} to engines: {bad} findings")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
