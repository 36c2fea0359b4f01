"""Batches: several requests in one, as parts of multipart/mixed, and so are their responses."""

import re
from collections.abc import Callable
from email.message import Message
from email.parser import BytesParser
from hashlib import blake2b
from http.client import responses as phrases
from urllib.parse import unquote, urlsplit

from tpuherd_sim.google_apis.bucket_access import HOST_HEADER, storage_error
from tpuherd_sim.model.compute_errors import unknown_path_page
from tpuherd_sim.model.http_types import Request, Response
from tpuherd_sim.tpu.errors import invalid_request_error, render_error

#: Never in a batch: contents of objects, other batches, and the world's own methods.
UNSERVED = frozenset(("_xml", "batch", "download", "resumable", "sim", "upload"))
FIRST_LINE = re.compile(r"([A-Z]+) (\S+)(?: HTTP/1\.[01])?\r?")


def answer_parts(batch: Request, answer: Callable[[Request], Response]) -> Response:
    """Answer each part as a request of its own; if a response is lost, all are."""
    parts, api = split_batch(batch), f"{batch.path}//".split("/")[2]
    most = 100 if api == "storage" else 1000  # documented; what Google's libraries send at most
    if len(parts) > most:
        raise invalid_request_error(
            f"The batch has {len(parts)} calls; at most {most} are allowed."
        )
    border = "batch_" + blake2b(batch.body, digest_size=16).hexdigest()
    body, delay_s, lost = b"", 0.0, False
    for name, part in parts:
        first = unquote(part.path).strip("/").partition("/")[0]
        served = first == api if api else first not in UNSERVED
        response = answer(part) if served else unknown_path_page(part.path)
        if response.parts:
            response = render_error(
                storage_error(400, "Media can't be read in a batch."), "storage"
            )
        delay_s, lost = max(delay_s, response.delay_s), lost or response.lost
        body += f"--{border}\r\n".encode() + render_part(name, response) + b"\r\n"
    kind = ("Content-Type", f"multipart/mixed; boundary={border}")
    body += f"--{border}--\r\n".encode()
    return Response(body=body, headers=(kind,), delay_s=delay_s, lost=lost)


def split_batch(batch: Request) -> list[tuple[str, Request]]:
    """Return the requests of a batch with their Content-IDs; refuse all if one is malformed."""
    kind = batch.headers.get("content-type", "")
    try:
        whole = b"Content-Type: %s\r\n\r\n%s" % (kind.encode(), batch.body)
        parts = list(BytesParser().parsebytes(whole).walk())[1:]
        found = [(one_line(part["Content-ID"]), read_part(batch, part)) for part in parts]
    except (LookupError, RecursionError, ValueError):
        found = []
    if not found:
        what = f"Received batch body: ({len(batch.body)}) bytes redacted"
        raise invalid_request_error(f"Failed to parse batch request, error: 0 items. {what}")
    return found


def read_part(batch: Request, part: Message) -> Request:
    """Return a part as a request to the host of the batch, by the caller of the batch."""
    line, _, rest = read_payload(part).lstrip(b"\r\n").partition(b"\n")
    first = FIRST_LINE.fullmatch(line.decode("ascii"))
    if first is None or part.get_content_type() != "application/http":
        raise ValueError("this is no request")
    inside, url = BytesParser().parsebytes(rest, headersonly=True), urlsplit(first[2])
    said = {name.lower(): one_line(value) for name, value in inside.items()}
    headers = {name: text for name, text in said.items() if name[:6] not in ("host", "x-sim-")}
    headers |= {key: text for key, text in batch.headers.items() if key in ("host", HOST_HEADER)}
    path, body = url.path or "/", read_payload(inside)
    return Request(method=first[1], path=path, query=url.query, headers=headers, body=body)


def read_payload(message: Message) -> bytes:
    content = message.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def one_line(value: object) -> str:
    """Return the text of a header, which may be folded or absent."""
    return " ".join(str(value or "").split())


def render_part(name: str, response: Response) -> bytes:
    headers = {"Content-Type": "application/json; charset=UTF-8"} if response.body else {}
    headers |= {header.title(): text for header, text in response.headers}
    headers["Content-Length"] = str(len(response.body))
    lines = [
        "Content-Type: application/http",
        *([f"Content-ID: <response-{name.strip('<>')}>"] if name else []),
        f"\r\nHTTP/1.1 {response.status} {phrases.get(response.status, 'Unknown')}",
        *(f"{header}: {text}" for header, text in headers.items()),
    ]
    return "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + response.body
