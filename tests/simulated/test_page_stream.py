"""Event streams of the page, by a real server on loopback: changes, coming back, slow readers."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from time import monotonic, time
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from json_schemas import SCHEMAS
from page_schemas import PAGE_SCHEMAS

from tests.simulated.page_user import TOKEN, PageUser, page_user
from tests.unit.event_stories import StoryLog, struck
from tpuherd.accounting.goodput import GoodputState
from tpuherd.model.samples import ChipSample, HostSample, SeriesName
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.store.corruption import NAME
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogHost, LogInfo, LogStore
from tpuherd.store.sample_store import SampleStore
from tpuherd.web import live_feed
from tpuherd.web.live_feed import RESET, PageSubscription
from tpuherd.web.serve_page import listen, serve_connections
from tpuherd_host.agent.log_records import Record

PATIENCE_S = 20.0
Message = tuple[str, str, Any]  #: name, id, data


@dataclass(frozen=True)
class Stream:
    """One open event stream."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def next(self, name: str = "") -> Message:
        """The next message (of this name)."""
        async with asyncio.timeout(PATIENCE_S):
            found: dict[str, str] = {}
            while True:
                line = (await self.reader.readuntil(b"\n")).decode().rstrip("\r\n")
                key, colon, value = line.partition(": ")
                if colon and key:
                    found[key] = value
                elif not line and "event" in found:
                    if name in ("", found["event"]):
                        return found["event"], found.get("id", ""), json.loads(found["data"])
                    found = {}


