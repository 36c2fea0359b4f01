"""Where controllers come in: the socket, the greeting of `attach`, and who may be read just now."""

import os

from tpuherd_host.agent import words
from tpuherd_host.agent.attach import GREETING, LEAVES, REFUSES, STAYS
from tpuherd_host.agent.files import Files
from tpuherd_host.agent.line import UNSENT_MAX, Line
from tpuherd_host.agent.state import State
from tpuherd_host.agent.thin import Any, Callable, Dict, List, Optional, Set, socket, struct

WORD_MAX = 64


class Doors:
    """Owns every connection."""

    def __init__(
        self,
        version: str,
        files: Files,
        happen: Callable[[words.Happening], None],
        state: Callable[[], State],
    ) -> None:
        self.version = version
        self.files = files
        self.happen = happen
        self.state = state
        self.lines: Dict[int, Line] = {}
        self.flushing: Set[int] = set()
        self.last_line = 0
        self.replaced = False

    def open(self, door: socket.socket) -> None:
        """Somebody knocks."""
        try:
            file, _ = door._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        control = socket.socket(fileno=file)
        control.setblocking(False)
        self.last_line += 1
        line = Line(self.last_line, control)
        self.lines[line.id] = line
        self.files.watch(control.fileno(), False, lambda: self.first_word(line))

    def first_word(self, line: Line) -> None:
        """`attach` hands files over; anything else speaks frames itself, and is greeted anyway."""
        control = line.control
        assert control is not None
        room = socket.CMSG_SPACE(2 * 4)
        try:
            word, extra, _, _ = control.recvmsg(WORD_MAX, room, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            word, extra = b"", []
        files = [file for _, _, text in extra for (file,) in struct.iter_unpack("i", text)]
        if word[:1] == GREETING and len(files) == 2:
            self.attached(line, files, word[2:].strip().decode("latin-1"))
            return
        for file in files:
            os.close(file)
        if not word or word[:1] == GREETING:
            self.close_line(line.id)
            return
        self.greet(line)
        self.frames(line, line.whole(word))

    def attached(self, line: Line, files: List[int], version: str) -> None:
        """An `attach`, maybe of another version: then an idle agent makes room for it."""
        assert line.control is not None
        others = any(other is not line for other in self.lines.values())
        busy = others or any(work.live for work in self.state().works.values())
        if version != self.version and not busy and not newer(self.version, version):
            for file in files:
                os.close(file)
            line.control.send(LEAVES)
            self.replaced = True
            return
        try:
            line.hand_over(files)
            self.files.unwatch(line.control.fileno())
            self.files.watch(line.control.fileno(), False, lambda: self.lost(line))
            line.control.send(STAYS)
            self.greet(line)
        except OSError:  # not files that can be waited for
            line.control.send(REFUSES)
            self.lost(line)

    def greet(self, line: Line) -> None:
        """It is a connection now."""
        line.greeted = True
        line.reading = True
        if line.control is not None and line.incoming == line.control.fileno():
            self.files.unwatch(line.incoming)
        self.files.watch(line.incoming, False, lambda: self.frames(line, line.take()))
        self.happen(words.Opened(line.id))

    def frames(self, line: Line, found: Optional[List[Any]]) -> None:
        """What came; None: it is over."""
        for frame in found or ():
            self.happen(words.Arrived(line.id, frame))
        if found is None:
            self.lost(line)

    def lost(self, line: Line) -> None:
        """It is over."""
        if line.id in self.lines:
            self.close_line(line.id)
            if line.greeted:
                self.happen(words.Closed(line.id))

    def flush(self, id: int) -> None:
        """Send what is to be sent, and wait for room for the rest."""
        self.flushing.discard(id)
        line = self.lines.get(id)
        if line is None:
            return
        sent = line.flush()
        if sent is None or line.hanging:
            self.lost(line)
            return
        if sent:
            self.happen(words.Flushed(id, sent))
        self.balance(line)

    def balance(self, line: Line) -> None:
        """Watch for room where something is unsent; read nothing from whoever reads nothing."""
        writing, reading = bool(line.unsent), line.many < UNSENT_MAX and not line.hanging
        if (writing, reading) == (line.writing, line.reading):
            return
        line.writing, line.reading = writing, reading
        for file in {line.incoming, line.outgoing}:
            self.files.unwatch(file)

        def take() -> None:
            self.frames(line, line.take())

        def both() -> None:
            self.flush(line.id)
            if line.reading and line.id in self.lines:
                take()

        if line.incoming == line.outgoing:
            if writing and reading:
                self.files.watch(line.incoming, True, both)
            elif writing:
                self.files.watch_writing(line.incoming, lambda: self.flush(line.id))
            elif reading:
                self.files.watch(line.incoming, False, take)
            return
        if reading:
            self.files.watch(line.incoming, False, take)
        if writing:
            self.files.watch_writing(line.outgoing, lambda: self.flush(line.id))

    def close_line(self, id: int) -> None:
        """Nothing of it stays."""
        line = self.lines.pop(id)
        files = {line.incoming, line.outgoing}
        if line.control is not None:
            files.add(line.control.fileno())
        for file in files:
            self.files.unwatch(file)
        line.close()
        self.flushing.discard(id)

    def say(self, id: int, frame: bytes) -> None:
        """To be sent at the end of this round."""
        line = self.lines.get(id)
        if line is not None:
            line.say(frame)
            self.flushing.add(id)

    def hang(self, id: int) -> None:
        """Close it when what was said has left."""
        line = self.lines.get(id)
        if line is not None:
            line.hanging = True
            self.flushing.add(id)

    def flush_all(self) -> None:
        """At the end of a round."""
        for id in list(self.flushing):
            self.flush(id)


def newer(mine: str, theirs: str) -> bool:
    """Whether the running agent speaks a later protocol than the one that comes."""
    numbers = [version.partition(".")[0] for version in (mine, theirs)]
    return all(number.isdigit() for number in numbers) and int(numbers[0]) > int(numbers[1])
