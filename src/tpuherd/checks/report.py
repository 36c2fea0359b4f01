"""Writes the archive of `herd check --report FILE`: what a maintainer needs to find a bug.

Each part is read by itself, so that one that can't be read is a line of README.txt.
"""

import errno
import io
import json
import os
import platform
import shlex
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from re import match
from typing import Any, TypeVar

from tpuherd._version import __version__
from tpuherd.checks.hide_secrets import SECRET, SECRET_NAME, hide_secrets, known_forms
from tpuherd.checks.machine_facts import Machine
from tpuherd.errors import HerdError, InvalidInput, NotAllowed, OperationFailed
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings.contexts_file import FILE as CONTEXTS
from tpuherd.settings.folders import home_folder
from tpuherd.settings.project_access import ProjectScope, local_user, resolve_scope
from tpuherd.store.database import Database
from tpuherd.store.log_store import LogHost, LogStore
from tpuherd.store.open_database import open_database
from tpuherd.store.set_aside import read_notices
from tpuherd.views.event_lines import event_json
from tpuherd.views.format_text import format_bytes, format_table

ABOUT = {
    "versions.json": "herd, Python, packages, system, names of variables that are set",
    "checks.json": "what herd check found",
    "contexts.json": "your contexts and grants",
    "jobs.json": "jobs without values of env, labels, metadata and notify, and what slots wait for",
    "events.jsonl": "the newest events",
    "crashes.json": "crashes and problems of the engine",
    "logs": "the ends of the logs of the engine and the daemon",
    "output": "the last lines of attempts and setups that failed",
}
EVENTS_MAX, JOBS_MAX, ATTEMPTS_MAX, HOSTS_MAX = 2000, 50, 5, 16
LOG_BYTES_MAX, OUTPUT_BYTES_MAX = 256 << 10, 16 << 10  #: of the end of each log
PRIVATE_FIELDS = ("env", "labels", "metadata", "notify")
PRIVATE_MIN = 6  #: shorter values of env are common words and numbers
HEEDED = r"(HERD|XDG|GOOGLE|CLOUDSDK|GCE|GIT|UV|PIP|SSL|JAX|TPU)_|NO_|LANG$|LC_|TERM$|\w+_proxy"
WELL = ("success", "stopped")
COMMON_NAMES = ("root", "herd", "user", "ubuntu")  #: of users; they say nothing about a person
T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class Report:
    """The texts so far, and why others are missing."""

    files: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def read(self, what: str, function: Callable[[], T]) -> T | None:
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - what fails here may be the bug to report
            known = isinstance(error, HerdError)
            self.problems.append(
                f"{what}: {error if known else f'{type(error).__name__}: {error}'}"
            )
            return None

    def add(self, files: Callable[[], Iterable[tuple[str, str]]], what: str) -> None:
        self.read(what, lambda: self.files.update(files()))


def check_new_file(path: Path) -> None:
    """Raise InvalidInput for a file that can't be new there."""
    if os.path.lexists(path):
        raise InvalidInput(f"{path} exists already", hint="name another file")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}", hint="create it, or name another")


def write_report(path: Path, results: Sequence[Mapping[str, Any]], machine: Machine) -> str:
    """Write the archive, and return what is in it, for the user."""
    report = Report()
    report.add(lambda: [("versions.json", to_json(versions(machine)))], "versions")
    report.add(lambda: [("checks.json", to_json(results))], "checks")
    contexts = machine.folders.config / CONTEXTS
    report.add(lambda: read_ends({"contexts.json": contexts}), "contexts")
    report.add(
        lambda: read_ends({"logs/daemon.txt": machine.folders.runtime / "keeper.txt"}), "daemon"
    )
    scope = report.read("project", lambda: resolve_scope(machine.environ, world=machine.world))
    secrets = [*variable_secrets(machine.environ), *stored_secrets(machine.folders.state)]
    if scope is not None:
        logs = {f"logs/{name}": scope.store_folder / name for name in ("engine.log", "engine.out")}
        report.add(lambda: read_ends(logs), "logs")
        if scope.has_store:
            secrets += add_store(report, scope, machine.clock.now())
        if scope.database is not None:
            secrets.append(scope.database.password)
    known = known_forms(secrets, personal_names(machine.environ, scope))
    key = os.urandom(32)
    files = {name: hide_secrets(text, known, key) for name, text in report.files.items()}
    missing = [hide_secrets(" ".join(one.split()), known, key) for one in report.problems]
    listing = "\n".join([contents(files), *(f"Not in it: {one}" for one in missing)])
    write_new_file(path, pack({"README.txt": f"{README}\n{listing}\n", **files}))
    return f"""Wrote {path}, which only you can read. Nothing was sent. In it, without secrets:
{listing}
Read it before you send it: tar -xzOf {shlex.quote(str(path))} | less"""


README = """\
What `herd check --report` found, as text. <hidden> and <hidden:…> stand for what
was removed; the same mark is the same value."""


def add_store(report: Report, scope: ProjectScope, now: float) -> list[str]:
    """Add what the store and the logs of attempts have; return the private values of jobs."""
    store = report.read("store", lambda: open_database(scope, now))
    if store is None:
        return []
    try:
        jobs = report.read("jobs", store.stored_jobs) or {}
        report.add(lambda: [("jobs.json", to_json(list(show_jobs(jobs, store))))], "jobs")
        report.add(lambda: [("events.jsonl", newest_events(store))], "events")
        report.add(lambda: [("crashes.json", to_json(crashes(store, scope)))], "crashes")
        report.add(lambda: failed_output(store, LogStore(scope.logs_folder)), "output")
    finally:
        store.close()
    found = (one.document.get(name) for one in jobs.values() for name in PRIVATE_FIELDS[:3])
    values = (str(value) for one in found if isinstance(one, Mapping) for value in one.values())
    return [value for value in values if len(value) >= PRIVATE_MIN]


