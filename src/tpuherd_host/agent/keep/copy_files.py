"""One copy of what the script made: a moment of its files, as parts and a manifest.

How a copy goes: two looks a moment apart must agree, so what they agree on was there at one
instant. Files that differ from the last generation are read (part_writer.py), each as the look
found it, else the copy starts over. A file that a process has open for writing is not a moment's:
it is taken only if it grows, as a log does, up to the length that was seen. Then the list for tar
and the manifest are written, unless a later attempt has begun, and what is not needed is removed.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple, Union
from urllib.parse import quote_from_bytes, unquote_to_bytes

from tpuherd_host.agent.keep.file_listing import (
    FileEntry,
    Look,
    entries_over_bounds,
    file_clock_ns,
    find_code,
    find_open_files,
    find_root,
    find_roots,
    left_out_by,
    look_at,
    made_by_script,
    place_of,
    read_base,
    top_entry,
)
from tpuherd_host.agent.keep.generation import (
    END,
    Attempt,
    Passed,
    list_published,
    raise_if_passed,
)
from tpuherd_host.agent.keep.kept_manifest import (
    FOLDER,
    LINK,
    Generation,
    Manifest,
    Part,
    Row,
    format_manifest,
    manifest_name,
    member_name,
    parts_prefix,
    pieces_of,
    printable_path,
)
from tpuherd_host.agent.keep.kept_store import KeepConfig, KeptStore, Stored
from tpuherd_host.agent.keep.part_writer import (
    Deadline,
    PartWriter,
    Prefix,
    Take,
    digest_file,
    member_size,
)
from tpuherd_host.agent.keep.remove_old import OldGenerations, read_manifest
from tpuherd_host.agent.state_machine.transition import CallRefused

TRIES, PAUSE_S, APART_S = 3, 0.5, 0.02
YOUNG_NS = 10 * 10**9  #: where open files can't be seen, what is younger counts as open
JOINED_FROM, JOINED_TO, SMALL = 40, 20, 32_000_000  #: so many parts are joined, the small ones
REMOVE_EVERY = 16  #: copies that changed nothing
LEFT_OUT = "attempts/left-out/"
OPEN, REWRITTEN = "is open for writing", "is open and written anew again and again"


class Copied(NamedTuple):
    """A whole copy."""

    generation: Generation
    left_out: Tuple[Tuple[bytes, str], ...]
    files: int
    bytes: int
    is_new: bool  #: False: nothing changed, and the generation is the one before
    cost_s: float


class Missed(NamedTuple):
    """No copy this time; the last generation stays."""

    sentence: str
    passed: bool  #: a later attempt has begun: there will be none any more
    cost_s: float


class Seen(NamedTuple):
    """A file as a copy found it open."""

    copy: int  #: the number of the copy that saw it first
    prefix: Prefix


class Known(NamedTuple):
    """A row whose bytes are in parts, and the file as it was then."""

    entry: FileEntry
    row: Row


class Plan(NamedTuple):
    """What is to be done for one generation."""

    stay: Dict[bytes, Known]
    takes: List[Take]
    gone: Dict[bytes, str]
    left_out: Dict[bytes, str]
    blocked: List[bytes]  #: files that make it start over


class Keeper:
    """Copies what a script makes, generation after generation. Only one thread may use it."""

    def __init__(
        self, store: KeptStore, config: KeepConfig, begun: Attempt, home: Path, agent_folder: Path
    ) -> None:
        """The base must have been recorded, and the command must not run yet."""
        self._store, self._config, self._begun = store, config, begun
        self._agent_folder, self._roots = agent_folder, find_roots(config, home, agent_folder)
        self._patterns, self._code = left_out_by(config), find_code(config, home, agent_folder)
        self._base = read_base(config, agent_folder)
        self.pause: Callable[[float], object] = Event().wait
        self._known: Dict[bytes, Known] = {}
        self._parts: Dict[str, Part] = {}
        self._open: Dict[bytes, Seen] = {}
        self._rewritten: Dict[bytes, int] = {}  #: by which copy it was found so first
        self._tops: Dict[bytes, str] = {}  #: what is left out for its size
        self._manifest: Optional[Manifest] = None
        self._is_adopted = self._has_ended = False
        self._writer = PartWriter(store, Generation(config.attempt, 0), config.worker)
        self.old = OldGenerations(store, config, begun)
        self._last: Optional[Tuple[Look, Copied]] = None
        self._copies = self._published = 0

    def copy(
        self, number: int, *, last: bool = False, time_s: Optional[float] = None
    ) -> "Union[Copied, Missed]":
        """Make the generation of this number; `last`: nothing is spared for the command. Return
        Copied or Missed: nothing that a disk, a store or a script does is raised."""
        begun, deadline = time.monotonic(), Deadline(time_s)
        self._copies += 1
        try:
            found = self._copy(Generation(self._config.attempt, number), deadline, not last)
            return found._replace(cost_s=time.monotonic() - begun)
        except (Passed, OSError, ValueError, CallRefused) as error:
            sentence = getattr(error, "sentence", "") or str(error) or type(error).__name__
            return Missed(sentence, isinstance(error, Passed), time.monotonic() - begun)

    def _copy(self, generation: Generation, deadline: Deadline, calm: bool) -> Copied:
        if generation != self._writer.generation:
            self._writer = PartWriter(self._store, generation, self._config.worker)
        self._has_ended = generation.number >= END
        names: List[bytes] = []
        for turn in range(TRIES):
            if turn:
                self.pause(PAUSE_S * turn)
            deadline.check()
            look, growing, names = self._find_moment()
            if self._last and self._is_as_last(look):
                return self._last[1]._replace(is_new=False)
            if names:
                continue
            plan = self._plan(look, growing, deadline)
            names = plan.blocked
            if names:
                continue
            written = self._writer.write(plan.takes, deadline, calm=calm)
            self._parts.update({part.name: part for part in written.parts})
            self._known.update({p: Known(*found) for p, found in written.rows.items()})
            names = written.changed
            if not names:
                return self._publish(generation, look, plan)
        for path in names:
            seen = self._rewritten.get(path)
            self._rewritten[path] = self._copies if seen is None else seen
        some = ", ".join(printable_path(path) for path in sorted(names)[:3])
        raise OSError(f"files changed while they were copied, {TRIES} times: {some}")

    # ---- what is to be copied ----

    def _find_moment(self) -> Tuple[Look, Set[bytes], List[bytes]]:
        """Return what was there at one instant, files that grew since, and what else changed."""
        first = look_at(self._roots, self._patterns)
        if self._is_as_last(first):
            return first, set(), []
        clock_ns = file_clock_ns(self._agent_folder)
        self.pause(APART_S)
        second = look_at(self._roots, self._patterns).entries
        growing, differing = set(), []
        for path, entry in first.entries.items():
            later = second.get(path)
            if later is not None and later.is_same(entry):
                continue
            if later and entry.is_file and later.inode == entry.inode and later.size >= entry.size:
                growing.add(path)
            else:
                differing.append(path)
        new = (path for path in second if path not in first.entries)
        differing += (path for path in new if second[path].ctime_ns <= clock_ns)
        return first, growing, differing

    def _is_as_last(self, look: Look) -> bool:
        """Whether nothing at all has changed since the last generation, on a host that is alone."""
        alone = self._config.workers == 1 and not (self._open or self._rewritten)
        return alone and self._last is not None and self._last[0] == look

    def _plan(self, look: Look, growing: Set[bytes], deadline: Deadline) -> Plan:
        made, gone = made_by_script(look, self._roots, self._base, self._code)
        if not self._is_adopted:
            self._note_tops(raise_if_passed(self._store, self._config.attempt))
            self._adopt_rows(made, deadline)
            self._is_adopted = True
        plan = Plan({}, [], gone, dict(look.left_out), [])
        made = self._without_tops(made, plan.left_out)
        busy = self._find_busy(made, growing)
        for path, entry in made.items():
            known = self._known.get(path)
            if known and known.entry.is_same(entry):
                row = known.row
                if entry.is_folder:
                    row = row._replace(mtime_ns=entry.mtime_ns)
                plan.stay[path] = Known(entry, row)
            elif entry.is_file and not os.access(self._take(path, entry).place, os.R_OK):
                plan.left_out[path] = "can't be read"
            elif path in busy:
                self._plan_busy(plan, path, entry, deadline)
            else:
                plan.takes.append(self._take(path, entry))
        self._open = {p: seen for p, seen in self._open.items() if p in busy - self._known.keys()}
        self._rewritten = {p: copy for p, copy in self._rewritten.items() if p in busy}
        self._plan_joins(plan, busy)
        plan.takes.sort(key=lambda take: take.path.split(b"/"))  # tar sets a folder's time after it
        return plan

    def _take(self, path: bytes, entry: FileEntry, prefix: Optional[Prefix] = None) -> Take:
        root, code = find_root(path, self._roots), self._code.rows.get(path)
        place = place_of(path, root) if root else path
        id = code.id.hex() if code and not entry.is_folder else ""
        return Take(path, place, entry, id, prefix is not None, prefix)

    def _find_busy(self, made: Mapping[bytes, FileEntry], growing: Set[bytes]) -> Set[bytes]:
        """Return the files that are, or may be, open for writing."""
        writing, readable = find_open_files(self._roots)
        young_ns = 1 << 62
        if (self._config.hidden or not readable) and not self._has_ended:
            young_ns = file_clock_ns(self._agent_folder) - YOUNG_NS
        return growing | {
            path
            for path, entry in made.items()
            if entry.is_file and (entry.inode in writing or entry.ctime_ns > young_ns)
        }

    def _plan_busy(self, plan: Plan, path: bytes, entry: FileEntry, deadline: Deadline) -> None:
        """Take an open file if it only grows; else leave it out, or start over."""
        known, seen = self._known.get(path), self._open.get(path)
        if known and known.row.segments is None:
            prefix: Optional[Prefix] = Prefix(known.row.size, known.row.sha256)
        else:
            prefix = seen.prefix if seen and seen.copy < self._copies else None
        take = self._take(path, entry, prefix or Prefix(0, ""))
        if prefix and digest_file(take, prefix.length, deadline)[0] == prefix.sha256:
            plan.takes.append(take)
            return
        if known is None:
            if seen is None or seen.copy < self._copies:
                digest, _ = digest_file(take, entry.size, deadline)
                self._open[path] = Seen(self._copies, Prefix(entry.size, digest))
            plan.left_out[path] = OPEN
        elif self._rewritten.get(path, self._copies) < self._copies - 1:  # for two intervals
            plan.left_out[path] = REWRITTEN
        else:
            plan.blocked.append(path)

    def _without_tops(
        self, made: Dict[bytes, FileEntry], left_out: Dict[bytes, str]
    ) -> Dict[bytes, FileEntry]:
        """Remove whole top entries that are over the bounds, here or on another host."""

        def remaining_files() -> Dict[bytes, FileEntry]:
            tops = self._tops
            return {p: e for p, e in made.items() if top_entry(p, self._roots) not in tops}

        made = remaining_files() if self._tops else made
        over = entries_over_bounds(made, self._roots, self._config)
        for top, why in over.items():
            self._store.write_new(LEFT_OUT + quote_from_bytes(top, safe=""), [b""])
            self._tops[top] = why
        left_out.update(self._tops)
        return remaining_files() if over else made

    def _note_tops(self, names: List[Stored]) -> None:
        """Note what any host has left out for its size: all do."""
        for one in names:
            if one.name.startswith(LEFT_OUT):
                top = unquote_to_bytes(one.name[len(LEFT_OUT) :])
                self._tops.setdefault(top, "is over a bound on one of the hosts")

    def _plan_joins(self, plan: Plan, busy: Set[bytes]) -> None:
        """Copy again what stays of parts that are mostly unused, and of too many small ones."""
        live = dict.fromkeys((known.row.part for known in plan.stay.values()), 0)
        for known in plan.stay.values():
            live[known.row.part] += member_size(known.row)
        sizes = {name: self._parts[name].bytes for name in live}
        again = {name for name in live if live[name] < sizes[name] / 2}
        small = sorted((size, name) for name, size in sizes.items() if size < SMALL)
        if len(sizes) > JOINED_FROM:
            again |= {name for _, name in small[: len(sizes) - JOINED_TO]}
        for path, known in list(plan.stay.items()):
            if known.row.part in again:
                del plan.stay[path]
                row = known.row
                prefix = Prefix(row.size, row.sha256) if path in busy else None
                plan.takes.append(self._take(path, known.entry, prefix))

    def _adopt_rows(self, made: Mapping[bytes, FileEntry], deadline: Deadline) -> None:
        """Go on with the parts of this worker's last manifest where its files are as they were."""
        published = list_published(self._store.list("generations/"))
        worker, attempt = self._config.worker, self._config.attempt
        mine = [
            one
            for one, workers in published.workers.items()
            if worker in workers and one.attempt <= attempt
        ]
        if not mine:
            return
        with suppress(ValueError, FileNotFoundError):
            manifest = read_manifest(self._store, max(mine), worker)
            there = {one.name: one.bytes for one in self._store.list(parts_prefix(worker))}
            names = [part.name for part in manifest.parts]
            for row in manifest.rows:
                entry, index = made.get(row.path), names.index(row.part)
                pieces = pieces_of(row, manifest.parts, index)
                used = {manifest.parts[index], *(manifest.parts[one.part] for one in pieces)}
                if entry is None or any(there.get(part.name) != part.bytes for part in used):
                    continue
                if has_same_content(self._take(row.path, entry), row, deadline):
                    self._parts.update({part.name: part for part in used})
                    code = self._take(row.path, entry).code
                    self._known[row.path] = Known(entry, row._replace(code=code))

    # ---- to publish ----

    def _publish(self, generation: Generation, look: Look, plan: Plan) -> Copied:
        rows = {p: self._known[p] for p in (take.path for take in plan.takes)}
        self._known = {**plan.stay, **rows}
        manifest = self._make_manifest(generation, plan)
        is_new = self._last is None or has_changed(self._manifest, manifest)
        self._note_tops(raise_if_passed(self._store, generation.attempt))
        paths = b"".join(member_name(row.path) + b"\0" for row in manifest.rows)
        worker = self._config.worker
        self._store.write(manifest_name(generation, worker, "files"), [paths])
        text = format_manifest(manifest)
        if not self._store.write_new(manifest_name(generation, worker), [text]):
            raise OSError(f"generation {generation} has another manifest of this host already")
        self._manifest, self._published = manifest, self._published + 1
        files = [row for row in manifest.rows if row.kind != FOLDER]
        facts = (manifest.left_out, len(files), sum(row.stored_bytes for row in files))
        copied = Copied(generation, *facts, is_new, 0.0)
        self._last = (look, copied)
        if is_new or self._published % REMOVE_EVERY == 0:
            there = self.old.remove_unneeded(manifest)
            if any(there.get(part.name) != part.bytes for part in manifest.parts):
                self._known, self._parts, self._last = {}, {}, None  # removed by others
        return copied

    def _make_manifest(self, generation: Generation, plan: Plan) -> Manifest:
        rows = tuple(self._known[path].row for path in sorted(self._known))
        names = sorted(self._parts)
        index = {name: number for number, name in enumerate(names)}
        parts = [self._parts[name] for name in names]
        used = {row.part for row in rows}
        for row in rows:
            used.update(names[one.part] for one in pieces_of(row, parts, index[row.part]))
        self._parts = {name: self._parts[name] for name in names if name in used}
        pairs = tuple(sorted(plan.gone.items())), tuple(sorted(plan.left_out.items()))
        there = tuple(self._parts.values())
        return Manifest(generation, self._config.worker, time.time(), there, rows, *pairs)


def has_same_content(take: Take, row: Row, deadline: Deadline) -> bool:
    """Whether a file, folder or link is what a row says."""
    entry = take.entry
    if stat.S_IMODE(entry.mode) != row.mode:
        return False
    if row.kind == FOLDER or entry.is_folder:
        return row.kind == FOLDER and entry.is_folder
    if entry.mtime_ns != row.mtime_ns or (row.kind == LINK) == entry.is_file:
        return False
    if row.kind == LINK:
        return os.readlink(take.place) == row.target
    if entry.size != row.size:
        return False
    return digest_file(take, row.size, deadline) == (row.sha256, row.segments)


def has_changed(one: Optional[Manifest], other: Manifest) -> bool:
    """Whether two manifests differ in more than their moment and the times of folders."""
    if one is None or one[4:] == other[4:]:
        return one is None

    def facts(manifest: Manifest) -> object:
        rows = [r._replace(mtime_ns=0) if r.kind == FOLDER else r for r in manifest.rows]
        return rows, manifest.gone, manifest.left_out

    return facts(one) != facts(other)
