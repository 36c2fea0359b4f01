"""Responses of a metadata server, as a pure function of the tree and the request."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote

from tpuherd_sim.model.http_types import Request, Response

ROOT = "/computeMetadata/v1"
HOST = "http://metadata.google.internal"
#: A single value although it is written as an object.
DOCUMENTS = ("token", "upcoming-maintenance")
#: Keys below these are the user's own and unchanged in JSON.
VERBATIM = ("attributes", "guest-attributes")
FLAVOUR = (
    ("Metadata-Flavor", "Google"),
    ("Server", "Metadata Server for VM"),
    ("X-XSS-Protection", "0"),
    ("X-Frame-Options", "SAMEORIGIN"),
)
PAGE = (
    "<!DOCTYPE html>\n<html lang=en>\n<title>Error {status} ({title})</title>\n"
    "<p><b>{status}.</b> {title}.\n<p>{why}\n</html>\n"
)
TITLES = {301: "Moved Permanently", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeWait:
    """A request to respond only once the value differs from the known one."""

    last_etag: str | None
    timeout_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataEntry:
    """A position in the tree."""

    value: Any
    name: str
    verbatim: bool

    @property
    def is_folder(self) -> bool:
        return isinstance(self.value, dict) and self.name not in DOCUMENTS


def metadata_response(tree: dict[str, Any], request: Request) -> Response:
    """Return the current response to a read request."""
    query = {name: values[-1] for name, values in parse_qs(request.query).items()}
    if request.path in ("", "/"):
        return value_response(b"computeMetadata/\n", "application/text", "computeMetadata")
    if "x-forwarded-for" in request.headers:
        return error_page(403, "A request that was forwarded is not answered (X-Forwarded-For).")
    flavour = request.headers.get("metadata-flavor", "").lower() == "google"
    if not flavour and request.headers.get("x-google-metadata-request", "").lower() != "true":
        return error_page(403, "Missing Metadata-Flavor:Google header.")
    if request.method not in ("GET", "HEAD"):
        return error_page(405, f"{request.method} is not allowed here.")
    parts = [unquote(part) for part in request.path.split("/") if part]
    if parts == ["computeMetadata"]:
        return value_response(b"v1/\n", "application/text", "v1")
    found = find_entry(tree, parts[2:]) if parts[:2] == ["computeMetadata", "v1"] else None
    if found is None:
        return error_page(404, f"The requested URL <code>{request.path}</code> was not found here.")
    if found.name == "upcoming-maintenance" and "error" in found.value:
        return value_response(compact_json(found.value), "application/json", "none", status=404)
    recursive = query.get("recursive", "").lower() == "true"
    if found.is_folder and not recursive and not request.path.endswith("/"):
        where = HOST + request.path + "/"
        moved = error_page(301, f'The document is <a href="{where}">here</a>.')
        return Response(status=301, body=moved.body, headers=(*moved.headers, ("Location", where)))
    return entry_response(found, alt=query.get("alt", ""), recursive=recursive)


def entry_response(found: MetadataEntry, *, alt: str, recursive: bool) -> Response:
    """Return an entry in the requested format."""
    plain = without_secrets(found)
    etag = hashlib.blake2b(compact_json(plain), digest_size=8).hexdigest()
    if found.is_folder and not recursive:
        names = folder_names(found.value)
        if alt == "json":
            return value_response(compact_json(names), "application/json", etag)
        return value_response(
            "".join(f"{name}\n" for name in names).encode(), "application/text", etag
        )
    if alt == "json" or (recursive and alt != "text" and found.is_folder):
        body = compact_json(as_json(plain, verbatim=found.verbatim))
        return value_response(body, "application/json", etag)
    if found.is_folder:
        lines = "".join(f"{path} {value_text(value)}\n" for path, value in leaf_values(plain))
        return value_response(lines.encode(), "application/text", etag)
    kind = "application/json" if found.name in DOCUMENTS else "application/text"
    return value_response(value_text(found.value).encode(), kind, etag)


def requested_wait(request: Request) -> ChangeWait | None:
    """Return the parameters of `wait_for_change`, if given."""
    query = {name: values[-1] for name, values in parse_qs(request.query).items()}
    if query.get("wait_for_change", "").lower() != "true":
        return None
    limit = query.get("timeout_sec", "")
    timeout_s = float(limit) if limit.isdecimal() and int(limit) else None
    return ChangeWait(last_etag=query.get("last_etag"), timeout_s=timeout_s)


def response_etag(response: Response) -> str | None:
    """Return the ETag of the requested value."""
    return dict(response.headers).get("ETag") if response.status == 200 else None


def find_entry(tree: dict[str, Any], parts: list[str]) -> MetadataEntry | None:
    """Return the entry of a path."""
    found = MetadataEntry(value=tree, name="", verbatim=False)
    for part in parts:
        if not found.is_folder or part not in found.value:
            return None
        verbatim = found.verbatim or found.name in VERBATIM
        found = MetadataEntry(value=found.value[part], name=part, verbatim=verbatim)
    if found.name in VERBATIM:
        return MetadataEntry(value=found.value, name=found.name, verbatim=True)
    return found


def folder_names(folder: dict[str, Any]) -> list[str]:
    """Return the names in a folder; subfolders end with a slash."""
    return sorted(
        f"{name}/" if isinstance(value, dict) and name not in DOCUMENTS else name
        for name, value in folder.items()
    )


def without_secrets(found: MetadataEntry) -> Any:
    """Return the value; in folders without tokens and empty announcements."""
    return prune_secrets(found.value) if found.is_folder else found.value


def prune_secrets(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: prune_secrets(one)
        for name, one in value.items()
        if name != "token" and not (name == "upcoming-maintenance" and "error" in one)
    }


def as_json(value: Any, *, verbatim: bool = False) -> Any:
    """Return the server's JSON form: numbered folders are lists, names are camelCase."""
    if not isinstance(value, dict):
        return value
    if value and not verbatim and all(name.isdecimal() for name in value):
        return [as_json(value[name]) for name in sorted(value, key=int)]
    return {
        name if verbatim else camel_case(name): as_json(one, verbatim=verbatim or name in VERBATIM)
        for name, one in value.items()
    }


def camel_case(name: str) -> str:
    """Return networkInterfaces for network-interfaces; e-mail addresses stay."""
    if "@" in name:
        return name
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)


def leaf_values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf with its path."""
    if not isinstance(value, dict):
        yield path, value
        return
    for name, one in sorted(value.items()):
        yield from leaf_values(one, f"{path}/{name}" if path else name)


def value_text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(f"{one}\n" for one in value)
    return compact_json(value).decode() if isinstance(value, dict) else str(value)


def compact_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def value_response(body: bytes, kind: str, etag: str, *, status: int = 200) -> Response:
    headers = (*FLAVOUR, ("Content-Type", kind), ("ETag", etag))
    return Response(status=status, body=body, headers=headers)


def error_page(status: int, why: str) -> Response:
    body = PAGE.format(status=status, title=TITLES[status], why=why).encode()
    return Response(
        status=status, body=body, headers=(*FLAVOUR, ("Content-Type", "text/html; charset=UTF-8"))
    )
