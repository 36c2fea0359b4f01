"""Writes the archive of `herd check --report FILE`: what a maintainer needs to find a bug.

Each part is read by itself, so that one that can't be read is a line of README.txt.
"""

import gzip
import os
import platform
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, TypeVar

from tpuherd._version import __version__
from tpuherd.checks.hide_secrets import SECRET, SECRET_NAME, hide_secrets, known_forms
from tpuherd.checks.machine_facts import Machine
from tpuherd.errors import HerdError, InvalidInput, NotAllowed
from tpuherd.files import atomic_write
from tpuherd.jobs.code_transfer import pack_tar
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
from tpuherd.views.printable import json_text

README = """\
What `herd check --report` found, as text. <hidden> and <hidden:…> stand for what
was removed; the same mark is the same value. Left out: secrets, your code, values of variables.
"""
ABOUT = {
    "versions.json": "herd, Python, packages, system, names of variables that are set",
    "checks.json": "what herd check found",
    "contexts.json": "your contexts and grants",
    "jobs.json": "the latest 50 jobs without values of env, labels, metadata and notify",
    "events.jsonl": "the newest 2,000 events",
    "crashes.json": "crashes and problems of the engine",
    "logs": "the last 256 kB of the logs of the engine and the daemon",
    "output": "the last 16 kB of the latest 5 attempts and setups that failed, of 16 hosts each",
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

    texts: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def read(self, what: str, function: Callable[[], T]) -> T | None:
        try:
            return function()
        except HerdError as error:
            self.problems.append(f"{what}: {error}")
        except Exception as error:  # noqa: BLE001 - what fails here may be the bug to report
            self.problems.append(f"{what}: {type(error).__name__}: {error}")
        return None

    def add(self, name: str, function: Callable[[], object]) -> None:
        """Add a text, or what else there is as JSON."""
        content = self.read(name, function)
        if content is not None:
            text = content if isinstance(content, str) else json_text(content, indent=1) + "\n"
            self.texts[name] = text


def check_new_file(path: Path) -> None:
    """Raise InvalidInput for a file that can't be new there."""
    if os.path.lexists(path):
        raise InvalidInput(f"{path} exists already", hint="name another file")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}", hint="create it, or name another")


def write_report(path: Path, results: Sequence[Mapping[str, Any]], machine: Machine) -> str:
    """Write the archive, and return what is in it, for the user."""
    report = Report()
    report.add("versions.json", lambda: describe_versions(machine.environ))
    report.add("checks.json", lambda: results)
    logs = {
        "contexts.json": machine.folders.config / CONTEXTS,
        "logs/daemon.txt": machine.folders.runtime / "keeper.txt",
    }
    secrets = [*variable_secrets(machine.environ), *stored_secrets(machine.folders.state)]
    scope = report.read("project", lambda: resolve_scope(machine.environ, world=machine.world))
    names = personal_names(machine.environ, scope)
    if scope is not None:
        logs |= {f"logs/{name}": scope.store_folder / name for name in ("engine.log", "engine.out")}
        if scope.has_store:
            secrets += add_store(report, scope, machine.clock.now(), names)
        if scope.database is not None:
            secrets.append(scope.database.password)
    for name, file in logs.items():
        report.add(name, partial(read_end, file))
    hide = partial(hide_secrets, known=known_forms(secrets, names), key=os.urandom(32))
    files = {name: hide(text).encode(errors="replace") for name, text in report.texts.items()}
    missing = [f"Not in it: {hide(' '.join(one.split()))}" for one in report.problems]
    listing = "\n".join([list_contents(files), *missing])
    files = {"README.txt": f"{README}{listing}\n".encode(errors="replace"), **files}
    archive = pack_tar({f"herd-report/{name}": content for name, content in files.items()})
    check_new_file(path)  # the checks took a while
    try:
        atomic_write(path, gzip.compress(archive))
    except OSError as error:
        sentence = f"{path} can't be written ({error.strerror})"
        raise NotAllowed(sentence, hint="name another file") from error
    return f"""Wrote {path}, which only you can read. Nothing was sent.
In it, without what looks like a secret:
{listing}
Read it before you send it: tar -xzOf {shlex.quote(str(path))} | less"""


def add_store(report: Report, scope: ProjectScope, now: float, names: dict[str, str]) -> list[str]:
    """Add what the store and logs have, and who submitted its jobs; return their private values."""
    store = report.read("store", lambda: open_database(scope, now))
    if store is None:
        return []
    try:
        jobs = report.read("jobs", store.stored_jobs) or {}
        report.add("jobs.json", lambda: list(show_jobs(jobs, store)))
        report.add("events.jsonl", lambda: newest_events(store))
        report.add("crashes.json", lambda: read_crashes(store, scope))
        output = LogStore(scope.logs_folder)
        report.read("output", lambda: report.texts.update(failed_output(store, output)))
    finally:
        store.close()
    for who in {name for one in jobs.values() for name in (one.who, one.user)}:
        user, _, host = who.partition("@")
        names |= {host: "<machine>"} | ({} if user in COMMON_NAMES else {user: "<user>"})
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
    found = sorted(store.read_events(limit=EVENTS_MAX, newest=True), key=lambda row: row[0])
    return "".join(f"{json_text(event_json(number, event))}\n" for number, event in found)


def read_crashes(store: Database, scope: ProjectScope) -> dict[str, Any]:
    found = store.read_events(kinds=("engine.crashed",), limit=JOBS_MAX, newest=True)
    return {
        "crashes": [event_json(number, event) for number, event in found],
        "problems": store.troubles.read(),
        "notices": read_notices(scope.store_folder),
    }


def failed_output(store: Database, shelf: LogStore) -> Iterator[tuple[str, str]]:
    """Yield the end of what the latest failed attempts and setups printed on each host."""
    kinds = ("attempt.ended", "slot.setup_failed")
    events = [event.facts for _, event in store.read_events(kinds=kinds, limit=200, newest=True)]
    bad = [facts for facts in events if facts.get("verdict") not in WELL]
    failed = {facts.get("attempt") or facts.get("bid") for facts in bad}
    logs = [log for log in shelf.list_logs() if {log.id, log.id.rpartition("-setup-")[0]} & failed]
    for log in logs[-ATTEMPTS_MAX:]:
        for host in log.places[:HOSTS_MAX]:
            yield f"output/{log.id}/{host.folder_name}.txt", output_end(shelf, log.id, host)


def output_end(shelf: LogStore, id: str, host: LogHost) -> str:
    start = max(0, shelf.end_offset(id, host) - OUTPUT_BYTES_MAX)
    pieces = (record.piece for _, record in shelf.read_records(id, host, start))
    return b"".join(pieces).decode(errors="replace")


def read_end(file: Path) -> str | None:
    """Return the last whole lines of a file; None if there is none."""
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        begin = max(0, stream.seek(0, os.SEEK_END) - LOG_BYTES_MAX)
        stream.seek(begin)
        piece = stream.read(LOG_BYTES_MAX)
    return (piece.partition(b"\n")[2] if begin else piece).decode(errors="replace")


def describe_versions(environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        "herd": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": {one.name: one.version for one in distributions()},
        "variables": sorted(name for name in environ if re.match(HEEDED, name)),
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


def list_contents(files: Mapping[str, bytes]) -> str:
    """Return a line for each file, with those of one folder as one."""
    sizes = Counter[str]()
    for name, content in files.items():
        sizes[name.partition("/")[0]] += len(content)
    rows = [(f"  {top}", format_bytes(size), ABOUT[top]) for top, size in sizes.items()]
    return format_table(rows, right=(1,))
