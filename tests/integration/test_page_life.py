"""The page of a running world: jobs are changed and weather is made as by the commands."""

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner, owner
from tests.integration.test_page_process import read_address

pytestmark = pytest.mark.real


class Page:
    """Asks `herd ui` with its token."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def does(self, path: str, body: Any) -> str:
        status, answer = self.ask("POST", path, body)
        assert status == 200, answer
        return str(answer["message"])

    def slots(self) -> dict[str, Any]:
        _, found = self.ask("GET", "/api/overview")
        return {row["slot"]: row for job in found["jobs"] for row in job["slot_rows"]}


def test_a_job_is_changed_from_the_page_as_by_the_commands() -> None:
    with owner() as user, user.begun("ui", "--no-browser") as process:
        page = Page(*read_address(process))
        status, world = page.ask("GET", "/api/world")
        assert (status, world["nodes"]) == (200, [])
        assert {"preempt", "drought"} <= {kind["name"] for kind in world["can"]}
        user.job("gpt", "while :; do echo step; sleep 1; done", accelerator="v4-8")
        until(lambda: page.slots()["gpt-0"]["phase"] == "running", "gpt runs", seconds=120)
        node = page.slots()["gpt-0"]["node"]
        assert page.does("/api/world/preempt", {"target": node}).startswith("preempt: ")
        until(
            lambda: page.slots()["gpt-0"]["node"] not in (None, node), "another node", seconds=120
        )
        assert page.does("/api/jobs/gpt/scale", {"count": 2}) == "Scaled gpt to 2 copies"
        assert page.does("/api/jobs/gpt/scale", {"count": 2}) == "gpt already has 2 copies"
        assert set(page.slots()) == {"gpt-0", "gpt-1"}
        assert page.does("/api/jobs/gpt/stop", {}) == "Stopped gpt"
        assert page.does("/api/jobs/gpt/stop", {}) == "gpt is already stopped"
        assert page.does("/api/jobs/gpt/resume", {}) == "Resumed gpt"
        for body in ({"count": 0}, {"count": "2"}, {"count": True}, {}):
            status, answer = page.ask("POST", "/api/jobs/gpt/scale", body)
            assert (status, answer["error"]) == (
                400,
                "count must be a whole number from 1 to 10000",
            )
        for verb in ("stop", "resume", "scale", "down"):
            status, answer = page.ask("POST", f"/api/jobs/gtp/{verb}", {"count": 1})
            assert (status, answer["error"]) == (404, "there is no job gtp: did you mean gpt?")
        said = [event.facts["why"] for event in user.events("job.stopped", "job.changed")]
        assert len(said) == 2
        assert all("@" in why for why in said), "who did it"
        assert page.ask("GET", "/api/quota")[1]["limits"]
        assert page.does("/api/jobs/gpt/down", {}).startswith("Deleting gpt")
        until(lambda: not page.slots(), "all is gone", seconds=120)
        check_end(user, page)


def check_end(user: Owner, page: Page) -> None:
    """Without its world, and without an engine, the page shows what is stored."""
    user.herd("engine", "stop")
    until(
        lambda: not page.ask("GET", "/api/overview")[1]["engine"]["running"],
        "no engine",
        seconds=60,
    )
    user.world.herd("stop")
    status, answer = page.ask("GET", "/api/world")
    assert (status, "is not running" in answer["error"]) == (502, True)
    status, answer = page.ask("GET", "/api/events")
    assert (status, answer["events"][-1]["kind"]) == (200, "engine.stopped")
