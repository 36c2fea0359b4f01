"""Serves the page without herd: its files, JSON that a test sets, a stream that a test drives."""

import json
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

STATIC = Path(__file__).parents[2] / "src" / "tpuherd" / "web" / "static"
#: As the real server sends it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
Json = Any


@dataclass
class FixtureServer:
    """Answers with `content` by path; `stop` and `start` again keep the port."""

    content: dict[str, Json] = field(default_factory=dict)
    errors: dict[str, tuple[int, Json]] = field(default_factory=dict)
    posted: list[tuple[str, Json]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    port: int = 0
    listeners: dict[str, list["queue.Queue[bytes | None]"]] = field(default_factory=dict)
    running: ThreadingHTTPServer | None = None
    number: int = 0  #: of the last event sent

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        owner = self

        class Handler(PageHandler):
            server_state = owner

        self.running = PageServer(("127.0.0.1", self.port), Handler)
        self.port = self.running.server_address[1]
        threading.Thread(target=self.running.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be gone: refuse connections and cut those that are open."""
        assert self.running is not None
        self.running.shutdown()
        for waiting in self.listeners.values():
            for one in waiting:
                one.put(None)
        self.running.server_close()
        self.running = None

    def send(self, kind: str, payload: Json, *, stream: str = "/api/stream") -> None:
        """Send an event to everyone who listens to this stream."""
        self.number += 1
        text = f"id: {self.number}\nevent: {kind}\ndata: {json.dumps(payload)}\n\n"
        for one in self.listeners.get(stream, []):
            one.put(text.encode())


class PageServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class PageHandler(BaseHTTPRequestHandler):
    server_state: FixtureServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        state = self.server_state
        state.requests.append(self.path)
        try:
            if path in state.errors:
                self.answer_json(state.errors[path][1], status=state.errors[path][0])
            elif path.endswith("/stream"):
                self.answer_stream(path)
            elif path.startswith("/api/"):
                self.answer_api(path)
            else:
                self.answer_file(path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_POST(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        state = self.server_state
        state.posted.append((path, json.loads(body or b"null")))
        if path in state.errors:
            self.answer_json(state.errors[path][1], status=state.errors[path][0])
        else:
            self.answer_json(state.content.get(f"POST {path}", {"message": "done"}))

    def answer_api(self, path: str) -> None:
        content = self.server_state.content.get(path)
        if content is None:
            self.answer_json({"error": f"There is nothing at {path}.", "hint": ""}, status=404)
        else:
            self.answer_json(content)

    def answer_json(self, content: Json, *, status: int = 200) -> None:
        self.answer(json.dumps(content).encode(), "application/json", status=status)

    def answer_file(self, path: str) -> None:
        file = (STATIC / (path.lstrip("/") or "index.html")).resolve()
        if not file.is_relative_to(STATIC) or not file.is_file():
            self.answer(b"not found", "text/plain", status=404)
        else:
            self.answer(file.read_bytes(), TYPES[file.suffix])

    def answer(self, body: bytes, kind: str, *, status: int = 200) -> None:
        self.send_response(status)
        self.send_headers({"Content-Type": kind, "Content-Length": str(len(body))})
        self.wfile.write(body)

    def send_headers(self, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def answer_stream(self, path: str) -> None:
        """Server-sent events until the test stops the server or the page goes."""
        waiting: queue.Queue[bytes | None] = queue.Queue()
        self.send_response(200)
        self.send_headers({"Content-Type": "text/event-stream", "Connection": "close"})
        self.close_connection = True
        self.wfile.write(b": hello\n\n")
        listeners = self.server_state.listeners.setdefault(path, [])
        listeners.append(waiting)
        try:
            while (text := waiting.get()) is not None:
                self.wfile.write(text)
        finally:
            listeners.remove(waiting)
