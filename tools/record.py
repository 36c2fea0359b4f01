"""Records the traffic of programs with Google's APIs, with names replaced by keyed hashes.

    .venv/bin/python tools/record.py afternoon.jsonl     # ends by Ctrl-C

It is a proxy on this machine. It prints variables; programs that have them reach *.googleapis.com
through it, and every other address as before. One line of JSON a request says when it was sent,
what was asked and what was answered. Of values, record_schema.toml lists what stays.
"""

import argparse
import asyncio
import json
import os
import re
import secrets
import ssl
import sys
import tempfile
import time
import tomllib
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, urlsplit

import httpx2

from tpuherd.catalogue import discovery
from tpuherd_sim.client_env import TRUST
from tpuherd_sim.http.certificates import ensure_certificates, tls_context

SCHEMA = tomllib.loads(Path(__file__).with_name("record_schema.toml").read_text())
PLACE = SCHEMA["paths"]["place"]
TEXTS = {name: re.compile(form.replace("PLACE", PLACE)) for name, form in SCHEMA["texts"].items()}
PUBLIC = re.compile(SCHEMA["paths"]["public"].replace("PLACE", PLACE))
SEGMENTS, VERBS = (frozenset(SCHEMA["paths"][name].split()) for name in ("words", "verbs"))
NUMBERS, SENTENCES, MAPS, NAMES = (
    frozenset(SCHEMA["fields"][name].split()) for name in ("numbers", "sentences", "maps", "names")
)
WORDS = frozenset(SCHEMA["sentences"]["words"].split())
FIELDS = NAMES | {
    name
    for version in ("v2", "v2alpha1")
    for shape in discovery(version)["schemas"].values()
    for name in shape.get("properties", {})
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
STATE = re.compile(r"[A-Z][A-Z_]{3,39}")
FIELD = re.compile(r"[a-z][A-Za-z0-9]{1,39}")
API = re.compile(r"(?!oauth2\.)[a-z]+\.googleapis\.com")
#: Headers of one connection, and of encodings that the recorder takes away.
OWN_HEADERS = frozenset(
    "connection proxy-connection keep-alive transfer-encoding content-length content-encoding"
    " accept-encoding host te upgrade proxy-authorization".split()
)


@dataclass(frozen=True, kw_only=True)
class Scrubber:
    """Replaces values; the same value has the same hash in one recording."""

    key: bytes = field(default_factory=lambda: secrets.token_bytes(16))  #: is never written
    start: float  #: times are seconds since then

    def hide(self, value: object) -> str:
        """Return the hash of a value, which nobody without the key can check a guess against."""
        content = str(value).encode(errors="surrogatepass")
        return f"<{blake2b(content, key=self.key, digest_size=4).hexdigest()}>"

    def scrub_json(self, value: Any, name: str = "", *, reply: bool, known: bool = True) -> Any:
        """Return JSON without names; `known` is whether its fields are those of an API."""
        if isinstance(value, dict):
            inner = known and (name not in MAPS or "@type" in value)
            return {
                self.scrub_key(key, reply=reply, known=inner): self.scrub_json(
                    one, key if inner else "", reply=reply, known=inner and key in FIELDS
                )
                for key, one in value.items()
            }
        if isinstance(value, list):
            return [self.scrub_json(one, name, reply=reply, known=known) for one in value]
        if value is None or isinstance(value, bool) or value == "":
            return value
        if isinstance(value, str):
            return self.scrub_text(name if known else "", value)
        return value if known and name in NUMBERS else self.hide(value)

    def scrub_key(self, key: str, *, reply: bool, known: bool = True) -> str:
        """Return the name of a field; an answer's unknown field is a name that Google chose."""
        new = reply and FIELD.fullmatch(key) is not None
        return key if known and (key in FIELDS or new) else self.hide(key)

    def scrub_text(self, name: str, value: str) -> str:
        """Return what may stay of the text of a field."""
        if name in TEXTS and TEXTS[name].fullmatch(value):
            return value
        at = parse_time(value)
        if at is not None:
            return f"<{at - self.start:+.3f} s>"
        if name in SENTENCES:
            return " ".join(self.scrub_word(one) for one in value.split())
        if name and value.startswith(("projects/", "https://www.googleapis.com/compute/")):
            return self.scrub_path(value)
        return self.hide(value)

    def scrub_word(self, token: str) -> str:
        """Return a word of a sentence with its punctuation, or its hash."""
        core = token.strip("()[]{}<>,.;:!?\"'`")
        kept = core.lower() in WORDS or STATE.fullmatch(core) or not core
        return token if kept else token.replace(core, self.hide(core))

    def scrub_path(self, path: str) -> str:
        """Return a path with the API's own words and public names."""
        stem, colon, verb = path.rpartition(":")
        if not colon or verb not in VERBS:
            stem, colon, verb = path, "", ""
        parts = (
            one if not one or one in SEGMENTS or PUBLIC.fullmatch(one) else self.hide(one)
            for one in stem.split("/")
        )
        return "/".join(parts) + colon + verb

    def scrub_exchange(self, asked: "Asked", status: int, content: bytes) -> dict[str, Any]:
        """Return the line of a request with its answer."""
        where = urlsplit(asked.target)
        query = parse_qsl(where.query)
        body, reply = read_object(asked.body), read_object(content)
        return {
            "host": asked.host,
            "method": asked.method,
            "path": self.scrub_path(where.path),
            "query": [[self.scrub_key(n, reply=False), self.scrub_query(n, v)] for n, v in query],
            "body": self.scrub_json(body, reply=False),
            "status": status,
            "reply": self.scrub_json(reply, reply=True),
        }

    def scrub_query(self, name: str, value: str) -> str:
        """Return a parameter's value; an update mask names fields."""
        if name != "updateMask":
            return self.scrub_text(name, value)
        return re.sub(r"[^.,]+", lambda found: self.scrub_key(found[0], reply=False), value)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request of a program."""

    host: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def parse_time(value: str) -> float | None:
    """Return the seconds since 1970 of a time of the API."""
    try:
        return datetime.fromisoformat(value).timestamp() if TIME.fullmatch(value) else None
    except ValueError:
        return None


def read_object(content: bytes) -> dict[str, Any] | None:
    """Return a body's JSON object; None if it is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@dataclass(kw_only=True)
class Recorder:
    """The proxy, which appends to one file."""

    client: httpx2.AsyncClient
    front: ssl.SSLContext
    scrubber: Scrubber
    out: BinaryIO

    async def serve_program(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one connection of a program."""
        try:
            words = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode().split()
            host, _, port = words[1].rpartition(":")
            if words[0] != "CONNECT" or not port.isdecimal():
                writer.write(b"HTTP/1.1 405 Only CONNECT\r\nContent-Length: 0\r\n\r\n")
                return
            if not API.fullmatch(host):
                await tunnel(reader, writer, (host, int(port)))
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.start_tls(self.front)
            while (asked := await read_request(reader, host)) is not None:
                await self.answer_request(asked, writer)
        except (OSError, ValueError, IndexError, EOFError, asyncio.LimitOverrunError):
            pass  # the program left, or does not speak HTTP
        finally:
            writer.close()

    async def answer_request(self, asked: Asked, writer: StreamWriter) -> None:
        """Send the request on, give the program the answer, and record both."""
        begun = time.time()
        try:
            answer = await self.client.request(
                asked.method, f"https://{asked.host}{asked.target}",
                headers=dict(asked.headers), content=asked.body,
            )  # fmt: skip
            status, content, headers = answer.status_code, answer.content, answer.headers
        except httpx2.HTTPError as error:
            status, content, headers = 502, f"{error}\n".encode(), httpx2.Headers()
        kept = [f"{k}: {v}" for k, v in headers.multi_items() if k.lower() not in OWN_HEADERS]
        head = [f"HTTP/1.1 {status} Recorded", *kept, f"Content-Length: {len(content)}", "", ""]
        writer.write("\r\n".join(head).encode("latin-1") + content)
        await writer.drain()
        at = {"at": round(begun - self.scrubber.start, 3), "took_s": round(time.time() - begun, 3)}
        line = {**at, **self.scrubber.scrub_exchange(asked, status, content)}
        self.out.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


async def read_request(reader: StreamReader, host: str) -> Asked | None:
    """Read the next request; None: it is of a kind that no program of ours sends."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if "transfer-encoding" in headers:
        return None
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    kept = {name: value for name, value in headers.items() if name not in OWN_HEADERS}
    return Asked(host=host, method=method, target=target, headers=kept, body=body)


async def tunnel(reader: StreamReader, writer: StreamWriter, to: tuple[str, int]) -> None:
    """Connect a program with an address that is not recorded."""
    there_reader, there = await asyncio.open_connection(*to)
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def copy(source: StreamReader, sink: StreamWriter) -> None:
        while chunk := await source.read(1 << 16):
            sink.write(chunk)
            await sink.drain()
        sink.close()

    try:
        await asyncio.gather(copy(reader, there), copy(there_reader, writer))
    finally:
        there.close()


def trusted_bundle(own: Path) -> bytes:
    """Return the certificates that this machine trusts, and that of the recorder."""
    usual = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    return (Path(usual).read_bytes() if usual else b"") + b"\n" + own.read_bytes()


async def record(out: BinaryIO, folder: Path) -> None:
    """Print the variables, and record until this is cancelled."""
    found = ensure_certificates(folder / "tls", time.time())
    bundle = folder / "trusted.pem"
    bundle.write_bytes(trusted_bundle(found.authority))
    async with httpx2.AsyncClient(timeout=120) as client:
        scrubber = Scrubber(start=time.time())
        recorder = Recorder(client=client, front=tls_context(found), scrubber=scrubber, out=out)
        server = await asyncio.start_server(recorder.serve_program, "127.0.0.1")
        way = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        named = {
            **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), way),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
            **dict.fromkeys(TRUST, str(bundle)),
        }
        print(*(f"export {name}={value}" for name, value in named.items()), sep="\n", flush=True)
        await server.serve_forever()


def main() -> int:
    """Record until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="a new file: a line of JSON for each request")
    file = parser.parse_args().file
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        parser.error(f"{file} can't be created ({error.strerror}); name another file")
    with open(descriptor, "wb", buffering=0) as out, tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(record(out, Path(folder)))
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
