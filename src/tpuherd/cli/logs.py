"""`herd logs`: shows the output of hosts, even of deleted ones."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import merge
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tpuherd.cli.formats import Moment, clock_text
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.errors import InvalidInput, NotFound
from tpuherd.settings import project_access
from tpuherd.store.log_store import LogCursor, LogHost, LogStore
from tpuherd.targets import fold_names
from tpuherd.views.fold_output import (
    Block,
    FoldingMerger,
    PlainMerger,
    json_line,
    split_lines,
)
from tpuherd.views.printable import show_bytes, show_controls

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.find_logs import HostLog, LogFollower, LogQuery
    from tpuherd.commands.host_access import HostAccess

LOOK_S = 0.3
FOLD_S = 1.0  #: hosts print the same line within it
LAST_WORDS_S = 3.0  #: how long the last output may arrive after the end
ANCHORS = re.compile(rb"\\[AZ]|\(\?")  #: what means something else in a text of many lines


@click.command()
@click.argument("target", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new output.")
@click.option("--host", metavar="NAMES", help="Only these hosts: w0, w[0-3], gpt-1/w0.")
@click.option("--attempt", metavar="N", help="Only this attempt or command, by number or id.")
@click.option(
    "--since", type=Moment(), help="Only from this time on: 10m (ago), 12:30 or 2026-01-31T12:30."
)
@click.option("--grep", metavar="REGEX", help="Only lines that match.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--all", "all_", is_flag=True, help="Also show earlier jobs of this name.")
@click.option("--json", "json_", is_flag=True, help="Print a line of JSON for each line.")
def logs(target: str | None, **said: Any) -> ParsedCommand:
    """Show what attempts and commands printed on the hosts of TARGET.

    For a job, it shows the output since the job was last submitted; --all includes earlier jobs
    of the same name. Logs are stored on this machine, so they outlive the nodes; those of commands
    are kept for two weeks. Each attempt has a number, and each log has an id. TARGET may be omitted
    if there is only one job.
    """
    from tpuherd.commands.find_logs import LogQuery

    return make_parsed_command("herd logs", partial(run_logs, LogQuery(target=target, **said)))


class LogPiece(NamedTuple):
    """Whole lines of one log, written at the same time; the fields are in sorting order."""

    at: float
    log: int  #: which, by its place among all
    port: int
    text: bytes


async def run_logs(look: "LogQuery", console: "Console", home: "HostAccess") -> int:
    """From the target to the last line."""
    from tpuherd.cli.store_session import choose_job
    from tpuherd.clock import WallClock
    from tpuherd.commands.find_logs import LogFollower, no_logs_sentence, submission_times

    del home  # logs are local
    if look.target is None and look.attempt is None:
        look = replace(look, target=await choose_job(None, "herd logs", console))
    shelf = LogStore(log_folder(console))
    wall = WallClock()
    pattern = compile_pattern(look.grep)
    begun: Mapping[str, float] = {}
    if look.target is not None and not look.all_:
        scope = project_access.resolve_scope(console.environ, world=console.said.world)
        begun = submission_times(look.target, scope, wall.now())
    follower = LogFollower(look, shelf, begun)
    chosen = follower.all_logs()
    since = look.since or 0.0
    page = LogPrinter(shelf, console, json_=look.json_, since=since, pattern=pattern)
    if not chosen:
        sentence = no_logs_sentence(look, shelf)
        if not look.follow:
            raise NotFound(sentence, hint=no_logs_hint(console))
        await console.print_notice(f"herd logs: {sentence}; waiting for one")
    await page.print_new(chosen, tail=look.tail)
    if look.follow:
        await follow_logs(look, follower, page, console)
    await page.print_due(inf)
    return 0


async def follow_logs(
    look: "LogQuery", follower: "LogFollower", page: "LogPrinter", console: "Console"
) -> None:
    """Print new output until the job or the command has ended, and its last lines are here."""
    from tpuherd.clock import WallClock
    from tpuherd.commands.find_logs import JobEnds

    wall, end = WallClock(), inf
    scope = project_access.resolve_scope(console.environ, world=console.said.world)
    ends = JobEnds(look.target, scope) if look.target is not None and scope.has_store else None
    try:
        while (now := wall.now()) < end:
            await console.flush()
            await wall.sleep(LOOK_S)
            await page.print_new(follower.find_growing(now))
            await page.print_due(now)
            over = follower.has_ended() if look.attempt else ends is not None and ends.are_over()
            end = (min(end, now + LAST_WORDS_S)) if over else inf
        await page.print_new(follower.all_logs())
        await page.print_due(inf)
        await console.print_notice(f"herd logs: {look.attempt or look.target} has ended")
    finally:
        if ends is not None:
            ends.close()


def log_folder(console: "Console") -> Path:
    """Return the folder of the logs; the project or world itself may be gone."""
    return project_access.resolve_scope(console.environ, world=console.said.world).logs_folder


def no_logs_hint(console: "Console") -> str:
    """Return what a missing log may mean; engines of several accounts may have led."""
    from tpuherd.commands.find_logs import engine_accounts

    scope = project_access.resolve_scope(console.environ, world=console.said.world)
    if scope.database is not None and (accounts := engine_accounts(scope)):
        names = ", ".join(accounts)
        return f"each account keeps the logs that its own engine collected: {names}"
    return "commands without output leave no log"


def compile_pattern(text: str | None) -> re.Pattern[bytes] | None:
    """What --grep looks for."""
    try:
        return None if text is None else re.compile(text.encode(), re.MULTILINE)
    except re.error as error:
        raise InvalidInput(f"{text!r} is no regular expression: {error}") from error


class LogPrinter:
    """Prints what has not been printed yet."""

    def __init__(
        self,
        shelf: LogStore,
        console: "Console",
        *,
        json_: bool,
        since: float,
        pattern: re.Pattern[bytes] | None,
    ) -> None:
        self._console = console
        self._json = json_
        self._cursor = LogCursor(shelf, since)
        self._search = None if pattern is None else pattern.search
        #: A text in which it is not found has no line in which it is.
        self._quick = pattern is not None and not ANCHORS.search(pattern.pattern)
        self._lines: dict[tuple[str, LogHost], PlainMerger] = {}
        self._folds: dict[str, FoldingMerger] = {}  #: by id of the work; not for JSON
        self._hosts: dict[tuple[str, str], HostLog] = {}  #: by that id and the host's label
        self._heads: dict[str, list[str]] = {}  #: by host the work it has spoken of, in turn
        self._headed: set[str] = set()

    async def print_new(self, logs: "Sequence[HostLog]", *, tail: int | None = None) -> None:
        """Print new lines of these logs, by time; at most the last `tail`."""
        for log in logs:
            self._hosts[log.about.id, log.label] = log
            self._folds.setdefault(log.about.id, FoldingMerger((), FOLD_S)).add_host(log.label)
        pieces: Iterable[LogPiece] = merge(
            *(self._new_pieces(log, at) for at, log in enumerate(logs))
        )
        if tail is not None:
            lines = (
                piece._replace(text=line) for piece in pieces for line in split_lines(piece.text)
            )
            pieces = deque(lines, maxlen=tail)
        for piece in pieces:
            log = logs[piece.log]
            if self._json:
                await self._console.write(format_json(log, piece))
                continue
            await self.print_due(piece.at)
            work = log.about.id
            for block in self._folds[work].feed(log.label, piece.port, piece.text, piece.at):
                await self._console.write(self._format_block(work, block))

    async def print_due(self, now: float) -> None:
        """Print lines that have waited long enough for the same line of other hosts."""
        for work, fold in self._folds.items():
            for block in fold.close(now) if now == inf else fold.due_blocks(now):
                await self._console.write(self._format_block(work, block))

    def _new_pieces(self, log: "HostLog", number: int) -> Iterator[LogPiece]:
        """The lines of one log that were not printed yet."""
        plain = self._lines.setdefault((log.about.id, log.place), PlainMerger())
        for at, port, said in self._cursor.read_new(log.about.id, log.place):
            for block in plain.feed("", port, said, at):
                if text := self._matching_lines(block.text):
                    yield LogPiece(at, number, port, text)
        if log.about.ended is not None:
            for block in plain.end_host("", log.about.ended):
                if text := self._matching_lines(block.text):
                    yield LogPiece(log.about.ended, number, block.port, text)

    def _matching_lines(self, text: bytes) -> bytes:
        """The lines that are looked for."""
        search = self._search
        if search is None:
            return text
        if self._quick and not search(text):
            return b""
        return b"".join(line for line in split_lines(text) if search(line.removesuffix(b"\n")))

    def _format_block(self, work: str, block: Block) -> bytes:
        from tpuherd.commands.output import COLOURS

        logs = [self._hosts[work, host] for host in block.hosts]
        lines = block.text.removesuffix(b"\n")
        if self._console.is_terminal(1):
            lines = show_bytes(lines, colours=self._console.has_colour(1))
        heads = [head for head in map(self._work_heading, logs) if head]
        before, name = show_controls(heads[0] if heads else ""), f"{fold_names(block.hosts)}:"
        if self._console.has_colour(1):
            before = f"\x1b[2m{before}\x1b[0m" if before else ""
            name = f"\x1b[{COLOURS[logs[0].place.worker % len(COLOURS)]}m{name}\x1b[0m"
        before = f"{before}\n" if before else ""
        prefix = f"{clock_text(block.at)} {name} ".encode()
        return before.encode() + prefix + lines.replace(b"\n", b"\n" + prefix) + b"\n"

    def _work_heading(self, log: "HostLog") -> str:
        """Name the log of the lines: at its beginning, and where a host returns to it."""
        about = log.about
        spoken = self._heads.setdefault(log.label, [])
        back = about.id in spoken[:-1]
        if about.id in spoken:
            spoken.remove(about.id)
        spoken.append(about.id)
        if about.id in self._headed and not back:
            return ""
        self._headed.add(about.id)
        return f"-- {log.number or '-'}  {about.id}  {clock_text(about.started)}  {about.title}"


def format_json(log: "HostLog", piece: LogPiece) -> bytes:
    from tpuherd.commands.output import PORTS

    port = PORTS.get(piece.port, "agent")
    lines = piece.text.removesuffix(b"\n").split(b"\n")
    return b"".join(json_line(log.label, port, line, piece.at) for line in lines)
