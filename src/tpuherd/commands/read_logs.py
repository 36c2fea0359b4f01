"""Reads the kept logs of a target as lines: `herd logs`, for programs."""

from collections.abc import Iterator

from tpuherd.commands.find_logs import Log, Look, found, nothing, submitted_at
from tpuherd.errors import NotFound
from tpuherd.results import LogLine
from tpuherd.settings.project_access import Scope
from tpuherd.store.log_store import Shelf
from tpuherd.views.fold_output import Block, Plain, cut
from tpuherd_host.agent.records import GAP, JUMP

PORTS = {1: "stdout", 2: "stderr"}
MISSING = b"[output is missing here]\n"


def read_logs(look: Look, scope: Scope, now: float) -> list[LogLine]:
    """All lines that are meant, by their time; NotFound where no log is."""
    shelf = Shelf(scope.logs)
    begun = {} if look.all_ or not look.target else submitted_at(look.target, scope.store, now)
    logs = found(look, shelf, begun)
    if not logs:
        raise NotFound(nothing(look, shelf), hint="what says nothing leaves no log")
    lines = [line for log in logs for line in read_lines(log, shelf, look.since or 0.0)]
    return sorted(lines, key=lambda line: line.at)


def read_lines(log: Log, shelf: Shelf, since: float) -> Iterator[LogLine]:
    """Those of one host."""
    plain = Plain()
    at = log.about.started
    for _, record in shelf.records(log.about.id, log.place):
        if record.at >= since:
            at = record.at
            text = MISSING if record.port in (GAP, JUMP) else record.piece
            for block in plain.feed("", record.port, text, at):
                yield from split_block(block, log)
    for block in plain.end("", at):
        yield from split_block(block, log)


def split_block(block: Block, log: Log) -> Iterator[LogLine]:
    """Each of its lines."""
    for line in cut(block.text):
        yield LogLine(
            host=log.label,
            at=block.at,
            port=PORTS.get(block.port, "agent"),
            text=line.decode(errors="replace").removesuffix("\n"),
            attempt=log.about.id,
        )
