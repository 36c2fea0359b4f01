"""What one worker kept in a generation, as lines of JSON.

A head, then the parts, the rows, what the script removed of the code, and what was left out. Others
may write to the bucket: it is parsed once, with bounds.
"""

import hashlib
import json
import re
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from tpuherd_host.agent.snapshots.manifest import FOLDERS_MAX, PATH_MAX

ROWS_MAX, PARTS_MAX, SEGMENTS_MAX, LEFT_OUT_MAX = 100_000, 10_000, 4096, 1000
TEXT_MAX, HEAD_MAX = 128 << 20, 1 << 14
SIZE_MAX = 1 << 50
FILE, FOLDER, LINK = "f", "d", "l"
GENERATION = re.compile(r"(\d{9})\.(\d{10})")
PART = re.compile(r"parts/w\d{4,6}/(\d{9}\.\d{10})\.\d{4,6}\.tar")
SHA = re.compile(r"[0-9a-f]{64}")

Segments = Tuple[Tuple[int, int], ...]


class Generation(NamedTuple):
    attempt: int
    number: int

    def __str__(self) -> str:
        return f"{self.attempt:09}.{self.number:010}"


class Part(NamedTuple):
    name: str
    bytes: int


class Row(NamedTuple):
    """A kept file, folder or link."""

    path: bytes  #: in the working folder; absolute: elsewhere
    kind: str
    mode: int
    mtime_ns: int
    size: int = 0
    sha256: str = ""  #: of a file with holes: of what is between them
    part: str = ""  #: the name of the part that it begins in
    offset: int = 0  #: in that part
    target: bytes = b""  #: of a link
    code: str = ""  #: the content, as shipped, of the file that the script changed
    segments: Optional[Segments] = None  #: what is between holes

    @property
    def stored_bytes(self) -> int:
        """How many bytes of it are in parts."""
        return self.size if self.segments is None else sum(length for _, length in self.segments)


class Manifest(NamedTuple):
    """What one worker kept in a generation."""

    generation: Generation
    worker: int
    at: float
    parts: Tuple[Part, ...] = ()
    rows: Tuple[Row, ...] = ()
    gone: Tuple[Tuple[bytes, str], ...] = ()  #: what the script removed, as shipped or ""
    left_out: Tuple[Tuple[bytes, str], ...] = ()  #: paths and why


class Head(NamedTuple):
    """The first line of a manifest."""

    content: str  #: equal for equal files, whatever their times; "" for none
    lines: str  #: the digest of all other lines
    files: int
    bytes: int


def manifest_name(generation: Generation, worker: int, suffix: str = "jsonl") -> str:
    return f"generations/{generation}/w{worker:04}.{suffix}"


def parts_prefix(worker: int) -> str:
    return f"parts/w{worker:04}/"


def is_part_up_to(name: str, attempt: int) -> bool:
    """Whether a part is of this attempt or an earlier one."""
    found = PART.fullmatch(name)
    return found is not None and parse_generation(found.group(1)).attempt <= attempt


def member_name(path: bytes) -> bytes:
    """Return the name of a path in the tar stream."""
    return b"root" + path if path.startswith(b"/") else (b"folder/" + path).rstrip(b"/")


# ---- a manifest as text --------------------------------------------------------------------------


def format_manifest(one: Manifest) -> bytes:
    index = {part.name: number for number, part in enumerate(one.parts)}
    lines: List[Any] = [["part", *part] for part in one.parts]
    for row in one.rows:
        place = (index.get(row.part, 0), row.offset, decode(row.target), row.code, row.segments)
        facts = (row.kind, row.mode, row.mtime_ns, row.size, row.sha256)
        lines.append(["row", decode(row.path), *facts, *place])
    lines += (["gone", decode(path), code] for path, code in one.gone)
    lines += (["left", decode(path), why] for path, why in one.left_out[:LEFT_OUT_MAX])
    text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    head = {
        "version": 1,
        "generation": str(one.generation),
        "worker": one.worker,
        "at": one.at,
        "content": content_digest(one.rows),
        "lines": hashlib.sha256(text).hexdigest(),
        "files": sum(row.kind != FOLDER for row in one.rows),
        "bytes": sum(row.stored_bytes for row in one.rows),
    }
    return json.dumps(head).encode() + b"\n" + text


