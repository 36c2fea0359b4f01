"""The output of a job's hosts: in pages, as it comes, and as a file."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tpuherd.commands.find_logs import HostLog, LogQuery, find_logs, submission_times
from tpuherd.commands.log_pages import (
    LINES_MAX,
    LineId,
    LineReader,
    LogTail,
    PageLine,
    parse_line_id,
    read_log_page,
)
from tpuherd.errors import NotFound
from tpuherd.store.log_store import COMMAND, LogCursor, LogStore
from tpuherd.targets import NAME
from tpuherd.web.json_answers import BadRequest, encode_json, json_answer, read_number
from tpuherd.web.page_context import PageContext, PageServices

LINES = 500  #: of a page
LOOK_S = 0.3
RELIST_S = 3.0  #: how often to look for logs of new attempts
KEEPALIVE_S = 15.0
STREAMS_MAX = 16  #: open at once
WORKERS_MAX = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LogChoice:
    """The logs that a request asks for."""

    job: str
    slot: str
    worker: int | None

    @property
    def file_name(self) -> str:
        parts = [self.slot or self.job]
        parts += [] if self.worker is None else [f"w{self.worker}"]
        return f"{'-'.join(parts)}.log"


def read_choice(request: Request) -> LogChoice:
    job, slot = request.path_params["job"], request.query_params.get("slot", "")
    if NAME.fullmatch(job) is None or (slot and slot.rpartition("-")[0] != job):
        raise NotFound(f"{(slot or job)[:80]!r} is not a slot of {job[:80]!r}")
    worker = read_number(request, "worker", least=0, most=WORKERS_MAX)
    return LogChoice(job=job, slot=slot, worker=None if worker is None else int(worker))


def list_host_logs(choice: LogChoice, context: PageContext) -> tuple[LogStore, list[HostLog]]:
    """Return the logs of a job's attempts and setups since it was submitted, the oldest first."""
    shelf = LogStore(context.scope.logs_folder)
    target = choice.slot or choice.job
    begun = submission_times(target, context.scope, context.clock.now())
    logs = find_logs(LogQuery(target=target), shelf, begun)
    return shelf, [
        log
        for log in logs
        if log.about.kind != COMMAND and choice.worker in (None, LineReader(log).worker)
    ]


def line_row(line: PageLine) -> dict[str, Any]:
    return {
        "id": str(line.id),
        "at": line.id.at,
        "slot": line.slot,
        "worker": line.worker,
        "stream": line.stream,
        "text": line.text,
    }


def log_routes(services: PageServices) -> list[Route]:
    context = services.context
    open_streams: set[object] = set()

    async def page(request: Request) -> Response:
        choice = read_choice(request)
        lines = int(read_number(request, "lines", least=1, most=LINES_MAX) or LINES)
        said = request.query_params.get("before", "")
        before = parse_line_id(said) if said else None

        def work() -> dict[str, Any]:
            shelf, logs = list_host_logs(choice, context)
            found = read_log_page(logs, shelf, lines, before)
            return {"lines": [line_row(line) for line in found.lines], "more": found.more}

        return json_answer(await anyio.to_thread.run_sync(work))

    async def stream(request: Request) -> Response:
        choice = read_choice(request)
        said = request.headers.get("last-event-id", "") or request.query_params.get("after", "")
        after = parse_line_id(said) if said else None
        if len(open_streams) >= STREAMS_MAX:
            raise BadRequest(429, f"{STREAMS_MAX} logs are open already: close one")
        mark = object()

        async def follow_lines() -> AsyncIterator[bytes]:
            open_streams.add(mark)
            try:
                async for message in follow_logs(choice, context, after):
                    yield message
            finally:
                open_streams.discard(mark)

        return StreamingResponse(
            follow_lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def download(request: Request) -> Response:
        return await download_logs(read_choice(request), context)

    return [
        Route("/api/jobs/{job}/logs", page),
        Route("/api/jobs/{job}/logs/stream", stream),
        Route("/api/jobs/{job}/logs/download", download),
    ]


async def download_logs(choice: LogChoice, context: PageContext) -> Response:
    """Return everything, read while it is sent."""
    shelf, logs = await anyio.to_thread.run_sync(list_host_logs, choice, context)
    if not logs:
        raise NotFound(f"there is no log of {choice.slot or choice.job}")
    return StreamingResponse(
        log_text(shelf, logs),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{choice.file_name}"'},
    )


async def follow_logs(
    choice: LogChoice, context: PageContext, after: LineId | None
) -> AsyncIterator[bytes]:
    """Yield new lines as they come, at the pace of the reader."""
    clock = context.clock
    shelf, logs = await anyio.to_thread.run_sync(list_host_logs, choice, context)
    tail = LogTail(shelf, after)
    listed_at = told_at = clock.now()
    yield b"retry: 1000\n\n"
    while True:
        lines = await anyio.to_thread.run_sync(tail.read_new, logs)
        now = clock.now()
        if lines:
            content = encode_json([line_row(line) for line in lines])
            yield b"event: lines\nid: %s\ndata: %s\n\n" % (str(lines[-1].id).encode(), content)
            told_at = now
        elif not 0 <= now - told_at < KEEPALIVE_S:
            yield b": still here\n\n"
            told_at = now
        if len(lines) < LINES_MAX:
            await clock.sleep(LOOK_S)
        if not 0 <= now - listed_at < RELIST_S:
            _, logs = await anyio.to_thread.run_sync(list_host_logs, choice, context)
            listed_at = now


def log_text(shelf: LogStore, logs: Sequence[HostLog]) -> Iterator[bytes]:
    """Yield the whole output of each log, one after the other, as it was written."""
    for log in logs:
        yield f"-- {log.about.title} ({log.about.id}) on {log.label}\n".encode(errors="replace")
        last = b"\n"
        for _, _, text in LogCursor(shelf).read_new(log.about.id, log.place):
            last = text or last
            yield text
        if not last.endswith(b"\n"):
            yield b"\n"
