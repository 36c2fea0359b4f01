"""A page without a browser: its app in this process, a store in a folder, and requests to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tpuherd.clock import WallClock
from tpuherd.errors import InvalidInput
from tpuherd.settings.folders import LocalFolders
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.database import Database
from tpuherd.web.access_guard import AccessGuard, AccessRules
from tpuherd.web.live_feed import LiveFeed
from tpuherd.web.page_app import create_page_app
from tpuherd.web.page_context import PageContext, PageServices, WorldControl

TOKEN = "t0k3n-of-43-characters-as-the-server-makes-"
SESSION = "s3ss10n-of-one-process"
RULES = AccessRules(token=TOKEN, session=SESSION, port=4373)
HOST = "http://127.0.0.1:4373"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class ToyWorld:
    """A world with one kind of weather."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Mapping[str, Any]]] = []

    def read_world(self) -> Mapping[str, Any]:
        return {"nodes": [], "rules": []}

    def make_weather(self, kind: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        if kind != "preempt":
            raise InvalidInput(f"{kind!r} is not a kind of weather")
        self.made.append((kind, given))
        return {"message": f"preempt: {given['target']}", "done": []}


@dataclass(frozen=True)
class PageUser:
    """A page, and who asks it."""

    context: PageContext
    feed: LiveFeed
    app: AccessGuard

    async def ask(
        self, path: str, *, method: str = "GET", body: Any = None, **headers: str | None
    ) -> httpx2.Response:
        """One request with the token; a header of None is left out, `body` may be bytes."""
        sent: dict[str, str | None] = {**BEARER, "host": "127.0.0.1:4373"}
        if body is not None:
            sent["content-type"] = "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if "authorization" in sent:
            del sent["Authorization"]
        known = {name: value for name, value in sent.items() if value is not None}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.app)) as client:
            return await client.request(method, f"{HOST}{path}", content=content, headers=known)

    async def get(self, path: str) -> Any:
        """The JSON of a good answer."""
        answer = await self.ask(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def open_store(self) -> Database:
        return self.context.open_store()


@asynccontextmanager
async def page_user(folder: Path, *, world: WorldControl | None = None) -> AsyncIterator[PageUser]:
    """The page of a project whose store is in this folder."""
    folders = LocalFolders(config=folder / "c", state=folder / "s", runtime=folder / "r")
    context = PageContext(
        scope=ProjectScope(world=None, project="demo", folders=folders),
        environ={"HOME": str(folder)},
        name="",
        project="demo",
        clock=WallClock(),
        world=world,
        static=folder / "static",
    )
    context.static.mkdir(exist_ok=True)
    (context.static / "index.html").write_text("<!doctype html><title>tpuherd</title>")
    (context.static / "app.js").write_text("export {}")
    feed = LiveFeed(context.open_store, context.clock)
    app = AccessGuard(create_page_app(PageServices(context=context, feed=feed)), RULES)
    running = asyncio.ensure_future(feed.run())
    try:
        yield PageUser(context, feed, app)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


__all__ = ["BEARER", "HOST", "RULES", "TOKEN", "PageUser", "ToyWorld", "page_user"]
