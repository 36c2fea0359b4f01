"""The user's end of a command: three files, perhaps a terminal, and what its user wants of us."""

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
from tpuherd.exit_status import ReaderGone
from tpuherd.views.format_text import wrap_text
from tpuherd.views.printable import show_lines

__all__ = ["Console", "ReaderGone"]

LOCAL_FLAGS = 3  #: where termios has them


class TableStyle(TypedDict):
    """How a table is to look."""

    colour: bool
    width: int | None  #: as many columns as it likes


class Console:
    """Never makes others wait: its files are read and written by threads of its own."""

    def __init__(
        self, files: Sequence[int], folder: Path, environ: Mapping[str, str], *, colour: bool | None
    ) -> None:
        self.files = files
        self.folder = folder  #: where the user stands
        self.environ = environ
        self.said = Invocation()  #: what was said before the command; its world's path is whole
        self.signals: asyncio.Queue[int] = asyncio.Queue()
        self.on_release: Callable[[int], None] | None = None
        self._ear = FileReader(files[0])
        pen = FileWriter(files[1])
        same = os.path.samestat(os.fstat(files[1]), os.fstat(files[2]))
        self._pens = {
            1: pen,
            2: pen if same else FileWriter(files[2]),
        }  # one file is written in one order
        self._terminals = [os.isatty(file) for file in files]
        self._colour = colour

    def is_terminal(self, port: int) -> bool:
        """Whether it is one."""
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
        """The next piece of standard input; nothing at its end."""
        return await self._ear.read()

    async def write(self, piece: bytes, port: int = 1) -> None:
        """Write; waits while the reader has much to read. Gone if there is none any more."""
        await self._pens[port].write(piece)

    def line_width(self, port: int) -> int | None:
        """How many columns a line may have there; None: as many as it likes."""
        return self.terminal_size()[1] if self._terminals[port] else None

    @property
    def table_style(self) -> TableStyle:
        """How tables look on stdout."""
        return {"colour": self.has_colour(1), "width": self.line_width(1)}

    async def print_text(self, text: str, port: int = 1, *, coloured: bool = False) -> None:
        """Text for people, a part of which hosts or the cloud may have written; `coloured`: by us,
        of values in which nothing acts."""
        text = show_lines(text, colours=coloured)
        width = self.line_width(port)
        if width is not None:
            text = wrap_text(text, width)
        await self.write(f"{text}\n".encode(errors="replace"), port)

    async def print_notice(self, sentence: str) -> None:
        """A line on stderr, whether somebody reads it or not."""
        try:
            await self.print_text(sentence, 2)
        except ReaderGone:
            pass

    async def flush(self) -> None:
        """Wait until all is written."""
        for pen in self._pens.values():
            await pen.flush()

    def handle_signal(self, number: int) -> None:
        """A signal to the command."""
        if number in (signal.SIGTSTP, signal.SIGCONT):
            for pen in self._pens.values():
                pen.set_paused(number == signal.SIGTSTP)
        self.signals.put_nowait(number)

    def release_user(self, status: int) -> bool:
        """Let the user go. Whether we may go on without."""
        if self.on_release is None:
            return False
        self.disconnect_user()
        self.on_release(status)
        return True

    def discard_output(self) -> None:
        """Say nothing more."""
        for pen in self._pens.values():
            pen.close()

    def disconnect_user(self) -> None:
        """The user is gone. Whoever reads what was said, as through a pipe, waits for its end."""
        self.discard_output()
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for file in self.files[1:]:
            os.dup2(null, file, inheritable=False)
        os.close(null)

    async def ask_question(self, question: str, answers: Mapping[str, str]) -> str:
        """Which of the answers, by its first letter; what else is written waits. "" at the end."""
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
        """Every key as it is pressed, and nothing of the local terminal's own."""
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
        """The user's files are not needed any more."""
        self.discard_output()
        self._ear.close()
