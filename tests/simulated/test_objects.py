"""Objects in buckets: the model through the app, with its files, as any client of it."""

import asyncio
import gzip
import json
import re
from base64 import b64decode, b64encode
from hashlib import md5
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulated.in_process_world import Asker
from tpuherd.clock import WallClock
from tpuherd_sim.google_apis.crc32c import encode_crc32c, join_crc32c, update_crc32c
from tpuherd_sim.google_apis.object_methods import glob_pattern
from tpuherd_sim.google_apis.object_rules import DAY
from tpuherd_sim.google_apis.uploads import QUANTUM
from tpuherd_sim.handle import advance_world
from tpuherd_sim.host_services.all_services import host_app
from tpuherd_sim.http.app import BODY_BYTES_MAX, LostAnswer, create_app, unpack_body
from tpuherd_sim.http.object_contents import ObjectContents
from tpuherd_sim.http.server import REFUSED
from tpuherd_sim.live_world import LiveWorld
from tpuherd_sim.model.http_types import Request
from tpuherd_sim.model.world_codec import dump_world, load_world
from tpuherd_sim.state_dir import WorldError

MINE = "/storage/v1/b/mine"
JSON_API, UPLOAD = "/storage/v1/b/mine/o", "/upload/storage/v1/b/mine/o"
WHOLE = bytes(Random(1).randbytes(2 * QUANTUM + 17))
OLD = b"what was there before"


class Answer:
    def __init__(self) -> None:
        self.status, self.body, self.headers = 0, b"", dict[str, str]()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Buckets:
    """A world with a bucket, before its app."""

    def __init__(self, folder: Path) -> None:
        world = Asker(now=WallClock().now()).world
        self.folder = folder
        self.open(world)
        self.ask("POST", "/storage/v1/b?project=demo", b'{"name": "mine"}')

    def open(self, world: Any) -> None:
        live_world = LiveWorld(world, WallClock())
        self.contents = ObjectContents(live_world, self.folder)
        self.contents.clean_folder()
        self.app = create_app(live_world, WallClock(), contents=self.contents)

    def restart(self) -> None:
        world = self.contents.live_world.world
        self.open(load_world(json.loads(json.dumps(dump_world(world)))))

    def ask(
        self, method: str, url: str, body: bytes = b"", cut: int | None = None, **headers: Any
    ) -> Answer:
        """Send a request; one with `cut` loses its connection after so many bytes of the body."""
        parts = urlsplit(url)
        sent = body if cut is None else body[:cut]
        arriving = [
            {"type": "http.request", "body": sent[at : at + 65536], "more_body": True}
            for at in range(0, len(sent), 65536)
        ]
        last = {"type": "http.request", "body": b"", "more_body": False}
        arriving.append(last if cut is None else {"type": "http.disconnect"})
        answer = Answer()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): text.decode() for name, text in message["headers"]}
            answer.body += message.get("body", b"")

        async def receive() -> Any:
            return arriving.pop(0)

        scope = {
            "type": "http",
            "method": method,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "extensions": {REFUSED: ""},
            "headers": [
                (b"host", b"world"),
                *(
                    (name.replace("_", "-").encode(), text.encode())
                    for name, text in headers.items()
                ),
            ],
        }

        async def run() -> None:
            await self.app(scope, receive, send)

        asyncio.run(run())
        return answer

    def put(self, name: str, body: bytes, more: str = "", **headers: Any) -> Answer:
        return self.ask(
            "POST", f"{UPLOAD}?uploadType=media&name={quote(name)}{more}", body, **headers
        )

    def read(self, name: str) -> bytes | None:
        """Return the object's content, of which all that is said must be true."""
        answer = self.ask("GET", f"{JSON_API}/{quote(name, safe='')}?alt=media")
        if answer.status == 404:
            return None
        sums = f"crc32c={encode_crc32c(update_crc32c(0, answer.body))},md5={md5_of(answer.body)}"
        assert answer.status == 200
        assert sums.startswith(answer.headers["x-goog-hash"])
        return answer.body

    def check_files(self) -> None:
        """Nothing is left on the disk that no object and no upload needs."""
        files = {file.name for file in self.folder.glob("*")}
        assert files == set(self.contents.live_world.world.services.storage.files)


def md5_of(content: bytes) -> str:
    return b64encode(md5(content).digest()).decode()


@pytest.fixture
def buckets(tmp_path: Path) -> Buckets:
    return Buckets(tmp_path / "objects")


# -- a half object never looks whole --------------------------------------------------------------