def show_jobs(jobs: Mapping[str, StoredJob], store: Database) -> Iterator[dict[str, Any]]:
    messages = store.slot_messages()
    for one in sorted(jobs.values(), key=lambda one: -one.changed_at)[:JOBS_MAX]:
        document = dict(one.document)
        for name in {*PRIVATE_FIELDS} & document.keys():
            inside = document[name]
            document[name] = dict.fromkeys(inside, SECRET) if isinstance(inside, dict) else SECRET
        slots = {slot: messages.get(slot) for slot in one.slot_names}
        yield {**asdict(one), "document": document, "slots": slots}


def newest_events(store: Database) -> str:
    found = list(store.read_events(limit=EVENTS_MAX, newest=True))
    rows = (event_json(number, event) for number, event in sorted(found, key=lambda row: row[0]))
    return "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in rows)


def crashes(store: Database, scope: ProjectScope) -> dict[str, Any]:
    found = store.read_events(kinds=("engine.crashed",), limit=JOBS_MAX, newest=True)
    return {
        "crashes": [event_json(number, event) for number, event in found],
        "problems": [asdict(one) for one in store.troubles.read()],
        "notices": read_notices(scope.store_folder),
    }


def failed_output(store: Database, shelf: LogStore) -> Iterator[tuple[str, str]]:
    """Yield the end of what the latest failed attempts and setups printed on each host."""
    kinds = ("attempt.ended", "slot.setup_failed")
    events = [event.facts for _, event in store.read_events(kinds=kinds, limit=200, newest=True)]
    failed = {str(one.get("attempt")) for one in events if one.get("verdict") not in WELL}
    bids = {str(one["bid"]) for one in events if "message" in one and "bid" in one}
    logs = [
        log
        for log in shelf.list_logs()
        if log.id in failed or log.id.partition("-setup-")[0] in bids
    ]
    for log in logs[-ATTEMPTS_MAX:]:
        for host in log.places[:HOSTS_MAX]:
            yield f"output/{log.id}/{host.folder_name}.txt", output_end(shelf, log.id, host)


def output_end(shelf: LogStore, id: str, host: LogHost) -> str:
    start = max(0, shelf.end_offset(id, host) - OUTPUT_BYTES_MAX)
    known = max((one for one in shelf.segment_offsets(id, host) if one <= start), default=0)
    pieces = (record.piece for _, record in shelf.read_records(id, host, start, known=known))
    return b"".join(pieces).decode(errors="replace")


def read_ends(files: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    """Yield the last whole lines of the files that exist."""
    for name, file in files.items():
        if file.is_file():
            with file.open("rb") as stream:
                begin = max(0, stream.seek(0, os.SEEK_END) - LOG_BYTES_MAX)
                stream.seek(begin)
                piece = stream.read(LOG_BYTES_MAX)
            yield name, (piece.partition(b"\n")[2] if begin else piece).decode(errors="replace")


def versions(machine: Machine) -> dict[str, Any]:
    return {
        "herd": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": {one.name: one.version for one in distributions()},
        "variables": sorted(name for name in machine.environ if match(HEEDED, name)),
    }


def variable_secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the values of variables whose names say that they are secret."""
    return [
        value for name, value in environ.items() if SECRET_NAME.search(name) and value[:1] != "/"
    ]


def stored_secrets(state: Path) -> Iterator[str]:
    """Yield the secrets of all jobs and receivers, and our own tokens, of every project."""
    for file in (*state.glob("engines/*/secrets/*/*"), *state.glob("**/ui-token")):
        with suppress(OSError):
            if file.name != "receivers":  # how people are told; its secret texts are beside it
                yield file.read_text(errors="replace")


def personal_names(environ: Mapping[str, str], scope: ProjectScope | None) -> dict[str, str]:
    """Return the names of the user, machine and project, with what to show instead."""
    home, machine = home_folder(environ), os.uname().nodename
    users = {environ.get("USER", ""), environ.get("LOGNAME", ""), local_user(), home.name}
    names = dict.fromkeys(users.difference(COMMON_NAMES), "<user>")
    names |= dict.fromkeys({machine, machine.partition(".")[0]} - {"localhost"}, "<machine>")
    names |= {scope.project: "<project>"} if scope is not None else {}
    return names | dict.fromkeys({str(home), str(home.resolve())} - {"/"}, "~")


def to_json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n"


def contents(files: Mapping[str, str]) -> str:
    """Return a line for each file, with those of one folder as one."""
    sizes: dict[str, int] = {}
    for name, text in files.items():
        top = name.partition("/")[0]
        sizes[top] = sizes.get(top, 0) + len(text.encode(errors="replace"))
    rows = [(f"  {top}", format_bytes(size), ABOUT[top]) for top, size in sizes.items()]
    return format_table(rows, right=(1,))


def pack(files: Mapping[str, str]) -> bytes:
    """Return a compressed archive with nothing of this user in its headers."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, text in files.items():
            content = text.encode(errors="replace")
            entry = tarfile.TarInfo(f"herd-report/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def write_new_file(path: Path, content: bytes) -> None:
    """Write a file that only its user can read; nothing is left of one that did not fit."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    created = False
    try:
        with open(os.open(path, flags, 0o600), "wb") as stream:
            created = True
            stream.write(content)
    except OSError as error:
        if created:
            path.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OperationFailed(
                f"the disk is full: {path} can't be written", hint="name a file on another disk"
            ) from error
        raise NotAllowed(
            f"{path} can't be written ({error.strerror})", hint="name another file"
        ) from error
