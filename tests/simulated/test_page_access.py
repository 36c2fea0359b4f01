"""Who may use the page: only who has the token, and no other page of the same browser."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.page_user import SESSION, TOKEN, PageUser, ToyWorld, page_user
from tpuherd.web.access_token import NAME, kept_token

Headers = dict[str, Any]


def run(folder: Path, check: Any) -> None:
    async def within() -> None:
        async with page_user(folder, world=ToyWorld()) as user:
            await check(user)

    asyncio.run(within())


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/overview", "/api/stream", "/api/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": None},
        {"authorization": f"Bearer {TOKEN[:-1]}x"},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": None, "cookie": f"herd_ui_4374={TOKEN}"},  # of another port
        {"authorization": None, "cookie": "herd_ui_4373=old"},
        {"authorization": None, "cookie": f"herd_ui_4373={TOKEN}"},  # of an earlier version
        {"authorization": f"Bearer {SESSION}"},
        {"authorization": None, "cookie": 'x="; herd_ui_4373'},
    ],
)
def test_without_the_token_nothing_is_shown(tmp_path: Path, path: str, headers: Headers) -> None:
    async def check(user: PageUser) -> None:
        answer = await user.ask(path, **headers)
        assert answer.status_code == 401
        assert TOKEN not in answer.text
        if path == "/":
            assert "herd ui" in answer.text
        else:
            assert answer.json() == {
                "error": "the token is missing or no longer valid",
                "hint": "run `herd ui` again",
            }

    run(tmp_path, check)


def test_the_printed_address_leaves_a_cookie_that_opens_the_page(tmp_path: Path) -> None:
    async def check(user: PageUser) -> None:
        first = await user.ask(f"/?token={TOKEN}", authorization=None)
        assert (first.status_code, first.headers["location"]) == (303, "/")
        cookie = first.headers["set-cookie"]
        assert cookie.startswith(f"herd_ui_4373={SESSION};") and TOKEN not in cookie
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        ours: Headers = {
            "authorization": None,
            "cookie": f"broken; a=b; herd_ui_4373={SESSION}; c=d",
        }
        shown = await user.ask("/", **ours)
        assert (shown.status_code, shown.text) == (
            200,
            "<!doctype html><title>tpuherd</title>",
        )
        assert (await user.ask("/api/overview", **ours)).status_code == 200
        linked = await user.ask(
            f"/?token={TOKEN}",
            authorization=None,
            sec_fetch_site="cross-site",
            sec_fetch_mode="navigate",
        )
        assert linked.status_code == 200, "a redirect from a foreign page would lose the cookie"
        assert 'http-equiv="refresh"' in linked.text
        assert (await user.ask("/?token=old", authorization=None)).status_code == 401

    run(tmp_path, check)


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"host": "localhost:4373"}, True),
        ({"host": "localhost:9000"}, True),  # the other end of a tunnel
        ({"host": "[::1]:4373"}, True),
        ({"host": "127.0.0.1"}, True),
        ({"host": "evil.example:4373"}, False),  # a name that its owner pointed to 127.0.0.1
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"host": "10.0.0.7:4373"}, False),
        ({"host": ""}, False),
        ({"host": "["}, False),
        ({"origin": "http://127.0.0.1:4373"}, True),
        ({"origin": "http://127.0.0.1:3000"}, False),  # another server of this machine
        ({"origin": "https://127.0.0.1:4373"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://localhost:4373"}, False),  # not what the request calls us
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}, False),
        ({"sec_fetch_site": "same-site", "sec_fetch_mode": "cors"}, False),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"}, True),
        ({"sec_fetch_site": "none", "sec_fetch_mode": "navigate"}, True),
    ],
)
def test_foreign_names_and_pages_are_refused(
    tmp_path: Path, headers: Headers, allowed: bool
) -> None:
    async def check(user: PageUser) -> None:
        for path, method, body in (
            ("/api/overview", "GET", None),
            ("/api/world/preempt", "POST", {"target": "gpt"}),
        ):
            answer = await user.ask(path, method=method, body=body, **headers)
            assert answer.status_code == (200 if allowed else 403), answer.text
        world = user.context.world
        assert isinstance(world, ToyWorld)
        assert bool(world.made) == allowed

    run(tmp_path, check)


def test_every_answer_keeps_foreign_content_out(tmp_path: Path) -> None:
    async def check(user: PageUser) -> None:
        for path in ("/", "/app.js", "/api/overview", "/api/nothing", "/nothing.js"):
            headers = (await user.ask(path)).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["cache-control"] == "no-cache"
            assert not any(name.startswith("access-control") for name in headers)
        assert (await user.ask("/app.js")).headers["content-type"].startswith("text/javascript")

    run(tmp_path, check)


@pytest.mark.parametrize(
    "path",
    [
        "/../s/ui-token",
        "/%2e%2e/s/ui-token",
        "/..%2fs%2fui-token",
        "/%2e%2e%2f%2e%2e%2fetc/passwd",
        "//etc/passwd",
        "/app.js/..%2f..%2fs/ui-token",
        "/\\..\\s\\ui-token",
    ],
)
def test_static_files_come_from_their_folder_alone(tmp_path: Path, path: str) -> None:
    async def check(user: PageUser) -> None:
        kept_token(user.context.scope.folders.state)
        answer = await user.ask(path)
        assert answer.status_code in (404, 401, 403), answer.text
        assert "root:" not in answer.text

    run(tmp_path, check)


def test_the_token_is_kept_and_private(tmp_path: Path) -> None:
    token = kept_token(tmp_path)
    assert len(token) == 43
    assert kept_token(tmp_path) == token, "open pages outlive a restart"
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    (tmp_path / NAME).chmod(0o644)
    other = kept_token(tmp_path)
    assert other != token, "others may have read it"
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    (tmp_path / NAME).write_text("short")
    assert len(kept_token(tmp_path)) == 43


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"{", 400, "the body is not JSON"),
        (b"[1]", 400, "the body must be a JSON object"),
        (b"[" * 60_000, 400, "the body is not JSON"),
        (b'"' + b"x" * 70_000 + b'"', 413, "the request has more than 65536 bytes"),
        (b'{"target": "gpt"}', 200, ""),
        (b"\xff", 400, "the body is not JSON"),
    ],
)
def test_bodies_are_small_json_objects(
    tmp_path: Path, body: bytes, status: int, sentence: str
) -> None:
    async def check(user: PageUser) -> None:
        answer = await user.ask("/api/world/preempt", method="POST", body=body)
        assert answer.status_code == status
        assert answer.json().get("error", "") == sentence
        plain = await user.ask(
            "/api/world/preempt", method="POST", body=body, content_type="text/plain"
        )
        assert plain.status_code == 415, "what a form can send is not JSON"

    run(tmp_path, check)


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/jobs/<b>x", 404, "there is no job <b>x: no jobs exist"),
        ("/api/jobs/gpt/logs?slot=lr-0", 404, "'lr-0' is not a slot of 'gpt'"),
        ("/api/jobs/gpt/logs?lines=0", 400, "lines must be a number from 1 to 5000"),
        ("/api/jobs/gpt/logs?before=x", 400, "'x' is not the id of a line"),
        ("/api/jobs/..%2f..%2fetc/logs", 404, "the page has no such part"),
        ("/api/jobs/..%5c/logs", 404, "'..\\\\' is not a slot of '..\\\\'"),
        ("/api/events?before=nan", 400, "before must be a number from 0 to 9.0072e+15"),
        ("/api/events?job=gpt", 404, "there is no job gpt: no jobs exist"),
        ("/api/sweeps/lr", 404, "there is no job lr: no jobs exist"),
        ("/api/stream?after=-1", 400, "after must be a number from 0 to 9.0072e+15"),
        ("/api/jobs/gpt/logs/download", 404, "there is no log of gpt"),
    ],
)
def test_what_is_not_there_is_a_sentence(
    tmp_path: Path, path: str, status: int, sentence: str
) -> None:
    async def check(user: PageUser) -> None:
        answer = await user.ask(path)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json", "never HTML"
        assert answer.json()["error"] == sentence

    run(tmp_path, check)


def test_outside_a_world_there_is_no_weather(tmp_path: Path) -> None:
    async def check() -> None:
        async with page_user(tmp_path) as user:
            for path, method in (("/api/world", "GET"), ("/api/world/preempt", "POST")):
                answer = await user.ask(path, method=method, body={} if method == "POST" else None)
                assert answer.status_code == 404
            assert (await user.ask("/api/overview")).json()["world"] is False

    asyncio.run(check())
