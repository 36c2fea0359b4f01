"""Prints the output of many hosts: folded, by host, as JSON, into files, or unchanged."""

import asyncio
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tpuherd.clock import Clock
from tpuherd.commands.console import Console
from tpuherd.errors import InvalidInput
from tpuherd.targets import fold_names
from tpuherd.views.fold_output import (
    Block,
    FoldingMerger,
    PlainMerger,
    file_name,
    json_line,
    prefix_lines,
    split_lines,
)
from tpuherd.views.printable import PrintableStream, show_bytes
from tpuherd_host.agent.log_records import Record

COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
PORTS = {1: "stdout", 2: "stderr"}
AGENT = 3  #: the port of notes about a host

BlockFormatter = Callable[[Block], bytes]


class BlockGatherer(Protocol):
    """A merger of views/fold_output, or PassThrough."""

    def feed(self, host: str, port: int, piece: bytes, now: float) -> list[Block]: ...

    def end_host(self, host: str, now: float) -> list[Block]: ...

    def due_blocks(self, now: float) -> list[Block]: ...

    def wake_at(self) -> float | None: ...

    def close(self, now: float) -> list[Block]: ...


class PassThrough:
    """Passes every byte at once, for one host. On a terminal only text and colors pass."""

    def __init__(self, terminals: Mapping[int, PrintableStream] | None = None) -> None:
        self._terminals = terminals or {}  #: by port

    def feed(self, host: str, port: int, piece: bytes, now: float) -> list[Block]:
        shown = self._terminals.get(port)
        return [Block((host,), port, piece if shown is None else shown.feed(piece), now)]

    def end_host(self, host: str, now: float) -> list[Block]:
        return [
            Block((host,), port, one.end_stream(), now) for port, one in self._terminals.items()
        ]

    def due_blocks(self, now: float) -> list[Block]:
        return []

    def wake_at(self) -> float | None:
        return None

    def close(self, now: float) -> list[Block]:
        return []


class OutputPrinter:
    def __init__(
        self,
        console: Console,
        gatherer: BlockGatherer,
        show: BlockFormatter,
        clock: Clock,
        *,
        records: bool = False,
    ) -> None:
        self._records = records  #: all goes to stdout, with the hosts' own times
        self._console = console
        self._gatherer = gatherer
        self._show = show
        self._clock = clock
        self._stirred = asyncio.Event()

    def merge_key(self, told: tuple[int, Record]) -> tuple[int, float]:
        """Return the key of records that are shown as one: the port, and the time if shown."""
        record = told[1]
        return record.port, record.at if self._records else 0.0

    async def feed(self, host: str, port: int, piece: bytes, at: float) -> None:
        now = at if self._records else self._clock.now()
        blocks = self._gatherer.feed(host, port, piece, now)
        del piece
        await self._print_blocks(blocks)
        self._stirred.set()

    async def end_host(self, host: str) -> None:
        await self._print_blocks(self._gatherer.end_host(host, self._clock.now()))

    async def close(self) -> None:
        await self._print_blocks(self._gatherer.close(self._clock.now()))

    async def print_when_due(self) -> None:
        """Print blocks when they have waited long enough."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while (at := self._gatherer.wake_at()) is not None:
                await self._clock.sleep(max(0.0, at - self._clock.now()))
                await self._print_blocks(self._gatherer.due_blocks(self._clock.now()))

    async def _print_blocks(self, blocks: list[Block]) -> None:
        """Print blocks, holding only those not written yet."""
        blocks.reverse()
        while blocks:
            block = blocks.pop()
            port = 1 if self._records else file_number(block.port)
            text = self._show(block)
            del block
            await self._console.write(text, port)


def create_printer(
    console: Console, labels: Sequence[str], output: str | None, into: Path, clock: Clock
) -> OutputPrinter:
    """Return the printer for --output; one host's output is unchanged by default."""
    if output is None and len(labels) == 1:
        terminals = {
            port: PrintableStream(colours=console.has_colour(file_number(port)))
            for port in (*PORTS, AGENT)
            if console.is_terminal(file_number(port))
        }
        return OutputPrinter(console, PassThrough(terminals), lambda block: block.text, clock)
    if output == "json":
        return OutputPrinter(console, PlainMerger(), json_lines, clock, records=True)
    if output == "dir":
        return OutputPrinter(
            console, PassThrough(), HostFiles(console.folder / into, labels).append, clock
        )
    gatherer = PlainMerger() if output == "stream" else FoldingMerger(labels)
    return OutputPrinter(console, gatherer, name_prefixer(console), clock)


def file_number(port: int) -> int:
    """Return where a port is written; notes go to stderr."""
    return port if port in PORTS else 2


def name_prefixer(console: Console) -> BlockFormatter:
    """Return a formatter that puts the hosts before every line, in color on a terminal."""
    names: dict[tuple[str, ...], str] = {}

    def show(block: Block) -> bytes:
        prefix = names.get(block.hosts)
        if prefix is None:
            name = fold_names(block.hosts)
            prefix = f"{name}: "
            if console.has_colour(file_number(block.port)):
                colour = COLOURS[zlib.crc32(name.encode()) % len(COLOURS)]
                prefix = f"\x1b[{colour}m{name}:\x1b[0m "
            names[block.hosts] = prefix
        port = file_number(block.port)
        if console.is_terminal(port):
            block = replace(block, text=show_bytes(block.text, colours=console.has_colour(port)))
        return prefix_lines(block, prefix=prefix)

    return show


def json_lines(block: Block) -> bytes:
    """Return a line of JSON for every line."""
    port = PORTS.get(block.port, "agent")
    lines = (line.removesuffix(b"\n") for line in split_lines(block.text))
    return b"".join(json_line(block.hosts[0], port, line, block.at) for line in lines)


class HostFiles:
    """A file for each host and port."""

    def __init__(self, folder: Path, labels: Sequence[str]) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for label in labels:
                (folder / file_name(label, PORTS[1])).write_bytes(b"")
                (folder / file_name(label, PORTS[2])).unlink(missing_ok=True)
        except OSError as error:
            raise InvalidInput(
                f"{folder} can't be written ({os.strerror(error.errno or 0)})"
            ) from error

    def append(self, block: Block) -> bytes:
        """Append to the host's file; return nothing to print."""
        file = self.folder / file_name(block.hosts[0], PORTS.get(block.port, PORTS[2]))
        try:
            with file.open("ab") as stream:
                stream.write(block.text)
        except OSError as error:
            raise InvalidInput(
                f"{file} can't be written ({os.strerror(error.errno or 0)})"
            ) from error
        return b""
