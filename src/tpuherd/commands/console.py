"""The user's end of a command: three files, perhaps a terminal, and signals."""

import asyncio
import os
import signal
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from tpuherd.commands.async_files import FileReader, FileWriter
from tpuherd.commands.invocation import Invocation
from tpuherd.commands.terminal_facts import has_unicode
from tpuherd.exit_status import ReaderGone
from tpuherd.views.format_text import wrap_text
from tpuherd.views.printable import show_lines
from tpuherd.views.text_width import to_ascii

__all__ = ["Console", "ReaderGone"]

LOCAL_FLAGS = 3  #: their index in termios attributes


class TableStyle(TypedDict):
    colour: bool
    width: int | None  #: None: unlimited


class ScreenStyle(TypedDict):
    colour: bool
    width: int


class Console:
    """Reads and writes the user's files by threads of its own, so that others never wait."""

    def __init__(
        self, files: Sequence[int], folder: Path, environ: Mapping[str, str], *, colour: bool | None
    ) -> None:
        self.files = files
        self.folder = folder  #: the user's working directory
        self.environ = environ
        self.said = Invocation()  #: the global options, with an absolute path of the world
        self.signals: asyncio.Queue[int] = asyncio.Queue()
        self.on_release: Callable[[int], None] | None = None
        self._ear = FileReader(files[0])
        pen = FileWriter(files[1])
        same = os.path.samestat(os.fstat(files[1]), os.fstat(files[2]))
        self._pens = {
            1: pen,
            2: pen if same else FileWriter(files[2]),
        }  # a shared file needs one order
        self._terminals = [os.isatty(file) for file in files]
        self._colour = colour
        self._unicode = has_unicode(environ)

    def is_terminal(self, port: int) -> bool:
        return self._terminals[port]

    def has_colour(self, port: int) -> bool:
        """Whether to colour what is written there."""
        return self._terminals[port] if self._colour is None else self._colour

    def terminal_size(self) -> tuple[int, int]:
        """Rows and columns of the terminal."""
        for file in self.files:
            try:
                columns, rows = os.get_terminal_size(file)
            except OSError:
                continue
            if columns and rows:
                return rows, columns
        return 24, 80

    async def read(self) -> bytes:
        """Return the next piece of standard input, or b"" at the end."""
        return await self._ear.read()

    async def write(self, piece: bytes, port: int = 1) -> None:
        """Write; wait while the reader is behind. Raise ReaderGone if there is no reader."""
        await self._pens[port].write(piece)

    def line_width(self, port: int) -> int | None:
        """Return how many columns a line may have there; None: unlimited."""
        return self.terminal_size()[1] if self._terminals[port] else None

    @property
    def table_style(self) -> TableStyle:
        return {"colour": self.has_colour(1), "width": self.line_width(1)}

    @property
    def screen_style(self) -> ScreenStyle | None:
        """How to draw for the user's terminal; None for files and pipes, which get plain text."""
        width = self.line_width(1)
        return None if width is None else {"colour": self.has_colour(1), "width": width}

    async def print_text(self, text: str, port: int = 1, *, coloured: bool = False) -> None:
        """Print text for people, with escapes made visible; `coloured`: our own colors stay."""
        text = show_lines(text, colours=coloured)
        width = self.line_width(port)
        if width is not None:
            text = wrap_text(text if self._unicode else to_ascii(text), width)
        await self.write(f"{text}\n".encode(errors="replace"), port)

    async def print_notice(self, sentence: str) -> None:
        """Print a line on stderr; a closed stderr is no error."""
        try:
            await self.print_text(sentence, 2)
        except ReaderGone:
            pass

    async def flush(self) -> None:
        """Wait until everything is written."""
        for pen in self._pens.values():
            await pen.flush()

    def handle_signal(self, number: int) -> None:
        """Handle a signal to the command."""
        if number in (signal.SIGTSTP, signal.SIGCONT):
            for pen in self._pens.values():
                pen.set_paused(number == signal.SIGTSTP)
        self.signals.put_nowait(number)

    def release_user(self, status: int) -> bool:
        """Release the user's terminal; whether the command may continue without it."""
        if self.on_release is None:
            return False
        self.disconnect_user()
        self.on_release(status)
        return True

    def discard_output(self) -> None:
        for pen in self._pens.values():
            pen.close()

    def disconnect_user(self) -> None:
        """Close the user's files, so that a reader, as of a pipe, sees their end."""
        self.discard_output()
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for file in self.files[1:]:
            os.dup2(null, file, inheritable=False)
        os.close(null)

    async def ask_question(self, question: str, answers: Mapping[str, str]) -> str:
        """Return an answer by its first letter, or "" at the end; other output waits."""
        for pen in self._pens.values():
            pen.set_paused(True)
        try:
            while True:
                self._pens[2].write_urgent(f"{question} ".encode())
                line = (await self.read()).decode(errors="replace").strip().lower()
                if not line:
                    return ""
                if line[0] in answers:
                    return line[0]
                meanings = ", ".join(f"{key} to {answer}" for key, answer in answers.items())
                self._pens[2].write_urgent(f"({meanings})\n".encode())
        finally:
            for pen in self._pens.values():
                pen.set_paused(False)

    @contextmanager
    def raw_mode(self) -> Iterator[None]:
        """Pass every key on unchanged, without local echo and line editing."""
        if not self.is_terminal(0):
            yield
            return
        before = termios.tcgetattr(self.files[0])
        now = [*before[:6], list(before[6])]
        now[0] &= ~(
            termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON
            | termios.IGNBRK | termios.INLCR | termios.IGNCR | termios.PARMRK
        )  # fmt: skip
        now[1] &= ~termios.OPOST
        now[2] = now[2] & ~(termios.CSIZE | termios.PARENB) | termios.CS8
        now[LOCAL_FLAGS] &= ~(
            termios.ECHO | termios.ECHONL | termios.ICANON | termios.IEXTEN | termios.ISIG
        )
        now[6][termios.VMIN], now[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.files[0], termios.TCSADRAIN, now)
        try:
            yield
        finally:
            try:
                termios.tcsetattr(self.files[0], termios.TCSADRAIN, before)
            except termios.error:
                pass  # it was closed

    def close(self) -> None:
        self.discard_output()
        self._ear.close()