PLACES = st.integers(0, len(WHOLE))
ACTIONS = st.one_of(
    st.tuples(st.just("chunk"), st.integers(0, 2), PLACES),  # where it begins, where it is cut
    st.tuples(st.just("repeat"), st.integers(0, 2), st.just(len(WHOLE))),
    st.tuples(st.just("rest"), st.just(0), PLACES),
    st.tuples(st.just("query"), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
    st.tuples(st.just("media"), st.just(0), PLACES),
    st.tuples(st.just("multipart"), st.just(0), PLACES),
    st.tuples(st.just("cancel"), st.just(0), st.just(0)),
)


class Writer:
    """Somebody who uploads WHOLE to an object, in an upload that may be cut and repeated."""

    def __init__(self, buckets: Buckets, before: bytes | None) -> None:
        self.buckets, self.allowed, self.cancelled = buckets, before, False
        begun = buckets.ask("POST", f"{UPLOAD}?uploadType=resumable&name=x", b"{}")
        self.place = begun.headers["location"]

    def act(self, action: str, number: int, cut: int) -> None:
        first = number * QUANTUM
        if action == "restart":
            self.buckets.restart()
        elif action == "cancel":
            status = self.buckets.ask("DELETE", self.place).status
            assert status in (499, 404)
            self.cancelled = self.cancelled or status == 499
        elif action in ("chunk", "repeat"):
            body = WHOLE[first : first + QUANTUM]
            self.send(body, cut, content_range=said_range(first, body))
        elif action == "rest":
            self.send(WHOLE, cut)
        elif action == "query":
            status = self.send(b"", 0, content_range=f"bytes */{len(WHOLE)}")
            assert status == (404 if self.cancelled else 200 if self.allowed == WHOLE else 308)
        else:
            self.send_at_once(action, cut)

    def send(self, body: bytes, cut: int, **headers: str) -> int:
        short = cut if cut < len(body) else None
        answer = self.buckets.ask("PUT", self.place, body, cut=short, **headers)
        if answer.status == 200:
            self.allowed = WHOLE
        return answer.status

    def send_at_once(self, kind: str, cut: int) -> None:
        """Begin an upload of one request that is cut, at its last byte at the latest."""
        head, border = b"", b"=b="
        if kind == "multipart":
            head = b'--=b=\r\n\r\n{"name": "x"}\r\n--=b=\r\n\r\n'
        body = head + WHOLE + (b"\r\n--" + border + b"--" if head else b"")
        url = f"{UPLOAD}?uploadType={kind}&name=x"
        kind = f"multipart/related; boundary='{border.decode()}'"
        assert self.buckets.ask("POST", url, body, cut=cut, content_type=kind).status == 0


def said_range(first: int, body: bytes) -> str:
    return f"bytes {first}-{first + len(body) - 1}/{len(WHOLE)}"


@settings(max_examples=60, deadline=None)
@given(had=st.booleans(), actions=st.lists(ACTIONS, max_size=8))
def test_an_object_is_the_old_one_the_new_one_or_absent(
    tmp_path_factory: pytest.TempPathFactory, had: bool, actions: list[tuple[str, int, int]]
) -> None:
    """Whatever is cut, repeated or cancelled, at any byte."""
    buckets = Buckets(tmp_path_factory.mktemp("cut") / "objects")
    if had:
        buckets.put("x", OLD)
    writer = Writer(buckets, OLD if had else None)
    for action in actions:
        writer.act(*action)
        assert buckets.read("x") == writer.allowed
    buckets.check_files()
    if not writer.cancelled:
        for _ in range(2):  # the last answer can be asked for again
            assert resume(buckets, writer.place).status == 200
            assert buckets.read("x") == WHOLE


def resume(buckets: Buckets, place: str) -> Answer:
    """Go on with an upload as clients do: from where the world says."""
    answer = buckets.ask("PUT", place, content_range=f"bytes */{len(WHOLE)}")
    while answer.status == 308:
        first = int(answer.headers.get("range", "bytes=0--1").partition("-")[2]) + 1
        end = min(first + QUANTUM, len(WHOLE))
        body = WHOLE[first:end]
        answer = buckets.ask("PUT", place, body, content_range=said_range(first, body))
    return answer


@pytest.mark.parametrize(
    ("said", "size", "sentence"),
    [
        (
            f"bytes 5-{QUANTUM + 4}/{QUANTUM * 2}",
            QUANTUM,
            "exceeds already uploaded size of 0 byte",
        ),
        ("bytes 0-9/*", 10, "required to be equal or greater than 262144"),
        ("bytes 0-9/5", 10, "10 bytes already, but 5 in all"),
        ("bytes 0-8/20", 10, "Content-Range says otherwise"),
        ("bytes x", 0, "Failed to parse"),
    ],
    ids=str,
)
def test_a_wrong_chunk_is_refused(buckets: Buckets, said: str, size: int, sentence: str) -> None:
    place = buckets.ask("POST", f"{UPLOAD}?uploadType=resumable&name=x").headers["location"]
    answer = buckets.ask("PUT", place, bytes(size), content_range=said)
    assert (answer.status, sentence in answer.json["error"]["message"]) == (400, True)
    assert buckets.read("x") is None
    buckets.check_files()


def test_an_upload_without_a_known_size_ends_with_its_request(buckets: Buckets) -> None:
    """As Node's client does it, and Go's, which can't read a 308."""
    begun = buckets.ask("POST", f"/resumable{UPLOAD}?uploadType=resumable&name=x", b"{}")
    place = begun.headers["location"]
    chunk = WHOLE[:QUANTUM]
    said: dict[str, Any] = {
        "content_range": f"bytes 0-{QUANTUM - 1}/*",
        "x_guploader_no_308": "yes",
    }
    answer = buckets.ask("PUT", place, chunk, **said)
    assert (answer.status, answer.headers["x-http-status-code-override"]) == (200, "308")
    answer = buckets.ask("PUT", place, WHOLE[QUANTUM:], content_range=f"bytes {QUANTUM}-*/*")
    assert (answer.status, buckets.read("x")) == (200, WHOLE)


@pytest.mark.parametrize("header", ["x_goog_hash", "content_md5", "body"])
def test_a_wrong_checksum_publishes_nothing(buckets: Buckets, header: str) -> None:
    wrong = {"x_goog_hash": "crc32c=AAAAAA==", "content_md5": md5_of(b"other")}
    if header == "body":
        about = b'{"name": "x", "md5Hash": "%s"}' % md5_of(b"other").encode()
        place = buckets.ask("POST", f"{UPLOAD}?uploadType=resumable", about).headers["location"]
        answer = buckets.ask("PUT", place, b"content")
        assert buckets.ask("PUT", place, b"content").status == 404, "it is over"
    else:
        answer = buckets.put("x", b"content", **{header: wrong[header]})
    assert (answer.status, "doesn't match" in answer.json["error"]["message"]) == (400, True)
    assert buckets.read("x") is None
    buckets.check_files()


# -- nothing is ignored ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "status", "content"),
    [
        ("bytes=-5", 206, b"56789"), ("bytes=-50", 206, b"0123456789"),
        ("bytes=3-", 206, b"3456789"),
        ("bytes=2-3", 206, b"23"), ("bytes=8-99", 206, b"89"), ("bytes=10-", 416, None),
        ("bytes=-0", 416, None), ("bytes=3-2", 200, b"0123456789"),
        ("bytes=-", 200, b"0123456789"),
        ("items=1-2", 200, b"0123456789"),
    ],
)  # fmt: skip
def test_ranges(buckets: Buckets, wanted: str, status: int, content: bytes | None) -> None:
    sources = [
        {"name": buckets.put(name, name.encode()).json["name"]} for name in ("0123", "456789")
    ]
    about = json.dumps({"sourceObjects": sources}).encode()
    assert buckets.ask("POST", f"{JSON_API}/both/compose", about).json["componentCount"] == 2
    for url in (f"{JSON_API}/both?alt=media", f"/download{JSON_API}/both?alt=media", "/mine/both"):
        answer = buckets.ask("GET", url, range=wanted)
        assert answer.status == status
        assert content in (None, answer.body)


