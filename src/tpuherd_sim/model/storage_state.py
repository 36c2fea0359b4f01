"""The state of Cloud Storage beside its buckets: objects, their generations, and uploads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tpuherd_sim.model.http_types import Part


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """Immutable bytes in files, with their checksums in base64."""

    parts: tuple[Part, ...]
    crc32c: str
    md5: str = ""  #: "" for one that was composed of others
    components: int = 0  #: how many those were

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredObject:
    """One generation of an object."""

    bucket: str
    name: str
    generation: int
    content: Content
    created: float
    updated: float
    fields: Mapping[str, Any]  #: what the writer said: contentType, metadata, …
    metageneration: int = 1
    #: members by role, where access is not uniform; None: what its bucket gives new objects
    bindings: Mapping[str, tuple[str, ...]] | None = None
    deleted: float | None = None  #: when it was overwritten or deleted; None: it is the live one
    released: float = 0.0  #: when its event-based hold ended
    expires: float | None = None  #: when a soft-deleted one can't be restored any more


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """An upload in several requests. Nothing of it can be read before its last request."""

    bucket: str
    name: str
    fields: Mapping[str, Any]
    conditions: Mapping[str, str]  #: ifGenerationMatch, …
    checksums: Mapping[str, str]  #: what the writer announced: crc32c, md5Hash
    parts: tuple[Part, ...] = ()  #: of a resumable one
    numbered: Mapping[str, Content] = field(default_factory=dict)  #: of one by the XML API
    finished: Mapping[str, Any] | None = None  #: its response, which may be asked for again

    @property
    def received_bytes(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(kw_only=True)
class Storage:
    """All objects of a world, and uploads that are under way."""

    #: by "BUCKET/NAME", the generations that exist, the newest last
    objects: dict[str, tuple[StoredObject, ...]] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)  #: how many parts are in each file
    freed: list[str] = field(default_factory=list)  #: files that the server may delete
    newest: int = 0  #: the highest generation so far

    def add_references(self, parts: tuple[Part, ...]) -> None:
        for part in parts:
            self.files[part.file] = self.files.get(part.file, 0) + 1

    def drop_references(self, parts: tuple[Part, ...]) -> None:
        for part in parts:
            self.files[part.file] -= 1
            if not self.files[part.file]:
                del self.files[part.file]
                self.freed.append(part.file)