def decode(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def printable_path(path: bytes) -> str:
    """Return a path as one line of ASCII."""
    return ascii(decode(path))[1:-1]


def content_digest(rows: Iterable[Row]) -> str:
    """Return a digest that hosts with equal files have in common; "" if there are none."""
    facts = sorted(
        (decode(row.path), row.kind, row.mode, row.size, row.sha256, decode(row.target))
        for row in rows
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest() if facts else ""


def parse_head(text: bytes) -> Tuple[Head, Dict[str, Any]]:
    """Parse the first line of a manifest; ValueError."""
    line, newline, _ = text.partition(b"\n")
    try:
        found = json.loads(line.decode("ascii"))
        head = Head(**{name: found[name] for name in Head._fields})
        if not newline or found["version"] != 1:
            raise ValueError("its version is unknown")
    except (LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"not a manifest: {error}") from None
    if not (is_sha(head.lines) and (head.content == "" or is_sha(head.content))):
        raise ValueError("not a manifest")
    if not (is_number(head.files, ROWS_MAX) and is_number(head.bytes, SIZE_MAX)):
        raise ValueError("not a manifest")
    return head, found


def parse_manifest(text: bytes) -> Manifest:
    """Parse a manifest; ValueError for what leads elsewhere, has no end or was altered."""
    head, found = parse_head(text)
    body = text[text.index(b"\n") + 1 :]
    if len(text) > TEXT_MAX or hashlib.sha256(body).hexdigest() != head.lines:
        raise ValueError("the manifest is damaged")
    parts: List[Part] = []
    rows: List[Row] = []
    pairs: Dict[str, List[Tuple[bytes, str]]] = {"gone": [], "left": []}
    try:
        for line in body.splitlines():
            word, *facts = json.loads(line.decode("ascii"))
            if word == "part":
                parts.append(parse_part(*facts))
            elif word == "row":
                rows.append(parse_row(parts, *facts))
            else:
                path, text_of = facts
                pairs[word].append((parse_path(path, loose=word == "left"), check_text(text_of)))
            if max(len(rows), len(pairs["gone"]), len(pairs["left"])) > ROWS_MAX:
                raise ValueError("the manifest is too long")
        generation = parse_generation(found["generation"])
        worker, at = int(found["worker"]), float(found["at"])
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a manifest: {error}") from None
    if len({row.path for row in rows}) < len(rows):
        raise ValueError("the manifest names a path twice")
    lists = (tuple(parts), tuple(rows), tuple(pairs["gone"]), tuple(pairs["left"]))
    return Manifest(generation, worker, at, *lists)


def parse_part(name: Any, size: Any) -> Part:
    if not (PART.fullmatch(name) and is_number(size, SIZE_MAX)):
        raise ValueError("not a part")
    return Part(name, size)


def parse_row(parts: List[Part], path: Any, kind: Any, *facts: Any) -> Row:
    mode, mtime_ns, size, sha256, part, offset, target, code, segments = facts
    numbers = is_number(mode, 0o7777) and is_number(size, SIZE_MAX) and is_number(offset, SIZE_MAX)
    if not (numbers and type(mtime_ns) is int and abs(mtime_ns) < 1 << 62):
        raise ValueError("not the row of a file")
    if kind not in (FILE, FOLDER, LINK) or (kind == FILE) != is_sha(sha256):
        raise ValueError("not the row of a file")
    if code != "" and not is_sha(code):
        raise ValueError("not the row of a file")
    if not is_number(part, len(parts) - 1):
        raise ValueError("a row names no part")
    holes = None if segments is None else parse_segments(segments, size)
    where = parse_path(path, root=kind == FOLDER)
    goal = check_text(target).encode("utf-8", "surrogateescape")
    name = parts[part].name
    return Row(where, kind, mode, mtime_ns, size, sha256, name, offset, goal, code, holes)


def parse_segments(found: Any, size: int) -> Segments:
    """Parse what is between holes: in order, without overlaps, within the file."""
    end, segments = 0, []
    for start, length in found:
        if not (is_number(start, size) and is_number(length, size - start)) or start < end:
            raise ValueError("not the row of a file")
        end = start + length
        segments.append((start, length))
    if len(segments) > SEGMENTS_MAX:
        raise ValueError("not the row of a file")
    return tuple(segments)


def parse_path(text: Any, *, root: bool = False, loose: bool = False) -> bytes:
    """Return a path of a manifest; ValueError if it leads elsewhere."""
    path = check_text(text).encode("utf-8", "surrogateescape")
    if loose or (root and not path):
        return path
    names = path[1:].split(b"/") if path.startswith(b"/") else path.split(b"/")
    if any(name in (b"", b".", b"..") for name in names) or b"\0" in path:
        raise ValueError("a path leads elsewhere")
    if len(path) > PATH_MAX or len(names) > FOLDERS_MAX:
        raise ValueError("a path is too long")
    return path


def check_text(text: Any) -> str:
    if not isinstance(text, str) or len(text) > PATH_MAX:
        raise ValueError("not a text")
    return text


def is_number(found: Any, most: int) -> bool:
    return type(found) is int and 0 <= found <= most


def is_sha(found: Any) -> bool:
    return isinstance(found, str) and SHA.fullmatch(found) is not None


def parse_generation(text: Any) -> Generation:
    found = GENERATION.fullmatch(text)
    if found is None:
        raise ValueError("not a generation")
    return Generation(int(found.group(1)), int(found.group(2)))


class Piece(NamedTuple):
    """Where bytes of a file are."""

    part: int  #: its index
    first: int
    length: int


def pieces_of(row: Row, parts: Sequence[Part], index: int) -> Iterator[Piece]:
    """Yield where a file's bytes are: a large one continues in the parts after its first."""
    first, rest = row.offset, row.stored_bytes
    while rest > 0:
        if index >= len(parts):
            raise ValueError("a file ends in no part")
        length = min(rest, parts[index].bytes - first)
        if length > 0:
            yield Piece(index, first, length)
            rest -= length
        first, index = max(0, first - parts[index].bytes), index + 1