def test_conditions_of_all_verbs(buckets: Buckets) -> None:
    made = buckets.put("x", b"1").json
    generation = made["generation"]
    there, gone = f"{JSON_API}/x", f"{JSON_API}/y"
    verbs = [
        ("GET", there), ("GET", f"{there}?alt=media"), ("PATCH", there), ("PUT", there),
        ("POST", f"{there}/rewriteTo/b/mine/o/x"), ("POST", f"{there}/copyTo/b/mine/o/x"),
        ("POST", f"{UPLOAD}?uploadType=media&name=x"), ("DELETE", there),
    ]  # fmt: skip
    for method, url in verbs:
        for condition in (
            "ifGenerationMatch=1", "ifMetagenerationMatch=99", "ifGenerationMatch=0",
            f"ifGenerationNotMatch={generation}", "ifMetagenerationNotMatch=1",
        ):  # fmt: skip
            answer = buckets.ask(method, f"{url}{'&' if '?' in url else '?'}{condition}")
            expected = 304 if method == "GET" and "Not" in condition else 412
            assert answer.status == expected, (method, url, condition)
        assert buckets.ask("DELETE", f"{gone}?ifGenerationMatch=0").status == 404
    assert buckets.ask("GET", f"{there}?ifGenerationMatch=x").status == 400
    for source in ("ifSourceGenerationMatch=1", "ifSourceMetagenerationNotMatch=1"):
        for verb in ("rewriteTo/b/mine", "copyTo/b/mine", "moveTo"):
            assert buckets.ask("POST", f"{there}/{verb}/o/y?{source}").status == 412
    assert buckets.ask("GET", there).json == made
    assert buckets.put("new", b"1", "&ifGenerationMatch=0").status == 200


@pytest.mark.parametrize(
    "url",
    [
        f"{JSON_API}?filter=x", f"{JSON_API}?maxResults=abc", f"{JSON_API}?pageToken=%25",
        f"{JSON_API}?versions=true&softDeleted=true", f"{JSON_API}/x?softDeleted=true",
        f"{JSON_API}/x?alt=xml", f"{JSON_API}?restoreToken=1", "/mine/x?acl",
        f"{JSON_API}?matchGlob=[z-a]",
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused(buckets: Buckets, url: str) -> None:
    buckets.put("x", b"1")
    assert buckets.ask("GET", url).status == 400
    assert buckets.ask("GET", f"{JSON_API}/x?alt=media&tensorstore=123").body == b"1"


def test_each_client_has_its_ways(buckets: Buckets) -> None:
    """How Google's clients say true, nothing, a class, a project and a path."""
    old = buckets.put("x", b"1").json
    new = buckets.put("x", b"2").json
    for flag in ("True", "true"):  # Python's, Node's
        soft = buckets.ask("GET", f"{JSON_API}?softDeleted={flag}").json["items"]
        assert [one["generation"] for one in soft] == [old["generation"]]
        live = buckets.ask("GET", f"{JSON_API}?versions={flag}").json["items"]
        assert [one["generation"] for one in live] == [new["generation"]]
    assert buckets.ask("GET", f"{JSON_API}?versions=perhaps").status == 400
    said = b'{"storageClass": "nearline"}'  # gcloud's
    there = "/storage/v1/b/mine"
    for place in (there, f"{JSON_API}/x"):
        assert buckets.ask("PATCH", place, said).json["storageClass"] == "NEARLINE"
    nothing = b'{"lifecycle": {"rule": []}, "billing": {"requesterPays": false}, "cors": []}'
    assert buckets.ask("PATCH", there, nothing).status == 200
    assert buckets.ask("PATCH", there, b'{"lifecycle": {"rule": [{}]}}').status == 400
    assert buckets.ask("POST", f"{JSON_API}/x/copyTo/b/mine/o/y", b"null").status == 200  # Go's
    assert buckets.ask("DELETE", f"{JSON_API}/y?versions=true").status == 204
    for query in ("demo", "%3Cnone%3E"):
        listed = buckets.ask("GET", f"/storage/v1/b?project={query}").json["items"]
        assert [one["name"] for one in listed] == ["mine"]
    for start in ("/storage/v1", ""):  # Node's client, which an emulator's address changes
        assert buckets.ask("GET", f"{start}/b/mine/o/x?alt=media").body == b"2"
        agent = buckets.ask("GET", f"{start}/projects/demo/serviceAccount").json
        assert agent["email_address"].startswith("service-")


def test_etags_are_conditions(buckets: Buckets) -> None:
    etag = buckets.put("x", b"1").json["etag"]
    there = f"{JSON_API}/x"
    for sent, header, status in (
        (etag, "if_match", 200), (f'"{etag}"', "if_match", 200), ("*", "if_match", 200),
        ('"other"', "if_match", 412), ('"other"', "if_none_match", 200),
        (etag, "if_none_match", 304), ("*", "if_none_match", 304),
    ):  # fmt: skip
        said: dict[str, Any] = {header: sent}
        assert buckets.ask("GET", f"{there}?alt=media", **said).status == status
    assert buckets.ask("DELETE", there, if_match='"other"').status == 412
    assert buckets.put("x", b"2", if_none_match="*").status == 412
    assert buckets.read("x") == b"1"


def test_nothing_is_stored_as_if_a_wish_were_met(buckets: Buckets) -> None:
    assert buckets.put("x", b"1", x_goog_encryption_algorithm="AES256").status == 400
    one = {"role": "roles/storage.objectViewer", "members": ["allUsers"]}
    for condition, status in ({}, 200), ({"expression": "false"}, 400):
        policy = json.dumps({"bindings": [{**one, "condition": condition}]}).encode()
        assert buckets.ask("PUT", "/storage/v1/b/mine/iam", policy).status == status
    for name in ("goog-x", "my-google", "192.168.1.1", "x" * 64, "a..b", "a.-b", "ab"):
        said = json.dumps({"name": name}).encode()
        assert buckets.ask("POST", "/storage/v1/b?project=demo", said).status == 400, name
    assert buckets.ask("POST", "/storage/v1/b?project=demo", b'{"name": "12.ab"}').status == 200


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ("items(name,size),none", {"items": [{"name": "x", "size": "1"}]}),
        ("nextPageToken,kind", {"kind": "storage#objects"}),
        ("items/name", {"items": [{"name": "x"}]}),
        ("items(name,metadata/a)", {"items": [{"name": "x", "metadata": {"a": "1"}}]}),
        ("items(metadata(*))", {"items": [{"metadata": {"a": "1", "b": "2"}}]}),
        ("kind,items(name", None),
        ("items)name(", None),
    ],
)  # fmt: skip
def test_only_the_chosen_fields_are_returned(buckets: Buckets, fields: str, found: Any) -> None:
    buckets.put("x", b"1")
    buckets.ask("PATCH", f"{JSON_API}/x", b'{"metadata": {"a": "1", "b": "2"}}')
    answer = buckets.ask("GET", f"{JSON_API}?fields={quote(fields)}")
    assert (answer.status, answer.json if found else None) == (200 if found else 400, found)


