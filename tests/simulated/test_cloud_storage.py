"""The client of Cloud Storage for hosts, with a server that cuts, refuses and loses things."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tpuherd_host import cloud_storage
from tpuherd_host.cloud_storage import (
    CHUNK,
    SMALL,
    CloudStorage,
    TemporarilyUnreachable,
    Unreachable,
)

LARGE = bytes(range(256)) * (SMALL // 256 + 1000)
URL = "gs://mine/runs"


class Server(BaseHTTPRequestHandler):
    """As much of Cloud Storage as the client asks for; `faults` are what goes wrong next."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects: ClassVar[dict[str, bytes]] = {}
    halves: ClassVar[dict[str, bytearray]] = {}  #: uploads that are not complete
    faults: ClassVar[list[str]] = []
    log: ClassVar[list[str]] = []  #: method and range of each request
    connections: ClassVar[list[object]] = []
    knows_parts: ClassVar[bool] = True

    def setup(self) -> None:
        super().setup()
        self.connections.append(self)

    def begin(self) -> str:
        """Record a request, and return what goes wrong with it."""
        self.log.append(
            f"{self.command} {self.headers['Range'] or self.headers['Content-Range'] or ''}".strip()
        )
        return self.faults.pop(0) if self.faults else ""

    def name(self) -> str:
        return parse_qs(urlsplit(self.path).query)["name"][0]

    def do_POST(self) -> None:
        fault, body = self.begin(), self.rfile.read(int(self.headers["Content-Length"]))
        if fault == "lost":
            self.objects.setdefault(self.name(), body)
            self.close_connection = True
        elif fault or "/b/mine/" not in self.path:
            self.fail(fault or "403")
        elif "uploadType=resumable" in self.path:
            self.halves[self.name()] = bytearray()
            self.answer(200, b"", Location=f"http://elsewhere{self.path}&upload_id=7")
        elif "ifGenerationMatch=0" in self.path and self.name() in self.objects:
            self.fail("412")
        else:
            self.objects[self.name()] = body
            self.answer(200, b"{}")

    def do_DELETE(self) -> None:
        fault, name = self.begin(), unquote(urlsplit(self.path).path.rpartition("/o/")[2])
        if fault or name not in self.objects:
            self.fail(fault or "404")
        else:
            del self.objects[name]
            self.answer(204, b"")

    def list_names(self) -> None:
        """Answer two names a page."""
        asked = parse_qs(urlsplit(self.path).query)
        prefix, after = asked.get("prefix", [""])[0], asked.get("pageToken", [""])[0]
        names = sorted(n for n in list(self.objects) if n.startswith(prefix) and n > after)
        items = [{"name": n, "size": str(len(self.objects[n]))} for n in names[:2]]
        more = {"nextPageToken": names[1]} if len(names) > 2 else {}
        self.answer(200, json.dumps({"items": items, **more}).encode())

    def do_PUT(self) -> None:
        fault, size = self.begin(), int(self.headers["Content-Length"])
        half, name = self.halves[self.name()], self.name()
        first = self.headers["Content-Range"].removeprefix("bytes ").partition("-")[0]
        assert size == 0 or int(first) == len(half), "nothing is sent twice, nothing left out"
        total = self.headers["Content-Range"].rpartition("/")[2]
        if fault == "cut":
            half += self.rfile.read(size // 2)
            self.close_connection = True
            return
        taken = self.rfile.read(size)
        if fault == "less":
            taken = taken[: 256 << 10]
        elif fault and fault != "lost":
            self.fail(fault)
            return
        half += taken
        if total.isdigit() and len(half) == int(total):
            self.objects[name] = bytes(half)
        if fault == "lost":
            self.close_connection = True
        elif name in self.objects:
            self.answer(200, b"{}")
        else:
            self.answer(308, b"", 0, **({"Range": f"bytes=0-{len(half) - 1}"} if half else {}))

    def do_GET(self) -> None:
        fault = self.begin()
        if urlsplit(self.path).path.endswith("/o") and not fault:
            self.list_names()
            return
        content = self.objects.get(unquote(urlsplit(self.path).path.rpartition("/o/")[2]))
        if content is None or (fault and fault != "cut"):
            self.fail(fault or "404")
            return
        part = self.headers["Range"] if self.knows_parts else None
        first, _, last = (part or "bytes=0-").partition("=")[2].partition("-")
        content = content[int(first) : int(last) + 1 if last else None]
        self.answer(206 if part else 200, content, cut=len(content) // 2 if fault else 0)

    def fail(self, fault: str) -> None:
        if fault.isdigit():
            self.answer(int(fault), b'{"error": {"message": "no"}}')
        self.close_connection = True

    def answer(self, status: int, body: bytes, cut: int = 0, **headers: str) -> None:
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])
        self.close_connection |= cut > 0

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class QuickTime:
    """A clock that sleeping sets forward."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def serving() -> Iterator[str]:
    """A server without objects; its address, as hosts are told it."""
    for kept in (Server.objects, Server.halves, Server.faults, Server.log, Server.connections):
        kept.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> QuickTime:
    clock = QuickTime()
    monkeypatch.setattr(cloud_storage, "time", clock)
    return clock


@pytest.fixture
def storage(clock: QuickTime) -> Iterator[CloudStorage]:
    with serving() as address:
        yield CloudStorage(URL, {"STORAGE_EMULATOR_HOST": address})


def test_a_connection_is_kept_and_replaced_when_the_server_ended_it(storage: CloudStorage) -> None:
    storage.write("a", [b"1", memoryview(b"23")])
    assert [storage.read("a"), storage.read("a", 1), storage.read("a", 1, 1)] == [
        b"123", b"23", b"2",
    ]  # fmt: skip
    assert len(Server.connections) == 1
    Server.faults.append("cut")
    storage.write("a", [b"4"])
    assert (storage.read("a"), len(Server.connections)) == (b"4", 2)


def test_a_forked_child_opens_its_own_connection(storage: CloudStorage) -> None:
    storage.write("a", [b"1"])
    child = os.fork()
    if child == 0:
        os._exit(0 if storage.read("a") == b"1" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert storage.read("a") == b"1"
    assert len(Server.connections) == 2


@pytest.mark.parametrize("fault", ["503", "429", "408", "closed"])
def test_what_may_pass_is_repeated_for_a_limited_time(
    storage: CloudStorage, clock: QuickTime, fault: str
) -> None:
    Server.faults.extend([fault] * 3)
    storage.write("a", [b"1"])
    assert storage.read("a") == b"1"
    Server.faults.extend([fault] * 100)
    begun = clock.now
    with pytest.raises(TemporarilyUnreachable, match="gs://mine/runs"):
        storage.read("a")
    assert 20 < clock.now - begun <= 30
    assert 10 < len(Server.faults) < 95, "pauses grow"


def test_what_does_not_pass_is_not_repeated(storage: CloudStorage) -> None:
    Server.faults.append("403")
    with pytest.raises(Unreachable, match=r"gs://mine/runs: no \(HTTP 403\)"):
        storage.write("a", [b"1"])
    for first in (0, 7):
        with pytest.raises(FileNotFoundError):
            storage.read("b", first)
    assert len(Server.log) == 3


@pytest.mark.parametrize("fault", ["cut", "lost", "503", "less"])
def test_an_upload_continues_where_it_was_cut_off(storage: CloudStorage, fault: str) -> None:
    Server.faults.extend(["", fault, "", fault])
    storage.write("a", [LARGE[:7], memoryview(LARGE)[7:]])
    assert Server.objects["a"] == LARGE
    begins = [one for one in Server.log if one.startswith("PUT bytes 0-")]
    assert len(begins) == (3 if fault == "503" else 1), "what arrived is not sent again"


@pytest.mark.parametrize("fault", ["", "lost", "503"])
def test_an_object_is_written_once(storage: CloudStorage, fault: str) -> None:
    Server.faults.append(fault)
    assert storage.write_new("a", [b"1", b"2"]), "also if the answer of its own write was lost"
    assert storage.write_new("a", [b"12"])
    assert not storage.write_new("a", [b"13"])
    assert Server.objects["a"] == b"12"


def test_objects_are_listed_and_removed(storage: CloudStorage) -> None:
    for name in ("x/a", "x/b", "x/c", "y"):
        storage.write(name, [name.encode()])
    names = [one["name"] for one in storage.list_objects("x/", "size")]
    assert names == ["x/a", "x/b", "x/c"]
    storage.remove_object("x/b")
    with pytest.raises(FileNotFoundError):
        storage.remove_object("x/b")
    assert [one["size"] for one in storage.list_objects("x/", "size")] == ["3", "3"]


def test_an_upload_that_stands_still_ends(storage: CloudStorage) -> None:
    Server.faults.extend(["", *["503", ""] * 100])
    with pytest.raises(TemporarilyUnreachable):
        storage.write("a", [LARGE])
    assert "a" not in Server.objects


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_a_stream_of_unknown_size_is_written_in_chunks(storage: CloudStorage, size: int) -> None:
    content = (LARGE * 5)[:size]
    storage.write_stream("a", (content[at : at + 300_001] for at in range(0, size, 300_001)))
    assert Server.objects["a"] == content
    Server.objects.clear()
    Server.faults.extend(["", "cut", "", "", "lost"])
    storage.write_stream("a", (content[at : at + 300_001] for at in range(0, size, 300_001)))
    assert Server.objects["a"] == content


def test_a_read_continues_where_it_was_cut_off(storage: CloudStorage) -> None:
    Server.objects["a"] = LARGE
    Server.faults.extend(["cut", "503", "cut"])
    assert storage.read("a") == LARGE
    half = len(LARGE) // 2
    assert next(one for one in Server.log if one != "GET") == f"GET bytes={len(LARGE) - half}-"
    Server.faults.extend(["cut"])
    assert storage.read("a", 5, 1000) == LARGE[5:1005]
    Server.faults.extend(["cut"])
    pieces = storage.iter_pieces("a")
    assert next(pieces) == LARGE[: cloud_storage.PIECE]
    assert storage.read("a", 0, 3) == LARGE[:3], "another request in the middle"
    assert b"".join(pieces) == LARGE[cloud_storage.PIECE :]


def test_a_server_that_sends_whole_objects_only_is_refused(
    storage: CloudStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    Server.objects["a"] = LARGE
    monkeypatch.setattr(Server, "knows_parts", False)
    assert storage.read("a") == LARGE
    Server.faults.extend(["cut"])
    for first in (0, 7):
        with pytest.raises(Unreachable, match="whole objects only"):
            storage.read("a", first)


@pytest.mark.parametrize(
    ("answers", "works"),
    [
        (['{"access_token": "t", "expires_in": 3600}'], True),
        (["garbage", '{"access_token": "t", "expires_in": 3600}'], True),
        (["[]"] * 99, False),
        (['{"access_token": "t", "expires_in": "soon"}'] * 99, False),
    ],
)
def test_tokens_come_from_the_metadata_server(
    clock: QuickTime, answers: list[str], works: bool
) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            with suppress(OSError), server.accept()[0] as connection:  # the test's end closes it
                connection.recv(4096)
                head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n"
                connection.sendall(f"{head}{answer}".encode())

    threading.Thread(target=serve, daemon=True).start()
    address = f"127.0.0.1:{server.getsockname()[1]}"
    token = cloud_storage.AccessToken({"GCE_METADATA_HOST": address}, needed=True)
    ask: Callable[[], object] = lambda: token.auth_headers(URL)  # noqa: E731
    if answers[0] == "garbage":
        with pytest.raises(TemporarilyUnreachable, match="no access token"):
            ask()
    if works:
        assert ask() == {"Authorization": "Bearer t"} == ask()
    else:
        with pytest.raises(TemporarilyUnreachable, match="service account"):
            ask()
    server.close()
