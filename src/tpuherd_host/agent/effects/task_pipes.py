"""One task's files: its output goes into its log, its input comes from a controller."""

import errno
import fcntl
import os
import struct
import termios
from collections import deque
from typing import Callable, Deque, Dict, List, Mapping, Optional

from tpuherd_host.agent.effects.log_segments import SegmentedLog
from tpuherd_host.agent.log_records import PIECE_MAX

STDOUT, STDERR = 1, 2
WatchFile = Callable[[int, bool, Callable[[], None]], None]  #: file, whether for writing, callback
UnwatchFile = Callable[[int], None]


class TaskPipes:
    """Owns the pipes or the terminal, and the log."""

    def __init__(
        self,
        folder: str,
        log: SegmentedLog,
        watch: WatchFile,
        unwatch: UnwatchFile,
        readable: Callable[[], None],
    ) -> None:
        self.folder = folder
        self.log = log
        self.watch = watch
        self.unwatch = unwatch
        self.readable = readable  #: called when `read_outputs` or `write_input` can proceed
        self.outputs: Dict[int, int] = {}  #: port by file
        self.fed: Deque[bytes] = deque()
        self.input: Optional[int] = None
        self.ending = False  #: no more input will come
        self.process_ended = False
        self.master: Optional[int] = None
        self.slave: Optional[int] = None
        self.spare: Optional[int] = None  #: keeps the input open until the process has it
        self.reading = False
        self.paused = False
        self.writing = False

    # ---- starting -------------------------------------------------------------------------------

    def prepare_files(
        self, stdin: bool, terminal: Optional[Mapping[str, int]]
    ) -> Dict[str, Optional[str]]:
        """Create the files that a process needs, and return their paths."""
        self.ending = self.process_ended = False
        if terminal is not None:
            self.master, self.slave = os.openpty()
            self.resize_terminal(
                int(terminal.get("rows") or 24), int(terminal.get("columns") or 80)
            )
            os.set_blocking(self.master, False)
            return {"tty": os.ttyname(self.slave), "in": None, "out": None, "err": None}
        paths = {end: f"{self.folder}/{end}" for end in ("in", "out", "err")}
        self.open_outputs()
        if stdin and self.input is None and self.spare is None:
            self.spare = self.open_fifo(paths["in"], os.O_RDWR)
        return {"tty": None, **paths, "in": paths["in"] if stdin else None}

    def open_outputs(self) -> None:
        """Open outputs that an earlier stage may have closed."""
        for end, port in (("out", STDOUT), ("err", STDERR)):
            if port not in self.outputs.values():
                self.outputs[self.open_fifo(f"{self.folder}/{end}", os.O_RDONLY)] = port

    def adopt_outputs(self) -> None:
        """Open the pipes of a process that an earlier agent started."""
        self.open_outputs()
        self.watch_outputs()

    @staticmethod
    def open_fifo(path: str, way: int) -> int:
        """Create a named pipe, which a later agent can find."""
        try:
            os.mkfifo(path, 0o600)
        except FileExistsError:
            pass
        return os.open(path, way | os.O_NONBLOCK | os.O_CLOEXEC)

    def handle_started(self) -> None:
        """The process has opened its ends."""
        if self.slave is not None:
            os.close(self.slave)
            self.slave = None
        if self.master is not None:
            self.outputs = {self.master: STDOUT}
            self.input = self.master
        else:
            self.open_outputs()
        if self.spare is not None:
            self.input = os.open(os.path.join(self.folder, "in"), os.O_WRONLY | os.O_NONBLOCK)
            os.close(self.spare)
            self.spare = None
        self.reading = False

    def watch_outputs(self) -> None:
        if not self.paused and not self.reading:
            for file in self.outputs:
                self.watch(file, False, self.readable)
            self.reading = True

    def set_paused(self, on: bool) -> None:
        self.paused = on
        if on:
            for file in self.outputs:
                if file != self.input or not self.writing:
                    self.unwatch(file)
            self.reading = False
        else:
            self.watch_outputs()

    def read_outputs(self, at: float) -> bool:
        """Move available output into the log; return whether that was the last."""
        for file, port in list(self.outputs.items()):
            try:
                piece = os.read(file, PIECE_MAX)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno != errno.EIO:  # the terminal is no longer open in any process
                    raise
                piece = b""
            if piece:
                self.log.append(at, port, piece)
            else:
                self.close_output(file)
        return not self.outputs

    def close_output(self, file: int) -> None:
        """Close an output whose other end is closed. A terminal stays open until its process ends:
        closing it sends SIGHUP, even to a `touch` that closed its output and is about to exit.
        """
        self.unwatch(file)
        if self.input == file:
            self.input = None
        if file == self.master:
            if not self.process_ended:
                return
            self.master = None
        del self.outputs[file]
        os.close(file)

    # ---- input -----------------------------------------------------------------------------------

    def feed(self, piece: Optional[bytes]) -> int:
        """Queue bytes or the end of input; return how many bytes were written or will never be."""
        if piece is None:
            self.ending = True
        elif piece:
            if self.ending or (self.input is None and self.spare is None and self.slave is None):
                return len(piece)
            self.fed.append(piece)
        return self.write_input()

    def write_input(self) -> int:
        """Write as much as possible now; return how much."""
        if self.input is None:
            return self.discard_input() if self.spare is None and self.slave is None else 0
        taken = 0
        while self.fed:
            piece = self.fed[0]
            try:
                many = os.write(self.input, piece)
            except BlockingIOError:
                break
            except OSError:  # the process closed its input
                taken += self.discard_input()
                self.end_input()
                break
            taken += many
            self.fed.popleft()
            if many < len(piece):
                self.fed.appendleft(piece[many:])
        self.wait_for_room()
        if not self.fed and self.ending:
            self.end_input()
        return taken

    def discard_input(self) -> int:
        many = sum(map(len, self.fed))
        self.fed.clear()
        return many

    def wait_for_room(self) -> None:
        """Wait until the process takes more input."""
        wanted = bool(self.fed) and self.input is not None
        if wanted != self.writing and self.input is not None:
            self.writing = wanted
            if wanted:
                self.watch(self.input, True, self.readable)
            elif self.input in self.outputs and self.reading:
                self.watch(self.input, False, self.readable)
            else:
                self.unwatch(self.input)

    def end_input(self) -> None:
        self.ending = True
        if self.input is None:
            return
        if self.input == self.master:
            try:
                os.write(self.input, b"\x04")  # as a user would
            except OSError:
                pass  # it has more to read first, or is gone
            return
        self.unwatch(self.input)
        os.close(self.input)
        self.input = None
        self.writing = False

    def resize_terminal(self, rows: int, columns: int) -> None:
        """Set the terminal's size; the kernel signals the foreground process."""
        if self.master is not None:
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        """Close everything; the log stays on the disk."""
        files: List[Optional[int]] = [
            *self.outputs,
            self.input,
            self.master,
            self.slave,
            self.spare,
        ]
        for file in {file for file in files if file is not None}:
            self.unwatch(file)
            os.close(file)
        self.outputs = {}
        self.input = self.master = self.slave = self.spare = None
        for end in ("in", "out", "err"):
            try:
                os.unlink(os.path.join(self.folder, end))
            except OSError:
                pass  # it has no such file
        self.log.close()