@pytest.mark.parametrize("packed", [gzip.compress(WHOLE), WHOLE], ids=["gzip", "not"])
def test_content_that_is_packed_on_its_way_only(buckets: Buckets, packed: bytes) -> None:
    start, end = b'--b\n\n{"name": "x"}\n--b\n\n', b"\n--b--"
    body = gzip.compress(start + WHOLE + end) if packed != WHOLE else start + WHOLE + end
    kind: dict[str, Any] = {"content-type": "multipart/related; boundary=b"}
    said = {**kind, "content_encoding": "gzip"}
    sent = buckets.ask("POST", f"{UPLOAD}?uploadType=multipart", body, **said)
    place = buckets.ask("POST", f"{UPLOAD}?uploadType=resumable&name=y").headers["location"]
    ended = buckets.ask("PUT", place, packed, content_encoding="gzip")
    expected = 400 if packed == WHOLE else 200
    assert (sent.status, ended.status) == (expected, expected)
    assert (buckets.read("x"), buckets.read("y")) == (None if packed == WHOLE else WHOLE,) * 2
    assert buckets.put("z", packed, content_encoding="gzip").status == 200
    buckets.check_files()


def test_what_a_writer_says_is_kept(buckets: Buckets) -> None:
    about = {
        "name": "x", "contentType": "text/x", "cacheControl": "no-store", "contentEncoding": "br",
        "contentDisposition": "inline", "contentLanguage": "en", "metadata": {"a": "1", "b": "2"},
    }  # fmt: skip
    place = buckets.ask(
        "POST", f"{UPLOAD}?uploadType=resumable", json.dumps(about).encode()
    ).headers["location"]
    made = buckets.ask("PUT", place, b"1").json
    assert {key: made[key] for key in about} == about
    assert buckets.ask("GET", f"{JSON_API}/x").json == made
    answer = buckets.ask("GET", "/mine/x")
    assert [answer.headers[key] for key in ("content-type", "cache-control", "x-goog-meta-b")] == [
        "text/x", "no-store", "2",
    ]  # fmt: skip
    change = b'{"metadata": {"a": null, "c": "3"}, "cacheControl": null}'
    patched = buckets.ask("PATCH", f"{JSON_API}/x", change).json
    assert (patched["metadata"], patched["metageneration"]) == ({"b": "2", "c": "3"}, "2")
    assert "cacheControl" not in patched
    assert (patched["etag"] != made["etag"], patched["generation"]) == (True, made["generation"])
    put = buckets.ask("PUT", f"{JSON_API}/x", b'{"contentType": "a/b"}').json
    assert (put["contentType"], "metadata" in put) == ("a/b", False)
    copied = buckets.ask("POST", f"{JSON_API}/x/rewriteTo/b/mine/o/y").json["resource"]
    assert (copied["contentType"], buckets.read("y")) == ("a/b", b"1")
    for wrong in (
        b'{"metadata": {"a": 1}}',
        b'{"retention": {"mode": "Locked"}}',
        b'{"contentType": "a\\n"}',
    ):
        assert buckets.ask("PATCH", f"{JSON_API}/x", wrong).status == 400
    assert b64decode(made["etag"]).startswith(b"\x08")
    assert made["mediaLink"].startswith("http://world/download/storage/v1/b/mine/o/x?generation=")


