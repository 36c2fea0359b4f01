"""A snapshot's manifest: sorted rows of path, kind, size and content id, as bytes.

A row is the path, a zero byte, then mode, mtime (0 in snapshots), size and sha256. Rows are
compared, sorted and sent as they are; the sha256 of all of them is the snapshot's id. A symlink's
content is its target. Only copies have rows for folders.
"""

import hashlib
import stat
import struct
from bisect import bisect_left
from itertools import islice
from operator import ge
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

TAIL = struct.Struct(">IqQ32s")
LENGTH = struct.Struct(">H")
END = TAIL.size + 1
KINDS = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)
UNHASHED = bytes(32)  #: the id of a content that was not hashed
PATH_MAX, FOLDERS_MAX = 4096, 256  #: Python removes a tree of a thousand folders in folders not
AWAY = (b"//", b"/./", b"/../")  #: what no path in a snapshot contains


class BadRows(ValueError):
    """These rows are not a valid snapshot."""


class ManifestRow(NamedTuple):
    """A parsed row."""

    path: bytes
    mode: int
    mtime_ns: int
    size: int
    id: bytes

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


def pack_row(path: bytes, mode: int, size: int, id: bytes, mtime_ns: int = 0) -> bytes:
    return path + b"\0" + TAIL.pack(mode, mtime_ns, size, id)


def parse_row(row: bytes) -> ManifestRow:
    return ManifestRow(row[:-END], *TAIL.unpack_from(row, len(row) - TAIL.size))


def pack_rows(rows: Iterable[bytes]) -> bytes:
    """Join all rows."""
    length = LENGTH.pack
    return b"".join([length(len(row)) + row for row in rows])


def unpack_rows(piece: bytes) -> List[bytes]:
    """Split joined rows."""
    rows, at, end, length = [], 0, len(piece), LENGTH.unpack_from
    while at < end:
        if at + 2 > end:
            raise BadRows("cut")
        after = at + 2 + length(piece, at)[0]
        rows.append(piece[at + 2 : after])
        at = after
    if at != end:
        raise BadRows("cut")
    return rows


def rows_id(rows: Iterable[bytes]) -> bytes:
    """Return the id of the snapshot with these rows."""
    return hashlib.sha256(pack_rows(rows)).digest()


def check_rows(rows: Sequence[bytes]) -> List[ManifestRow]:
    """Parse all rows; BadRows if a path leaves the tree or goes through a file."""
    if any(len(each) <= END for each in rows):
        raise BadRows("too short")
    found = [parse_row(each) for each in rows]
    paths = [one.path for one in found]
    trail = b"".join([b"/" + path + b"/\0" for path in paths])  # faster than one by one
    if any(away in trail for away in AWAY) or trail.count(b"\0") > len(paths):
        raise BadRows("not a path in a snapshot")
    if any(stat.S_IFMT(mode) not in KINDS for mode in {one.mode for one in found}):
        raise BadRows("neither file nor symlink")
    if any(len(one.path) > PATH_MAX or (one.is_link and one.size > PATH_MAX) for one in found):
        raise BadRows("the path is too long")
    if any(path.count(b"/") > FOLDERS_MAX for path in paths):
        raise BadRows(f"a path leads through more than {FOLDERS_MAX} folders")
    if len(set(paths)) < len(paths) or any(map(ge, rows, islice(rows, 1, None))):
        raise BadRows("out of order")
    barred = {one.path for one in found if not one.is_folder}
    waiting, passed = {path.rpartition(b"/")[0] for path in paths}, {b""}
    for above in waiting:
        while above not in passed:
            if above in barred:
                raise BadRows(f"leads through a file: {above!r}")
            passed.add(above)
            above = above.rpartition(b"/")[0]
    return found


def content_sizes(rows: Iterable[ManifestRow]) -> Dict[bytes, int]:
    """Return every content once, in the order of the rows, with its size."""
    found: Dict[bytes, int] = {}
    for one in rows:
        if not one.is_folder:
            found.setdefault(one.id, one.size)
    return found


def diff_rows(base: Sequence[bytes], rows: Sequence[bytes]) -> Tuple[List[bytes], List[bytes]]:
    """Return the removed paths and the new or changed rows."""
    put = sorted(set(rows).difference(base))
    stale = set(base).difference(rows)
    paths = {each[:-END] for each in put}
    return sorted({each[:-END] for each in stale} - paths), put


def apply_diff(base: Sequence[bytes], gone: Iterable[bytes], put: Iterable[bytes]) -> List[bytes]:
    """Apply what `diff_rows` returned."""
    put = list(put)
    away = {*gone, *(each[:-END] for each in put)}
    return sorted([*(each for each in base if each[:-END] not in away), *put])


def row_at_path(base: Sequence[bytes], path: bytes) -> Optional[ManifestRow]:
    """Return a snapshot's row for a path."""
    start = path + b"\0"
    at = bisect_left(base, start)
    return parse_row(base[at]) if at < len(base) and base[at].startswith(start) else None
