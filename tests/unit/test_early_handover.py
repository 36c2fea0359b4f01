"""An attempt is handed to the program that waits for it once, whenever that closes its line."""

import json
import os
import socket

import pytest

from tpuherd_host.agent.early.early_starts import EarlyStarts
from tpuherd_host.agent.early.gate import LENGTH
from tpuherd_host.agent.processes import MARK

FILES = (0, 1, 2)


class Program:
    """Stands for the program: it reads what it is sent, and closes the line at once."""

    def __init__(self, line: socket.socket, wanted: int | None = None) -> None:
        self.line = line
        self.wanted = wanted  #: bytes after which it is gone; None: the whole message
        self.text = b""

    def read(self) -> None:
        """Read until the message is whole or this is gone."""
        piece, files, _, _ = socket.recv_fds(self.line, self.wanted or 1 << 20, len(FILES))
        for file in files:
            os.close(file)
        self.text += piece
        whole = len(self.text) - LENGTH.size == LENGTH.unpack_from(self.text)[0]
        if whole or self.wanted is not None:
            self.line.close()


class Line(socket.socket):
    """The supervisor's end: the program reads after each piece, before the next call."""

    program: Program
    piece = 1 << 20  #: at most so many bytes are taken at once

    def sendmsg(self, buffers, ancdata=(), *rest):  # type: ignore[no-untyped-def]
        sent = super().sendmsg([buffers[0][: self.piece]], ancdata, *rest)
        self.program.read()
        return sent

    def send(self, data, *rest):  # type: ignore[no-untyped-def]
        sent = super().send(data[: self.piece], *rest)
        self.program.read()
        return sent


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> EarlyStarts:
    def pair(*_: int) -> tuple[Line, socket.socket]:
        ours, its = socket_pair()
        line = Line(fileno=ours.detach())
        line.program = Program(its.dup())
        return line, its

    socket_pair = socket.socketpair
    monkeypatch.setattr(socket, "socketpair", pair)
    return EarlyStarts(lambda order: 4711, lambda pid: 99)


def order() -> dict[str, object]:
    return {"slot": "gpt-0", "argv": ["python3", "train.py"], "directory": "/",
            "early_argv": ["python3", "agent.pyz", "early", "train.py"],
            "env": {MARK: "w1", "HERD_ATTEMPT": "1"}}  # fmt: skip


def line_of(starts: EarlyStarts) -> Line:
    line = starts.waiting["gpt-0"].line
    assert isinstance(line, Line)
    return line


@pytest.mark.parametrize("piece", [1 << 20, 100])
def test_a_program_that_closes_its_line_at_once_is_the_attempt(
    starts: EarlyStarts, piece: int
) -> None:
    starts.begin(order())
    line = line_of(starts)
    line.piece = piece
    assert starts.hand_over(order(), FILES) == 4711
    assert json.loads(line.program.text[LENGTH.size :])["argv"] == ["python3", "train.py"]


def test_a_program_that_got_half_of_it_is_not(starts: EarlyStarts) -> None:
    """It ends at the end of its line: another one is started."""
    starts.begin(order())
    line = line_of(starts)
    line.piece = line.program.wanted = 50
    assert starts.hand_over(order(), FILES) == 0