def test_holds_and_retention_keep_objects(buckets: Buckets) -> None:
    buckets.ask("POST", f"{UPLOAD}?name=x", b"1")
    for hold, word in (("temporaryHold", "Temporary"), ("eventBasedHold", "Event-Based")):
        held = buckets.ask("PATCH", f"{JSON_API}/x", json.dumps({hold: True}).encode()).json
        assert held[hold] is True
        for method, url in (
            ("DELETE", f"{JSON_API}/x"), ("POST", f"{UPLOAD}?name=x"),
            ("POST", f"{JSON_API}/x/moveTo/o/y"),
        ):  # fmt: skip
            answer = buckets.ask(method, url, b"")
            assert (answer.status, buckets.read("x")) == (403, b"1")
            assert f"under active {word} hold" in answer.json["error"]["message"]
        copied = buckets.ask("POST", f"{JSON_API}/x/copyTo/b/mine/o/copy").json
        assert hold not in copied
        buckets.ask("PATCH", f"{JSON_API}/x", json.dumps({hold: None}).encode())
    shown = buckets.ask("PATCH", MINE, b'{"retentionPolicy": {"retentionPeriod": "3600"}}').json
    assert shown["retentionPolicy"]["retentionPeriod"] == "3600"
    until = buckets.ask("GET", f"{JSON_API}/x").json["retentionExpirationTime"]
    refused = buckets.ask("DELETE", f"{JSON_API}/x")
    assert (refused.status, until in refused.json["error"]["message"]) == (403, True)
    number = shown["metageneration"]
    locked = f"{MINE}/lockRetentionPolicy?ifMetagenerationMatch={number}"
    assert buckets.ask("POST", locked).json["retentionPolicy"]["isLocked"] is True
    assert buckets.ask("PATCH", MINE, b'{"retentionPolicy": null}').status == 403
    longer = b'{"retentionPolicy": {"retentionPeriod": 7200}}'
    assert buckets.ask("PATCH", MINE, longer).status == 200
    by_event = b'{"defaultEventBasedHold": true}'
    assert buckets.ask("PATCH", MINE, by_event).json["defaultEventBasedHold"] is True
    assert buckets.ask("POST", f"{UPLOAD}?name=new", b"1").json["eventBasedHold"] is True


def test_a_lifecycle_deletes_and_changes_once_a_day(buckets: Buckets) -> None:
    rules = [
        {"action": {"type": "Delete"}, "condition": {"age": 2, "matchesPrefix": ["old/"]}},
        {"action": {"type": "SetStorageClass", "storageClass": "COLDLINE"},
         "condition": {"age": 1, "matchesStorageClass": ["STANDARD"]}},
        {"action": {"type": "Delete"}, "condition": {"numNewerVersions": 1, "isLive": False}},
    ]  # fmt: skip

    def change(**fields: Any) -> Answer:
        return buckets.ask("PATCH", MINE, json.dumps(fields).encode())

    no_soft = {"retentionDurationSeconds": "0"}
    made = change(lifecycle={"rule": rules}, versioning={"enabled": True}, softDeletePolicy=no_soft)
    assert made.json["lifecycle"] == {"rule": rules}
    for name in ("old/a", "new/b", "old/held", "new/b"):
        buckets.put(name, b"1")
    buckets.ask("PATCH", f"{JSON_API}/{quote('old/held', safe='')}", b'{"temporaryHold": true}')

    def versions() -> list[tuple[str, str, bool]]:
        found = buckets.ask("GET", f"{JSON_API}?versions=true").json.get("items", [])
        return [(one["name"], one["storageClass"], "timeDeleted" in one) for one in found]

    assert [name for name, *_ in versions()] == ["new/b", "new/b", "old/a", "old/held"]
    world, now = buckets.contents.live_world.world, WallClock().now()
    advance_world(world, now + DAY + 1)
    left = ("new/b", "old/a", "old/held")
    assert versions() == [(name, "STANDARD", False) for name in left]
    buckets.check_files()
    advance_world(world, now + 2 * DAY + 1)
    assert versions() == [(name, "COLDLINE", False) for name in left]
    advance_world(world, now + 3 * DAY + 1)
    assert versions() == [
        ("new/b", "COLDLINE", False), ("old/a", "COLDLINE", True), ("old/held", "COLDLINE", False),
    ]  # fmt: skip
    wrongs: list[object] = [
        {"rule": [{"action": {"type": "Burn"}, "condition": {"age": 1}}]},
        {"rule": [{"action": {"type": "Delete"}, "condition": {}}]},
        {"rule": [{"action": {"type": "Delete"}, "condition": {"customTimeBefore": "2026-01-01"}}]},
        {"rule": [{"action": {"type": "Delete"}, "condition": {"createdBefore": "soon"}}]},
        {"rule": 1},
        [],
    ]
    for wrong in wrongs:
        assert change(lifecycle=wrong).status == 400, wrong
    assert "lifecycle" not in change(lifecycle=None).json


def test_predefined_lists(buckets: Buckets) -> None:
    refused = buckets.ask("POST", f"{UPLOAD}?name=x&predefinedAcl=publicRead", b"1")
    assert (refused.status, buckets.read("x")) == (400, None)
    assert "Cannot insert legacy ACL for an object when uniform" in refused.json["error"]["message"]
    fine = b'{"name": "fine", "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": false}}}'
    buckets.ask("POST", "/storage/v1/b?project=demo", fine)
    named: list[tuple[str, set[str]]] = [
        ("publicRead", {"allUsers"}), ("authenticatedRead", {"allAuthenticatedUsers"}),
        ("private", set()), ("bucketOwnerRead", {"project-owners-123456789012"}),
    ]  # fmt: skip
    for name, entities in named:
        url = f"/upload/storage/v1/b/fine/o?name=x&predefinedAcl={name}"
        assert buckets.ask("POST", url, b"1").status == 200
        listed = buckets.ask("GET", "/storage/v1/b/fine/o/x/acl").json["items"]
        assert {one["entity"] for one in listed if one["role"] != "OWNER"} == entities
        assert sum(one["role"] == "OWNER" for one in listed) == 1
    assert buckets.ask("POST", "/upload/storage/v1/b/fine/o?name=x&predefinedAcl=all").status == 400


