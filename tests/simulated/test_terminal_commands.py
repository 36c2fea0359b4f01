"""Commands on a terminal of a known size: they draw for it, and pipes get what they always got."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.unit.event_stories import START
from tests.unit.screen_scenes import document, failing_story
from tpuherd.cli.main import run
from tpuherd.cli.parsed_command import ParsedCommand, run_parsed_command
from tpuherd.cli.run_in_process import InProcessAccess
from tpuherd.commands.console import Console
from tpuherd.commands.terminal_facts import choose_colour
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.settings import project_access
from tpuherd.store.database import Database
from tpuherd.views.text_width import cell_width

HOSTILE = "\x1b]0;title\x07\x1b[2J"
COMMANDS = (
    ["ls"],
    ["status", "gpt"],
    ["why", "gpt"],
    ["events", "gpt"],
)
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user with a job that failed with a hostile message, in a world that is gone."""
    world = tmp_path / "world"
    environ = {"HOME": str(tmp_path), "PATH": "/nowhere", "LANG": "C.UTF-8", "TERM": "xterm"}
    store = Database(project_access.resolve_scope(environ, world=world).store_folder, START)
    stored = StoredJob(
        job="gpt", goal=Goal.RUN, document=document(1), made_at=START, changed_at=START
    )
    store.put_job(stored, failing_story().events)
    store.put_slot_messages({"gpt-0": f"failed {HOSTILE}, tried again"})
    store.close()
    return {**environ, "HERD_WORLD": str(world)}


def parse(words: list[str], environ: Mapping[str, str]) -> ParsedCommand:
    kept: list[ParsedCommand] = []

    def keep(command: ParsedCommand) -> int:
        kept.append(command)
        return 0

    assert run(words, environ, keep) == 0
    return kept[0]


def run_on(file: int, words: list[str], environ: Mapping[str, str]) -> int:
    """Run a command whose three files are this one."""
    command = parse(words, environ)

    async def work() -> int:
        console = Console((file,) * 3, Path("/"), environ, colour=choose_colour(environ))
        async with AsyncExitStack() as stack:
            status = await run_parsed_command(command, console, InProcessAccess(stack))
            console.close()
            return status

    return asyncio.run(work())


def show(words: list[str], environ: Mapping[str, str], columns: int) -> str:
    """What a terminal of so many columns gets."""
    main, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    pieces: list[bytes] = []
    reading = threading.Thread(target=lambda: pieces.extend(read_pieces(main)))
    reading.start()
    try:
        assert run_on(terminal, words, environ) == 0
    finally:
        os.close(terminal)
        reading.join()
        os.close(main)
    return b"".join(pieces).decode().replace("\r\n", "\n")


def read_pieces(file: int) -> Iterator[bytes]:
    try:
        while piece := os.read(file, 65536):
            yield piece
    except OSError:
        return  # the other end is closed


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_is_drawn_for_and_not_hurt(
    environ: dict[str, str], words: list[str], columns: int
) -> None:
    text = show(words, environ, columns)
    assert "\x1b[1;31m✗\x1b[0m" in text
    plain = ESCAPE.sub("", text)
    assert "\x1b" not in plain
    assert "\x07" not in plain
    world = environ["HERD_WORLD"]  # a path is never broken
    assert all(cell_width(one) <= columns for one in plain.splitlines() if world not in one)
    assert show(words, {**environ, "NO_COLOR": "1"}, columns).count("\x1b") == 0


def test_a_terminal_without_unicode_gets_ascii(environ: dict[str, str]) -> None:
    text = show(["status", "gpt"], {**environ, "LC_ALL": "C", "NO_COLOR": "1"}, 100)
    assert text.isascii()
    assert "X gpt-0 failing" in text


def test_a_file_gets_plain_text_of_any_width(environ: dict[str, str], tmp_path: Path) -> None:
    for colour in ({}, {"FORCE_COLOR": "1"}):
        with (tmp_path / "out").open("wb") as file:
            assert run_on(file.fileno(), ["ls"], {**environ, **colour}) == 0
        text = (tmp_path / "out").read_text()
        head = "JOB  PHASE    READY  WHERE  ATTEMPT"
        assert ESCAPE.sub("", text).startswith(head)
        assert ("\x1b" in text) == bool(colour)


@pytest.mark.parametrize(
    ("number", "ignored", "status"),
    [
        (signal.SIGTERM, False, 128 + signal.SIGTERM),
        (signal.SIGHUP, False, 128 + signal.SIGHUP),
        (None, False, 128 + signal.SIGHUP),
        (None, True, 128 + signal.SIGHUP),  # as by nohup
    ],
    ids=["TERM", "HUP", "closed", "closed and ignored"],
)
def test_top_ends_by_a_signal_and_with_its_terminal(
    environ: dict[str, str], number: int | None, ignored: bool, status: int
) -> None:
    ours, its = pty.openpty()

    def prepare() -> None:
        os.login_tty(its)
        if ignored:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    line = [sys.executable, "-m", "tpuherd.launcher", "top"]
    with subprocess.Popen(line, env=environ, preexec_fn=prepare) as top:
        os.close(its)
        seen = b""
        while b"herd top" not in seen:
            seen += os.read(ours, 1 << 16)
        if number is not None:
            top.send_signal(number)
            while True:
                try:
                    os.read(ours, 1 << 16)
                except OSError:
                    break
        os.close(ours)
        assert top.wait(timeout=30) == status
