"""The logs in a bug report: of the engine, the daemon, and of a job's last attempts."""

from collections.abc import Iterator
from pathlib import Path

from tpuherd.bug_report.report_file import ReportFile, read_tail
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.log_store import MISSING, OF_JOB, LogHost, LogInfo, LogStore
from tpuherd_host.agent.log_records import GAP, JUMP

LOG_MAX = 1 << 20  #: bytes of the end of each log of our own
OUTPUT_MAX = 64 << 10  #: bytes of the output of each host
ATTEMPTS_MAX, HOSTS_MAX = 3, 16
OWN_LOGS = {
    "engine.log.1": "the engine's older log",
    "engine.log": "the engine's log",
    "engine.out": "what the engine printed",
}
DAEMON_LOG = "keeper.txt"


def own_log_files(scope: ProjectScope | None, runtime: Path) -> Iterator[ReportFile]:
    """Yield the ends of the logs of our own programs."""
    if scope is not None:
        for name, about in OWN_LOGS.items():
            yield from tail_file(f"engine/{name}", scope.store_folder / name, about)
    yield from tail_file(f"daemon/{DAEMON_LOG}", runtime / DAEMON_LOG, "what the daemon printed")


def tail_file(name: str, file: Path, about: str) -> Iterator[ReportFile]:
    if file.is_file():
        text = read_tail(file, LOG_MAX)
        if text:
            yield ReportFile(name=name, text=text, about=about)


def output_files(scope: ProjectScope, job: str) -> Iterator[ReportFile]:
    """Yield the end of what the last attempts and setups of a job printed, by host."""
    shelf = LogStore(scope.logs_folder)
    of_job = [log for log in shelf.list_logs() if is_log_of(job, log.id)]
    for log in of_job[-ATTEMPTS_MAX:]:
        for place in log.places[:HOSTS_MAX]:
            yield ReportFile(
                name=f"output/{log.id}/{place.folder_name}.txt",
                text=output_tail(shelf, log, place),
                about=f"the end of what {log.kind} {log.id} printed",
            )


def is_log_of(job: str, id: str) -> bool:
    named = OF_JOB.fullmatch(id)
    return named is not None and named["job"] == job


def output_tail(shelf: LogStore, log: LogInfo, place: LogHost) -> str:
    end = shelf.end_offset(log.id, place)
    starts = [one for one in shelf.segment_offsets(log.id, place) if one <= end - OUTPUT_MAX]
    known = starts[-1] if starts else 0
    records = shelf.read_records(log.id, place, max(0, end - OUTPUT_MAX), known=known)
    pieces = (MISSING if one.port in (GAP, JUMP) else one.piece for _, one in records)
    return b"".join(pieces).decode(errors="replace")
