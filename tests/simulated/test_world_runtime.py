"""The world's runtime in virtual time: times of requests, scheduled events, notified watchers."""

import asyncio
import errno
import json
from typing import Any

import httpx2
import pytest

from tests.simulated.in_process_http import InProcessTransport
from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd_sim.handle import new_world
from tpuherd_sim.http.app import create_app
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.http_types import Request, Response
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import Settings

START = 1_800_000_000.0
NODES = "/v2/projects/demo/locations/us-central2-b/nodes"
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


def fresh() -> World:
    return new_world(Settings(seed=1, created=START))


def ask(live_world: LiveWorld, method: str, path: str, body: Any = None) -> Response:
    path, _, query = path.partition("?")
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    return live_world.handle_request(Request(method=method, path=path, query=query, body=content))


def state(live_world: LiveWorld, name: str) -> str:
    answer = ask(live_world, "GET", f"{NODES}/{name}")
    return str(json.loads(answer.body)["state"])


class StandingClock(LoopClock):
    """A clock that somebody sets."""

    def __init__(self, at: float) -> None:
        super().__init__(at)
        self.at = at

    def now(self) -> float:
        return self.at


def test_due_events_happen_without_a_request() -> None:
    async def main() -> tuple[list[str], float]:
        live_world = LiveWorld(fresh(), LoopClock(START))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(live_world.run())
            ask(live_world, "POST", f"{NODES}?nodeId=a", NODE)
            await live_world.wait_for_changed_hosts()
            while live_world.world.nodes["us-central2-b/a"].state != "READY":
                await live_world.wait_for_changed_hosts()
            at = asyncio.get_running_loop().time()
            running.cancel()
        return [note.name for note in live_world.world.log], at

    log, at = run(main())
    assert log
    assert 10 < at < 1000  # as long as a real node takes


def test_an_earlier_event_wakes_the_runtime_from_a_longer_sleep() -> None:
    async def main() -> float:
        live_world = LiveWorld(fresh(), LoopClock(START))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(live_world.run())
            ask(live_world, "POST", "/sim/v1/scenario", {"steps": [late("clear", 7200)]})
            await asyncio.sleep(1)
            ask(live_world, "POST", "/sim/v1/scenario", {"steps": [late("http-error", 5)]})
            lines = len(live_world.world.log)
            await live_world.wait_for_log_lines(lines)
            at = asyncio.get_running_loop().time()
            running.cancel()
        return at

    def late(do: str, at: float) -> dict[str, Any]:
        return {"do": do, "at_s": at, **({"rule": "all"} if do == "clear" else {})}

    assert run(main()) == pytest.approx(6.0, abs=0.01)


def test_time_never_goes_backwards() -> None:
    clock = StandingClock(START + 100)
    live_world = LiveWorld(fresh(), clock)
    assert live_world.current_time() == START + 100
    clock.at = START
    assert live_world.current_time() == START + 100
    ask(live_world, "POST", f"{NODES}?nodeId=a", NODE)
    assert live_world.world.nodes["us-central2-b/a"].created == START + 100


def test_a_watcher_of_one_host_hears_only_its_changes() -> None:
    async def main() -> tuple[bool, bool]:
        live_world = LiveWorld(fresh(), LoopClock(START))
        for name in ("a", "b"):
            ask(live_world, "POST", f"{NODES}?nodeId={name}", NODE)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(live_world.run())
            while {state(live_world, "a"), state(live_world, "b")} != {"READY"}:
                await live_world.wait_for_changed_hosts()
            keys = {view.node: key for key, view in live_world.host_views().items()}
            hears_a = group.create_task(live_world.wait_for_change(keys["a"]))
            hears_b = group.create_task(live_world.wait_for_change(keys["b"]))
            await asyncio.sleep(0)
            ask(live_world, "POST", "/sim/v1/weather/skew", {"target": "a", "seconds": 5})
            await asyncio.sleep(1)
            done = hears_a.done(), hears_b.done()
            hears_b.cancel()
            running.cancel()
        return done

    assert run(main()) == (True, False)


class FullDisk:
    """A journal for which there is no room."""

    def write(self, at: float, request: Request) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_change_that_cannot_be_recorded_is_not_made() -> None:
    live_world = LiveWorld(fresh(), StandingClock(START), FullDisk())
    answer = ask(live_world, "POST", f"{NODES}?nodeId=a", NODE)
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["status"]) == (503, "UNAVAILABLE")
    assert "No space left on device" in error["message"]
    assert live_world.world.nodes == {}
    assert ask(live_world, "GET", NODES).status == 200


# -- the app, in one process ----------------------------------------------------------------------


async def client(live_world: LiveWorld, clock: LoopClock) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=InProcessTransport(create_app(live_world, clock)), base_url="http://world"
    )


def test_every_answer_has_googles_headers() -> None:
    async def main() -> httpx2.Response:
        clock = LoopClock(START)
        async with await client(LiveWorld(fresh(), clock), clock) as http:
            return await http.post(f"{NODES}?nodeId=a", json=NODE)

    answer = run(main())
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    assert answer.headers["content-length"] == str(len(answer.content))
    assert answer.headers["date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
    assert answer.json()["done"] is False


def test_a_lost_answer_is_a_broken_connection_after_the_effect() -> None:
    async def main() -> str:
        clock = LoopClock(START)
        live_world = LiveWorld(fresh(), clock)
        async with await client(live_world, clock) as http:
            await http.post("/sim/v1/weather/lost-response", json={"times": 1})
            with pytest.raises(httpx2.TransportError):
                await http.post(f"{NODES}?nodeId=a", json=NODE)
            return str((await http.get(f"{NODES}/a")).json()["state"])

    assert run(main()) == "CREATING"


def test_a_delayed_answer_takes_its_time() -> None:
    async def main() -> tuple[int, float]:
        clock = LoopClock(START)
        async with await client(LiveWorld(fresh(), clock), clock) as http:
            await http.post("/sim/v1/weather/delay", json={"seconds": 30, "times": 1})
            before = clock.now()
            answer = await http.get(NODES)
            return answer.status_code, clock.now() - before

    status, took = run(main())
    assert status == 200
    assert took == pytest.approx(30.0, abs=0.01)


def test_credentials_are_not_journalled() -> None:
    class Ear:
        """A journal in memory."""

        def __init__(self) -> None:
            self.heard: list[Request] = []

        def write(self, at: float, request: Request) -> None:
            self.heard.append(request)

    async def main() -> Ear:
        clock, ear = LoopClock(START), Ear()
        async with await client(LiveWorld(fresh(), clock, ear), clock) as http:
            secret = {"Authorization": "Bearer ya29.secret", "X-Goog-Api-Key": "secret"}
            await http.post(f"{NODES}?nodeId=a", json=NODE, headers=secret)
        return ear

    [request] = run(main()).heard
    assert "secret" not in repr(request)


def test_an_endless_body_is_refused() -> None:
    async def main() -> int:
        clock = LoopClock(START)
        async with await client(LiveWorld(fresh(), clock), clock) as http:
            return (await http.post(f"{NODES}?nodeId=a", content=b"x" * (17 << 20))).status_code

    assert run(main()) == 413
