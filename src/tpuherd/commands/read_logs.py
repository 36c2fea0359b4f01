"""Reads the logs of a target as lines: `herd logs` for Python."""

from collections.abc import Iterator

from tpuherd.commands.find_logs import (
    HostLog,
    LogQuery,
    find_logs,
    no_logs_sentence,
    submission_times,
)
from tpuherd.errors import NotFound
from tpuherd.results import LogLine
from tpuherd.settings.project_access import ProjectScope
from tpuherd.store.log_store import LogCursor, LogStore
from tpuherd.views.fold_output import Block, PlainMerger, split_lines

PORTS = {1: "stdout", 2: "stderr"}


def read_logs(look: LogQuery, scope: ProjectScope, now: float) -> list[LogLine]:
    """Return all matching lines in order of time; raise NotFound if there is no log."""
    shelf = LogStore(scope.logs_folder)
    begun = {} if look.all_ or not look.target else submission_times(look.target, scope, now)
    logs = find_logs(look, shelf, begun)
    if not logs:
        raise NotFound(no_logs_sentence(look, shelf), hint="commands without output leave no log")
    lines = [line for log in logs for line in read_lines(log, shelf, look.since or 0.0)]
    return sorted(lines, key=lambda line: line.at)


def read_lines(log: HostLog, shelf: LogStore, since: float) -> Iterator[LogLine]:
    plain = PlainMerger()
    at = log.about.started
    for at, port, text in LogCursor(shelf, since).read_new(log.about.id, log.place):
        for block in plain.feed("", port, text, at):
            yield from split_block(block, log)
    for block in plain.end_host("", at):
        yield from split_block(block, log)


def split_block(block: Block, log: HostLog) -> Iterator[LogLine]:
    for line in split_lines(block.text):
        yield LogLine(
            host=log.label,
            at=block.at,
            port=PORTS.get(block.port, "agent"),
            text=line.decode(errors="replace").removesuffix("\n"),
            attempt=log.about.id,
        )
