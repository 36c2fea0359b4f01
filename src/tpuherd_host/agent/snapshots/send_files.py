"""Send files of this host or a snapshot back, in the stream format of snapshots."""

import glob
import os
import stat
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from tpuherd_host.agent.base_folder import place_path
from tpuherd_host.agent.frames import BLOBS
from tpuherd_host.agent.snapshots.manifest import (
    UNHASHED,
    pack_row,
    pack_rows,
    parse_row,
)
from tpuherd_host.agent.snapshots.stream import StreamContent, encode_stream
from tpuherd_host.agent.snapshots.tree import error_text
from tpuherd_host.agent.snapshots.tree_layout import load_rows, open_blobs
from tpuherd_host.agent.state_machine.transition import CallRefused
from tpuherd_host.agent.threaded_rpc import ThreadedCall

LEVEL = 3  #: as fast as most networks
PIECE = 1 << 20


def give_files(call: ThreadedCall) -> Mapping[str, Any]:
    """Send files and folders, given by paths or patterns from the code folder or the home."""
    home, code = Path(call.paths.home), str(call.content.get("code") or "")
    asked = [str(path) for path in call.content["paths"]]
    placed = [place_path(home, path, code) for path in asked]
    found, skipped = find_files(home, [path for path, _ in placed])
    rows = sorted(found)
    wanted = [(n, parse_row(each)) for n, each in enumerate(rows)]
    # The smallest first: logs and results have come if the rest is cut off.
    files = sorted(
        ((n, one) for n, one in wanted if not one.is_folder), key=lambda pair: pair[1].size
    )
    contents = (
        StreamContent(n, one.size, read_file(found[rows[n]], one.size, one.is_link))
        for n, one in files
    )
    head = {"give": len(files)}
    try:
        for block in encode_stream(head, pack_rows(rows), contents, lambda: LEVEL):
            call.write(BLOBS, block)
    except OSError as error:
        raise CallRefused("broken", error_text(error)) from None
    call.send_eof(BLOBS)
    only_home = [path for path, (_, at_home) in zip(asked, placed) if at_home]
    return {"skipped": skipped[:100], "only_home": only_home}


def give_snapshot(call: ThreadedCall) -> Mapping[str, Any]:
    """Send a snapshot by its id, every content once, to a controller that lost it; or its rows."""
    agent_folder, id = Path(call.paths.folder), str(call.content.get("id"))
    rows = load_rows(agent_folder, id) if len(id) == 64 and id.isalnum() else None
    first: Dict[bytes, StreamContent] = {}
    store = open_blobs(agent_folder)
    with store.shared_lock():
        for number, one in enumerate(map(parse_row, rows or ())):
            first.setdefault(one.id, StreamContent(number, one.size, store.read_pieces(one.id)))
        if rows is None or store.missing_ids(first):
            raise CallRefused("not-found", f"the snapshot {id[:12]} is not on this host")
        contents = [] if call.content.get("rows_only") else list(first.values())
        head = {"give": len(contents)}
        for block in encode_stream(head, pack_rows(rows), contents, lambda: LEVEL):
            call.write(BLOBS, block)
    call.send_eof(BLOBS)
    return {}


def find_files(home: Path, paths: List[str]) -> Tuple[Dict[bytes, bytes], List[str]]:
    """Return rows with their files, and paths that are neither file, folder nor symlink."""
    found: Dict[bytes, bytes] = {}
    skipped: List[str] = []
    tops: Dict[bytes, str] = {}
    for text in paths:
        text = text[2:] if text.startswith("~/") else text
        whole = str(home / text) if text not in ("", "~") else str(home)
        matches = [whole] if os.path.lexists(whole) else sorted(glob.glob(whole))
        if not matches:
            raise CallRefused("not-found", f"{text} is not there")
        for match in matches:
            top = os.fsencode(Path(match).name or "root")
            if top in tops:
                raise CallRefused(
                    "unfit", f"{tops[top]} and {match} have the same name; copy them separately"
                )
            tops[top] = match
            collect_files(os.fsencode(os.path.realpath(match)), top, found, skipped)
    if not found:
        raise CallRefused("unfit", f"{', '.join(skipped)}: neither a file nor a folder")
    return found, skipped


def collect_files(whole: bytes, path: bytes, found: Dict[bytes, bytes], skipped: List[str]) -> None:
    """Return a file, or a folder with everything in it."""
    waiting = [(whole, path)]
    while waiting:
        whole, path = waiting.pop()
        facts = os.lstat(whole)
        mtime_ns = facts.st_mtime_ns or 1
        if stat.S_ISDIR(facts.st_mode):
            found[pack_row(path, facts.st_mode, 0, UNHASHED, mtime_ns)] = whole
            with os.scandir(whole) as entries:
                waiting += [(entry.path, path + b"/" + entry.name) for entry in entries]
        elif stat.S_ISLNK(facts.st_mode):
            target = os.readlink(whole)
            found[pack_row(path, facts.st_mode, len(target), UNHASHED, mtime_ns)] = whole
        elif stat.S_ISREG(facts.st_mode):
            found[pack_row(path, facts.st_mode, facts.st_size, UNHASHED, mtime_ns)] = whole
        else:
            skipped.append(os.fsdecode(whole))


def read_file(whole: bytes, size: int, link: bool) -> Iterator[bytes]:
    """Read as many bytes as it had: a file that grows meanwhile is cut, one that shrinks fails."""
    if link:
        yield os.readlink(whole)
        return
    with open(whole, "rb") as file:
        while size:
            piece = file.read(min(size, PIECE))
            if not piece:
                raise CallRefused(
                    "broken", f"{os.fsdecode(whole)} shrank while it was read; try again"
                )
            size -= len(piece)
            yield piece