def test_lists(buckets: Buckets) -> None:
    names = ["a", "a/", "a/b", "a/b/c", "a/z", "b.txt", "ü/1"]
    for name in names:
        buckets.put(name, b"1")
    for size in (1, 2, 1000):
        found, token = [], ""
        while True:
            page = buckets.ask("GET", f"{JSON_API}?maxResults={size}&pageToken={token}").json
            found += [one["name"] for one in page.get("items", [])]
            token = quote(page.get("nextPageToken", ""))
            if not token:
                break
        assert found == names
    page = buckets.ask("GET", f"{JSON_API}?delimiter=/&includeTrailingDelimiter=true").json
    assert page["prefixes"] == ["a/", "ü/"]
    assert [one["name"] for one in page["items"]] == ["a", "a/", "b.txt"]
    page = buckets.ask("GET", f"{JSON_API}?matchGlob=a/**&prefix=a/&delimiter=/").json
    assert ([one["name"] for one in page["items"]], page["prefixes"]) == (
        ["a/", "a/b", "a/z"], ["a/b/"],
    )  # fmt: skip


def test_lists_of_the_xml_api(buckets: Buckets) -> None:
    """Both lists, page by page: with tokens, and with markers."""
    names = ["a", "a/", "a/b", "a/b/c", "b&<.txt", "ü/1"]
    for name in names:
        buckets.put(name, b"1")

    def walk(query: str, token: str, sent: str) -> list[str]:
        found, more = list[str](), ""
        for _ in range(len(names) + 1):
            answer = buckets.ask("GET", f"/mine?max-keys=1{query}{more}")
            assert answer.headers["content-type"].startswith("application/xml")
            root = ElementTree.fromstring(answer.body)
            found += [str(one.text) for one in root.iterfind("{*}Contents/{*}Key")]
            found += [f"<{one.text}>" for one in root.iterfind("{*}CommonPrefixes/{*}Prefix")]
            left = root.findtext(f"{{*}}{token}")
            assert root.findtext("{*}IsTruncated") == str(left is not None).lower()
            if left is None:
                return found
            more = f"&{sent}={quote(left)}"
        raise AssertionError("the pages do not end")

    folded = ["a", "<a/>", "b&<.txt", "<ü/>"]
    for query, token, sent in (
        ("&list-type=2", "NextContinuationToken", "continuation-token"),
        ("", "NextMarker", "marker"),
    ):
        assert walk(query, token, sent) == names
        assert walk(f"{query}&delimiter=/", token, sent) == folded
        assert walk(f"{query}&prefix=a/&delimiter=/", token, sent) == ["a/", "a/b", "<a/b/>"]
        assert walk(f"{query}&encoding-type=url&prefix=b", token, sent) == ["b%26%3C.txt"]
    body = buckets.ask("GET", "/mine/?list-type=2&start-after=a/b").body.decode()
    assert re.findall("<Key>(.*?)</Key>", body) == ["a/b/c", "b&amp;&lt;.txt", "ü/1"]
    assert "<KeyCount>3</KeyCount>" in body
    assert f'<ETag>"{md5(b"1").hexdigest()}"</ETag>' in body
    for query in ("acl", "versions", "uploads", "max-keys=x", "list-type=2&continuation-token=x"):
        assert buckets.ask("GET", f"/mine?{query}").status == 400, query
    assert buckets.ask("GET", "/mine/a?list-type=2").status == 400
    gone = buckets.ask("GET", "/none?list-type=2", host="storage.googleapis.com")
    assert (gone.status, b"<Code>NoSuchBucket</Code>" in gone.body) == (404, True)


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.txt", "b.txt", "a/b.txt"), ("**.txt", "a/b.txt", "b.tx"),
        ("a/*/c", "a/b/c", "a/b/d/c"),
        ("a/**/c", "a/c", "ac"), ("a?c", "abc", "a/c"), ("[a-c]x", "bx", "dx"),
        ("[!a]x", "bx", "ax"),
        ("{a,bc}.t", "bc.t", "b.t"), ("a.b", "a.b", "aab"), ("\\*", "*", "a"),
    ],
)  # fmt: skip
def test_globs(glob: str, yes: str, no: str) -> None:
    assert glob_pattern(glob).fullmatch(yes)
    assert not glob_pattern(glob).fullmatch(no)


# -- generations ----------------------------------------------------------------------------------


def test_a_deleted_object_can_be_restored_for_a_week(buckets: Buckets) -> None:
    first = buckets.put("x", b"one").json["generation"]
    second = buckets.put("x", b"two").json["generation"]
    assert buckets.ask("GET", f"{JSON_API}/x?generation={first}").status == 404
    soft = buckets.ask("GET", f"{JSON_API}?softDeleted=true").json["items"]
    assert [(one["generation"], "hardDeleteTime" in one) for one in soft] == [(first, True)]
    assert buckets.ask("POST", f"{JSON_API}/x/restore?generation={first}").status == 200
    assert buckets.read("x") == b"one"
    assert buckets.ask("POST", f"{JSON_API}/x/restore?generation={second}").status == 200
    assert buckets.read("x") == b"two"
    assert buckets.ask("DELETE", "/storage/v1/b/mine").status == 409
    buckets.ask("DELETE", f"{JSON_API}/x")
    assert buckets.ask("DELETE", "/storage/v1/b/mine").status == 204
    buckets.check_files()


