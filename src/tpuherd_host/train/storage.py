"""Storage of checkpoints: a folder or a bucket behind one interface."""

import json
import os
import shutil
import threading
import urllib.error
import urllib.request
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from http.client import HTTPException
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from tpuherd_host.train import process_env

GOOGLE = "https://storage.googleapis.com"
TOKEN_VARIABLE = "CLOUDSDK_AUTH_ACCESS_TOKEN"  #: of a user's own machine, as gcloud reads it
TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
TRIES = 4
PATIENCE_S = 60.0
PAUSE_S = 0.5  #: doubled at each try
EARLY_S = 300.0  #: a token is renewed this long before it expires

Bytes = bytes | memoryview


class Unreachable(OSError):
    """The location cannot be read or written; the message says why."""


class TemporarilyUnreachable(Unreachable):
    """The location does not respond now, but may later."""


def is_temporary(trouble: OSError) -> bool:
    """Whether another try may help: no permanent reason is known."""
    return isinstance(trouble, TemporarilyUnreachable) or not isinstance(
        trouble, (Unreachable, PermissionError, NotADirectoryError)
    )


class FileFacts(NamedTuple):
    """What a listing says of a file."""

    size: int
    changed: float  #: seconds since 1970


class Readable(Protocol):
    """What files of a checkpoint are read from."""

    def read(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        """Return a file or a part of it; FileNotFoundError."""
        ...


class Place(Readable, Protocol):
    """A storage location. Names are paths with slashes; a partly written file is invisible."""

    location: str

    def names(self, beginning: str = "") -> list[str]:
        """Return all names with this prefix, sorted."""
        ...

    def file_checksums(self, beginning: str = "") -> dict[str, int]:
        """Return all names with this prefix, each with a checksum of its content."""
        ...

    def file_facts(self, beginning: str = "") -> dict[str, FileFacts]:
        """Return all names with this prefix, each with its size and time."""
        ...

    def write(self, name: str, pieces: Sequence[Bytes]) -> None:
        """Write a file, replacing one of that name."""
        ...

    def remove(self, beginning: str) -> None:
        """Remove all files with this prefix, if any."""
        ...


def place(location: str, environ: Mapping[str, str] | None = None) -> Place:
    """Open `gs://bucket/path` or a folder."""
    if location.startswith("gs://"):
        return Bucket(
            location, environ if environ is not None else process_env.process_environment()
        )
    return Folder(location)


def of_run(checkpoint: str, run: str) -> str:
    """Return where a run saves: below the job's checkpoint, unless it is a trial's own already."""
    whole = checkpoint.rstrip("/")
    return whole if whole.endswith(f"/{run}") else f"{whole}/{run}"


def above_run(location: str, run: str) -> str:
    """Return what the runs of a job share: the folder above a run's own."""
    return location.rstrip("/").removesuffix(f"/{run}")


class Folder:
    """A folder, which must be visible on every host of the program."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.path = Path(location).expanduser()

    def names(self, beginning: str = "") -> list[str]:
        return sorted(name for name in self._all_names() if name.startswith(beginning))

    def file_checksums(self, beginning: str = "") -> dict[str, int]:
        return {name: zlib.crc32(self.read(name)) for name in self.names(beginning)}

    def file_facts(self, beginning: str = "") -> dict[str, FileFacts]:
        found = {}
        for name in self.names(beginning):
            try:
                stat = (self.path / name).stat()
            except FileNotFoundError:
                continue  # removed meanwhile
            found[name] = FileFacts(stat.st_size, stat.st_mtime)
        return found

    def _all_names(self) -> Iterator[str]:
        for folder, _, files in os.walk(self.path):
            for file in files:
                yield (Path(folder) / file).relative_to(self.path).as_posix()

    def read(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        with (self.path / name).open("rb") as stream:
            stream.seek(first)
            return stream.read(-1 if length is None else length)

    def write(self, name: str, pieces: Sequence[Bytes]) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with half.open("wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
            half.replace(path)
            sync_directory(path.parent)
        except OSError:
            half.unlink(missing_ok=True)
            raise

    def remove(self, beginning: str) -> None:
        whole = self.path / beginning.rstrip("/")
        if beginning.endswith("/") and whole.is_dir():
            shutil.rmtree(whole, ignore_errors=True)
            return
        for name in self.names(beginning):
            (self.path / name).unlink(missing_ok=True)


def sync_directory(folder: Path) -> None:
    """Sync a folder's entries to the disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Bucket:
    """A path in a bucket of Cloud Storage, or of the emulator in STORAGE_EMULATOR_HOST."""

    def __init__(self, location: str, environ: Mapping[str, str]) -> None:
        self.location = location.rstrip("/")
        self.bucket, _, path = self.location.removeprefix("gs://").partition("/")
        self.path = f"{path}/" if path else ""
        emulated = environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
        if emulated and "//" not in emulated:
            emulated = f"http://{emulated}"
        self.base = emulated or GOOGLE
        metadata = environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
        self.door = "" if emulated else f"http://{metadata}{TOKEN}"
        self.token, self.until = environ.get(TOKEN_VARIABLE, ""), 0.0
        if self.token:
            self.until = inf

    def names(self, beginning: str = "") -> list[str]:
        return sorted(
            item["name"].removeprefix(self.path) for item in self._list_objects(beginning)
        )

    def file_checksums(self, beginning: str = "") -> dict[str, int]:
        """Return the bucket's own checksums: nothing is read."""
        sums = {}
        for item in self._list_objects(beginning, "crc32c", "md5Hash"):
            digest = b64decode(item.get("crc32c") or item.get("md5Hash") or "")
            sums[item["name"].removeprefix(self.path)] = int.from_bytes(digest[:8], "big")
        return sums

    def file_facts(self, beginning: str = "") -> dict[str, FileFacts]:
        found = {}
        for item in self._list_objects(beginning, "size", "updated"):
            changed = datetime.fromisoformat(item["updated"].replace("Z", "+00:00"))
            name = item["name"].removeprefix(self.path)
            found[name] = FileFacts(int(item["size"]), changed.timestamp())
        return found

    def _list_objects(self, beginning: str, *fields: str) -> Iterator[dict[str, Any]]:
        """Yield all objects with this prefix: their names and these fields."""
        wanted = f"items({','.join(('name', *fields))}),nextPageToken"
        page: str | None = ""
        while page is not None:
            asked = {"prefix": self.path + beginning, "fields": wanted}
            query = urlencode(asked | ({"pageToken": page} if page else {}))
            answer: dict[str, Any] = json.loads(
                self._send_request("GET", f"/storage/v1/b/{self.bucket}/o?{query}")
            )
            yield from answer.get("items", ())
            page = answer.get("nextPageToken")

    def read(self, name: str, first: int = 0, length: int | None = None) -> bytes:
        headers = {}
        if first or length is not None:
            end = "" if length is None else first + length - 1
            headers["Range"] = f"bytes={first}-{end}"
        return self._send_request("GET", self._object_path(name) + "?alt=media", headers=headers)

    def write(self, name: str, pieces: Sequence[Bytes]) -> None:
        query = urlencode({"uploadType": "media", "name": self.path + name})
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(sum(len(piece) for piece in pieces)),
        }
        self._send_request("POST", f"/upload/storage/v1/b/{self.bucket}/o?{query}", pieces, headers)

    def remove(self, beginning: str) -> None:
        for name in self.names(beginning):
            try:
                self._send_request("DELETE", self._object_path(name))
            except FileNotFoundError:
                pass

    def _object_path(self, name: str) -> str:
        return f"/storage/v1/b/{self.bucket}/o/{quote(self.path + name, safe='')}"

    def _send_request(
        self,
        method: str,
        path: str,
        pieces: Sequence[Bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send one request, with a few retries."""
        pause_s = PAUSE_S
        for attempt in range(TRIES):
            request = urllib.request.Request(
                self.base + path,
                data=None if pieces is None else iter(pieces),  # type: ignore[arg-type]
                headers={**(headers or {}), **self._auth_headers()},
                method=method,
            )
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                    content: bytes = answer.read()
                    return content
            except urllib.error.HTTPError as error:
                trouble = self._classify_error(error, path)
            except (OSError, HTTPException) as error:
                trouble = TemporarilyUnreachable(f"{self.location} can't be reached: {error}")
            if attempt + 1 < TRIES:
                process_env.wait(pause_s)
                pause_s *= 2
        raise trouble

    def _classify_error(self, error: urllib.error.HTTPError, path: str) -> TemporarilyUnreachable:
        """Return errors that may pass; raise all others."""
        body = error.read().decode("utf-8", "replace")
        try:
            sentence = json.loads(body)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            sentence = body.strip()[:200] or str(error.reason)
        if error.code == 404 and "/o/" in path:
            raise FileNotFoundError(f"{self.location}: {sentence}")
        if error.code == 416:
            raise FileNotFoundError(f"{self.location}: shorter than it should be")
        failure = f"{self.location}: {sentence} (HTTP {error.code})"
        if error.code in (408, 429) or error.code >= 500:
            return TemporarilyUnreachable(failure)
        raise Unreachable(failure)

    def _auth_headers(self) -> Mapping[str, str]:
        """Return the token of the VM's service account; an emulator needs none."""
        if not self.door:
            return {}
        if process_env.wall_time() > self.until:
            request = urllib.request.Request(self.door, headers={"Metadata-Flavor": "Google"})
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                    content = json.load(answer)
            except (OSError, ValueError) as error:
                none = isinstance(error, urllib.error.HTTPError) and error.code == 404
                raise (Unreachable if none else TemporarilyUnreachable)(
                    f"{self.location}: no access token from the metadata server ({error}); "
                    "give the node a service account that may use the bucket, or set "
                    f"{TOKEN_VARIABLE} outside of Google"
                ) from error
            self.token = content["access_token"]
            self.until = process_env.wall_time() + float(content.get("expires_in", 0)) - EARLY_S
        return {"Authorization": f"Bearer {self.token}"}