@dataclass(frozen=True)
class Served:
    """A page that is served on a port, and a store to change."""

    user: PageUser
    port: int
    store: Database

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[Stream]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        lines += [f"Authorization: Bearer {TOKEN}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head, head
        try:
            yield Stream(reader, writer)
        finally:
            writer.close()

    def submit(self, job: str, copies: int = 1) -> None:
        now = time()
        stored = StoredJob(job=job, goal=Goal.RUN, document={"name": job, "copies": copies},
                           made_at=now, changed_at=now)  # fmt: skip
        facts = {"who": "ann@vm", "why": "ann@vm submitted it"}
        event = HistoryEvent(at=now, kind="job.submitted", job=job, slot="", facts=facts)
        self.store.put_job(stored, [event])


def serve(folder: Path, check: Callable[[Served], Awaitable[None]]) -> None:
    async def within() -> None:
        async with page_user(folder) as user:
            store = user.open_store()
            with listen("127.0.0.1", None) as listener:
                async with serve_connections(user.app, listener):
                    await check(Served(user, listener.getsockname()[1], store))
            store.close()

    asyncio.run(within())


def test_a_change_reaches_all_pages_at_once(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        seq = (await served.user.get("/api/overview"))["seq"]
        path = f"/api/stream?after={seq}"
        async with served.stream(path) as one, served.stream(path) as two:
            begun = monotonic()
            served.submit("gpt", copies=2)
            for page in (one, two):
                name, id, told = await page.next()
                assert (name, id) == ("changes", str(told["seq"]))
                assert told["seq"] > seq
                (job,) = told["jobs"]
                assert (job["job"], job["kind"], job["goal"]) == ("gpt", "job", "run")
                assert [row["slot"] for row in job["slot_rows"]] == ["gpt-0", "gpt-1"]
                name, _, events = await page.next()
                assert (name, events[0]["kind"]) == ("events", "job.submitted")
                assert events[0]["line"] == "job.submitted  ann@vm submitted it"
            assert monotonic() - begun < 5, "seconds on a busy machine; bench/seeing says how long"
            served.store.put_slot_messages({"gpt-1": "waits"})
            _, _, told = await one.next("changes")
            assert [row["slot"] for row in told["jobs"][0]["slot_rows"]] == ["gpt-1"]

    serve(tmp_path, check)


def test_samples_are_told_by_host(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        story = StoryLog(time() - 100)
        story.get(10, 20, 30)
        served.store.append_events(story.events)
        samples = SampleStore(served.store.folder)
        seq = (await served.user.get("/api/overview"))["seq"]
        async with served.stream(f"/api/stream?after={seq}") as page:
            host = f"{story.bid}/w0"
            sample = HostSample(host=host, job="gpt", slot="gpt-0", at=time(), cpu_percent=12.5)
            samples.put_samples([sample], [])
            name, _, told = await page.next()
            assert (name, told["hosts"][host]["cpu"]) == ("samples", 12.5)
        metrics = (await served.user.ask("/metrics")).text
        assert "tpuherd_info{" in metrics
        found = await served.user.get("/api/jobs/gpt/series?names=cpu")
        assert found["series"][0]["points"][0][2] == 12.5
        samples.close()

    serve(tmp_path, check)


def test_a_page_that_comes_back_gets_what_it_missed(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        seq = (await served.user.get("/api/overview"))["seq"]
        served.submit("gpt")
        served.submit("lr")
        served.store.remove_job("gpt")
        async with served.stream("/api/stream", **{"Last-Event-ID": str(seq)}) as page:
            _, id, told = await page.next("changes")
            assert [row["job"] for row in told["jobs"]] == ["lr"]
            assert told["removed_jobs"] in ([], ["gpt"]), "the page may not have known it"
            _, _, events = await page.next("events")
            assert [one["job"] for one in events] == ["gpt", "lr"]
        async with served.stream(f"/api/stream?after={id}") as page:
            served.submit("new")
            _, _, told = await page.next("changes")
            assert [row["job"] for row in told["jobs"]] == ["new"]
        for strange in (0, seq - 1000, int(id) + 10_000):  # before this server, and after it
            async with served.stream(f"/api/stream?after={strange}") as page:
                assert await page.next() == ("reset", "", {})

    serve(tmp_path, check)


def test_a_page_that_reads_too_slowly_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        page = PageSubscription()
        monkeypatch.setattr(live_feed, "WAITING_MAX", 1000)
        for _ in range(5):
            page.put(b"x" * 300)
        assert await page.read() == RESET + b"x" * 300
        page.put(b"more")
        assert await page.read() == b"more"
        monkeypatch.setattr(live_feed, "KEEPALIVE_S", 0.01)
        assert (await page.read()).startswith(b":")

    asyncio.run(check())


def test_a_page_that_leaves_while_it_joins_is_forgotten(tmp_path: Path) -> None:
    async def check() -> None:
        async with page_user(tmp_path) as user:
            for _ in range(20):
                with user.feed.subscribe(None):
                    pass
            await user.feed.read_overview()  # the thread has answered all of them
            await asyncio.sleep(0)
            assert user.feed.open_pages == 0
            with user.feed.subscribe(None):
                await user.feed.read_overview()
                assert bool(user.feed.open_pages)

    asyncio.run(check())


def test_a_store_that_is_removed_is_named_and_followed_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        served.submit("gpt")
        seq = (await served.user.get("/api/overview"))["seq"]
        async with served.stream(f"/api/stream?after={seq}") as page:
            rmtree(served.store.folder)
            assert (await page.next())[0] == "reset"
            now = await served.user.get("/api/overview")
            assert now["jobs"] == [], "a new store is empty"
            assert now["seq"] > seq

    serve(tmp_path, check)


@pytest.mark.parametrize("harm", ["newer", "folder is a file"])
def test_a_store_that_cannot_be_read_is_a_sentence(tmp_path: Path, harm: str) -> None:
    async def check(served: Served) -> None:
        served.submit("gpt")
        await served.user.get("/api/overview")
        folder = served.store.folder
        if harm == "newer":
            with closing(sqlite3.connect(folder / NAME)) as newer:
                newer.execute("PRAGMA user_version = 99")
        else:
            rmtree(folder)
            folder.touch()
        answer = await served.user.ask("/api/overview")
        assert answer.status_code == 503
        assert set(answer.json()) == {"error", "hint"}
        assert str(folder) in answer.text or "newer herd" in answer.text
        assert (await served.user.ask("/app.js")).status_code == 200, "the page itself works"
        async with served.stream("/api/stream") as page:
            assert (await page.next())[0] == "reset"

    serve(tmp_path, check)


def test_a_damaged_store_is_let_go_and_set_aside(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        served.submit("gpt")
        folder = served.store.folder
        seq = (await served.user.get("/api/overview"))["seq"]
        async with served.stream(f"/api/stream?after={seq}") as page:
            served.store.close()
            content = bytearray((folder / "store.db").read_bytes())
            content[4096:8192] = bytes(4096)
            (folder / "store.db").write_bytes(content)
            (folder / "store.damaged").touch()
            assert (await page.next())[0] == "reset"
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await served.user.ask("/api/overview")).status_code == 503:
                    await asyncio.sleep(0.05)
            (notice,) = answer.json()["notices"]
            assert "damaged" in notice

    serve(tmp_path, check)


PLACE = LogHost(zone="z", node="gpt-0-g1-7kq", worker=0, incarnation="i", bid="gpt-0-g1-7kq")


def test_every_answer_is_as_documented(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        story = struck()
        late = time() - story.now - 1
        story.events = [replace(event, at=event.at + late) for event in story.events]
        seq = (await served.user.get("/api/overview"))["seq"]
        async with served.stream(f"/api/stream?after={seq}") as page:
            served.submit("gpt", copies=2)
            served.store.append_events(story.events)
            served.store.put_slot_messages({"gpt-0": "waits <img src=x onerror=alert(1)>"})
            host = f"{story.bid}/w0"
            chip = ChipSample(hbm_used=1, hbm_total=2, duty_percent=float("nan"))
            sample = HostSample(host=host, job="gpt", slot="gpt-0", at=time(), chips=(chip,))
            samples = SampleStore(served.store.folder)
            loss = SeriesName(job="gpt", slot="gpt-0", name="loss")
            samples.put_samples([sample], [(loss, time(), float("inf"))])
            seen: set[str] = set()
            while "samples" not in seen or "events" not in seen:
                name, _, told = await page.next()
                fits(f"GET /api/stream, {name}", told)
                seen.add(name)
        for path in ("overview", "jobs/gpt", "jobs/gpt/series", "events?job=gpt", "capacity"):
            answer = await served.user.ask(f"/api/{path}")
            assert answer.headers["content-type"] == "application/json", "never HTML"
            name = path.partition("?")[0].replace("gpt", "JOB")
            fits(f"GET /api/{name}", answer.json())
        for path, command in (("cost/gpt", "herd cost JOB"), ("cost?days=3", "herd cost")):
            found = await served.user.get(f"/api/{path}")
            if path == "cost/gpt":  # beside its values, the words for its states
                assert {row["state"] for row in found.pop("states")} == set(map(str, GoodputState))
            jsonschema.validate(found, SCHEMAS[f"{command} --json"])
        samples.close()

    serve(tmp_path, check)


def fits(request: str, content: Any) -> None:
    jsonschema.validate(content, PAGE_SCHEMAS[request])


def test_logs_come_in_pages_and_as_they_are_written(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        served.submit("gpt")
        at = time() + 1
        shelf = LogStore(served.user.context.scope.logs_folder)
        title = "python3 train.py"
        shelf.write_info(LogInfo(id="gpt-0-a1-7kq", kind="attempt", title=title, target="gpt-0",
                                 started=at, places=(PLACE,), number=1))  # fmt: skip
        writer = shelf.open_writer("gpt-0-a1-7kq", PLACE)
        for number in range(1000):
            text = f"\x1b[32mstep {number}\x1b[0m <b>&\n".encode()
            writer.put(writer.offset, Record(at + number / 1000, 1, text))
        writer.flush()
        path = "/api/jobs/gpt/logs"
        found = await served.user.get(f"{path}?lines=300&slot=gpt-0&worker=0")
        assert [line["text"] for line in found["lines"]] == [
            f"step {n} <b>&" for n in range(700, 1000)
        ]
        fits("GET /api/jobs/JOB/logs", found)
        assert found["more"]
        before = found["lines"][0]["id"]
        rest = await served.user.get(f"{path}?lines=5000&before={before}")
        assert len(rest["lines"]) == 700
        assert not rest["more"]
        last = found["lines"][-1]
        async with served.stream(f"{path}/stream?after={last['id']}") as page:
            writer.put(writer.offset, Record(at + 2, 2, b"new\n"))
            writer.flush()
            seen: list[Any] = []
            while not seen or seen[-1]["text"] != "new":
                seen += (await page.next("lines"))[2]
            fits("GET /api/jobs/JOB/logs/stream, lines", seen)
            assert seen[-1]["stream"] == "stderr"
            assert last["id"] not in {line["id"] for line in seen}
        whole = await served.user.ask(f"{path}/download")
        assert whole.headers["content-disposition"] == 'attachment; filename="gpt.log"'
        assert whole.text.count("step ") == 1000
        assert (await served.user.get(f"{path}?worker=7"))["lines"] == []
        writer.close()

    serve(tmp_path, check)