def test_many_deleted_objects_are_restored_at_once(buckets: Buckets) -> None:
    for name in ("a/1", "a/1", "a/2", "b"):
        buckets.put(name, name.encode())
    for name in ("a/1", "a/2", "b"):
        buckets.ask("DELETE", f"{JSON_API}/{quote(name, safe='')}")
    buckets.put("a/2", b"newer")
    restored = buckets.ask("POST", f"{JSON_API}/bulkRestore", b'{"matchGlobs": ["a/*"]}')
    assert restored.json["done"] is True
    assert [buckets.read(name) for name in ("a/1", "a/2", "b")] == [b"a/1", b"newer", None]
    body = b'{"matchGlobs": ["a/2"], "allowOverwrite": true}'
    assert buckets.ask("POST", f"{JSON_API}/bulkRestore", body).status == 200
    assert buckets.read("a/2") == b"a/2"
    place = "/storage/v1/b/mine/operations"
    assert restored.json in buckets.ask("GET", place).json["operations"]
    one = f"{place}/{restored.json['name'].rpartition('/')[2]}"
    assert buckets.ask("GET", one).json == restored.json
    assert buckets.ask("POST", f"{one}/cancel").status == 204
    assert buckets.ask("GET", f"{place}/none").status == 404
    for wrong in (b'{"softDeletedAfterTime": "x"}', b'{"matchGlobs": "a"}', b'{"matchGlobs": [1]}'):
        assert buckets.ask("POST", f"{JSON_API}/bulkRestore", wrong).status == 400
    buckets.check_files()


def test_a_deleted_bucket_can_be_restored(buckets: Buckets) -> None:
    made, there = buckets.ask("GET", "/storage/v1/b/mine").json, "/storage/v1/b/mine"
    which = f"generation={made['generation']}"
    generation = buckets.put("x", b"one").json["generation"]
    buckets.ask("DELETE", f"{JSON_API}/x")
    assert buckets.ask("DELETE", f"{there}?ifMetagenerationMatch=9").status == 412
    assert buckets.ask("DELETE", there).status == 204
    assert buckets.ask("GET", there).status == 404
    assert buckets.ask("POST", f"{JSON_API}/x/restore?generation={generation}").status == 404
    soft = buckets.ask("GET", f"{there}?softDeleted=true&{which}").json
    assert {"softDeleteTime", "hardDeleteTime"} <= soft.keys()
    assert buckets.ask("GET", "/storage/v1/b?project=demo&softDeleted=true").json["items"] == [soft]
    assert buckets.ask("GET", f"{there}?softDeleted=true").status == 400
    assert buckets.ask("POST", f"{there}/restore?generation=1").status == 404
    buckets.restart()
    assert buckets.ask("POST", f"{there}/restore?{which}").json["metageneration"] == "2"
    assert buckets.ask("POST", f"{JSON_API}/x/restore?generation={generation}").status == 200
    assert buckets.read("x") == b"one"
    assert buckets.ask("DELETE", there).status == 409
    buckets.ask("DELETE", f"{JSON_API}/x")
    buckets.ask("DELETE", there)
    buckets.ask("POST", "/storage/v1/b?project=demo", b'{"name": "mine"}')
    assert buckets.ask("POST", f"{there}/restore?{which}").status == 404
    assert "items" not in buckets.ask("GET", f"{JSON_API}?softDeleted=true").json
    buckets.check_files()


def test_versions_and_none(buckets: Buckets) -> None:
    change = {"versioning": {"enabled": True}, "softDeletePolicy": {"retentionDurationSeconds": 0}}
    changed = buckets.ask("PATCH", "/storage/v1/b/mine", json.dumps(change).encode()).json
    assert (changed["versioning"], changed["metageneration"]) == ({"enabled": True}, "2")
    first = buckets.put("x", b"one").json["generation"]
    buckets.put("x", b"two")
    buckets.ask("DELETE", f"{JSON_API}/x")
    live = buckets.put("x", b"three").json["generation"]
    buckets.ask("DELETE", f"{JSON_API}/x?generation={live}")
    assert buckets.read("x") is None
    found = buckets.ask("GET", f"{JSON_API}?versions=true").json["items"]
    assert (len(found), found[0]["generation"]) == (2, first)
    assert buckets.ask("GET", f"{JSON_API}/x?alt=media&generation={first}").body == b"one"
    assert buckets.ask("DELETE", "/storage/v1/b/mine").status == 409
    for one in found:
        buckets.ask("DELETE", f"{JSON_API}/x?generation={one['generation']}")
    assert "items" not in buckets.ask("GET", f"{JSON_API}?versions=true&softDeleted=false").json
    buckets.check_files()


def test_a_rewrite_in_several_calls(buckets: Buckets) -> None:
    content = bytes(3 << 20)
    buckets.put("x", content)
    url, steps, token = (
        f"{JSON_API}/x/rewriteTo/b/mine/o/y?maxBytesRewrittenPerCall={1 << 20}",
        [],
        "",
    )
    while True:
        answer = buckets.ask("POST", url + (f"&rewriteToken={quote(token)}" if token else "")).json
        steps.append(int(answer["totalBytesRewritten"]) >> 20)
        if answer["done"]:
            break
        assert buckets.read("y") is None
        token = answer["rewriteToken"]
    assert (steps, buckets.read("y")) == ([1, 2, 3], content)
    buckets.put("x", b"changed")
    assert buckets.ask("POST", f"{url}&rewriteToken={quote(token)}").status == 400


def test_an_upload_of_numbered_parts(buckets: Buckets) -> None:
    begun = buckets.ask("POST", "/mine/a/b?uploads", content_type="text/x")
    assert begun.headers["content-type"].startswith("text/"), "Google's client for Node reads this"
    number = re.findall("<UploadId>(.*)</UploadId>", begun.body.decode())[0]
    tags = {}
    for part, body in ((2, b"two"), (1, b"lost"), (1, b"one")):
        url = f"/mine/a/b?partNumber={part}&uploadId={number}"
        tags[part] = buckets.ask("PUT", url, body).headers["etag"]
    assert buckets.read("a/b") is None

    def join(*parts: tuple[int, str]) -> Answer:
        text = ""
        for part, tag in parts:  # clients differ in what comes first
            both = (f"<PartNumber>{part}</PartNumber>", f"<ETag>{tag}</ETag>")
            text += f"<Part>{''.join(both[:: 1 if part == 1 else -1])}</Part>"
        return buckets.ask("POST", f"/mine/a/b?uploadId={number}", f"<C>{text}</C>".encode())

    assert join((2, tags[2]), (1, tags[1])).status == 400
    assert join((1, tags[2])).status == 400
    assert join((1, tags[1]), (2, tags[2])).status == 200
    assert buckets.read("a/b") == b"onetwo"
    assert buckets.ask("DELETE", f"/mine/a/b?uploadId={number}").status == 404
    assert buckets.ask("GET", f"{JSON_API}/a%2Fb").json["contentType"] == "text/x"
    buckets.check_files()


def test_a_copy_by_a_header(buckets: Buckets) -> None:
    buckets.put("a/x", b"1")
    copied = buckets.ask("PUT", "/mine/y", x_goog_copy_source="mine/a%2Fx")
    assert (copied.status, buckets.read("y"), buckets.read("a/x")) == (200, b"1", b"1")
    assert buckets.ask("PUT", "/mine/z", x_goog_copy_source="mine/none").status == 404
    assert buckets.ask("PUT", "/mine/z", x_goog_copy_source_if_match="1").status == 400
    assert buckets.read("z") is None
    buckets.check_files()


def test_a_move_and_the_layout(buckets: Buckets) -> None:
    buckets.put("x", b"1")
    assert buckets.ask("POST", f"{JSON_API}/x/moveTo/o/y%2Fz").json["name"] == "y/z"
    assert (buckets.read("x"), buckets.read("y/z")) == (None, b"1")
    layout = buckets.ask("GET", "/storage/v1/b/mine/storageLayout").json
    assert (layout["location"], layout["hierarchicalNamespace"]) == ("US", {"enabled": False})


def test_the_checksum_of_long_contents() -> None:
    """In lanes, as the plain sum byte by byte, and joined."""
    assert update_crc32c(0, b"123456789") == 0xE3069283
    content = Random(3).randbytes((1 << 20) + (1 << 14) + 7)
    plain = 0
    for start in range(0, len(content), 4096):
        plain = update_crc32c(plain, content[start : start + 4096])
    assert update_crc32c(0, content) == plain
    pieces = [content[:1000], content[1000:]]
    one, other = (encode_crc32c(update_crc32c(0, piece)) for piece in pieces)
    assert join_crc32c(one, other, len(pieces[1])) == encode_crc32c(plain)


def test_objects_of_earlier_versions_are_refused(buckets: Buckets) -> None:
    (buckets.folder / "mine").mkdir(parents=True)
    with pytest.raises(WorldError, match="mine has objects of an earlier version"):
        buckets.restart()


def test_bodies_mean_what_their_headers_say(buckets: Buckets) -> None:
    """A method in a header, gzip, and a batch, of which no credentials are kept."""
    buckets.put("x", b"1")
    assert buckets.ask("POST", "/mine/x", x_http_method_override="GET").body == b"1"
    for body, status in ((b'{"cacheControl": "no-store"}', 200), (bytes(BODY_BYTES_MAX + 9), 413)):
        packed = gzip.compress(body)
        answer = buckets.ask("PATCH", f"{JSON_API}/x", packed, content_encoding="gzip")
        assert answer.status == status
    assert buckets.ask("GET", f"{JSON_API}/x").json["cacheControl"] == "no-store"
    part, secret = f"--b\nContent-Type: application/http\n\nGET {JSON_API}/x", "Cookie: s3\n cret\n"
    body = f"{part} HTTP/1.1\n{secret}{part}?alt=media HTTP/1.1\n{secret}--b--".encode()
    headers: dict[str, Any] = {"content-type": "multipart/mixed; boundary=b"}
    batch = buckets.ask("POST", "/batch/storage/v1", body, **headers)
    assert re.findall(rb"HTTP/1.1 (\d+)", batch.body) == [b"200", b"400"]
    kept = unpack_body(Request(method="POST", path="/batch", headers=headers, body=body)).body
    assert kept == body.replace(secret.encode(), b"")
    assert buckets.ask("GET", "/x", host="mine.storage.googleapis.com").body == b"1"
    assert buckets.ask("GET", "/x", host="other.storage.googleapis.com").status == 404
    for host, scheme in (("storage.googleapis.com", "https"), ("localhost", "http")):
        place = buckets.ask("POST", f"{UPLOAD}?uploadType=resumable&name=x", host=host)
        assert place.headers["location"].startswith(f"{scheme}://{host}/upload/")


def test_a_host_has_the_users_weather_and_none_of_his_rights(buckets: Buckets) -> None:
    """The host of a node that is gone may do nothing, so only the door itself answers it."""
    buckets.put("a", b"a")
    there = f"{JSON_API}/a"
    assert buckets.ask("GET", there, x_sim_host="1-0").status == 200, "the user stays the user"
    user, host = buckets.app, host_app(buckets.contents, "1-0", WallClock())

    def ask(path: str, kind: str = "", said: bytes = b"", **headers: Any) -> Answer:
        buckets.app = user
        if kind:
            assert buckets.ask("POST", f"/sim/v1/weather/{kind}", said).status == 200
        buckets.app = host
        return buckets.ask("GET", path, host="169.254.169.254:4443", **headers)

    assert [ask(path).status for path in (there, "/v1/projects/demo")] == [403, 403]
    assert [ask(path).status for path in ("/sim/v1/log", "/sim/v1/world", "/")] == [404] * 3
    assert b"web pages may not use it" in ask(there, origin="https://evil.example").body
    assert ask(there, "http-error", b'{"http": 503, "times": 1}').status == 503
    begun = monotonic()
    assert ask(there, "delay", b'{"seconds": 0.2, "times": 1}').status == 403
    assert monotonic() - begun >= 0.2
    with pytest.raises(LostAnswer):
        ask(there, "lost-response", b'{"times": 1}')
