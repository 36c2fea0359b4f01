"""What is written to a user's file is complete and in order, however little fits at once."""

import asyncio
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuherd.clock import WallClock
from tpuherd.commands.async_files import FileWriter, poll_readable, select_readable
from tpuherd.commands.console import Console
from tpuherd.commands.output import create_printer
from tpuherd_host.agent.log_records import Record


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_writes_are_complete_and_in_order(seed: int, blocking: bool) -> None:
    dice = random.Random(seed)
    said = [dice.randbytes(dice.choice((0, 1, 100, 5_000, 200_000))) for _ in range(60)]
    out, into = os.pipe()
    os.set_blocking(into, blocking)  # a shell's terminal may be either
    came: list[bytes] = []

    def read() -> None:
        sizes = random.Random(seed)
        while piece := os.read(out, sizes.choice((1, 4_096, 100_000))):
            came.append(piece)

    async def write() -> None:
        pen = FileWriter(into)
        for piece in said:
            await pen.write(piece)
        await pen.flush()
        pen.close()

    reader = threading.Thread(target=read)
    reader.start()
    asyncio.run(write())
    os.close(into)
    reader.join(20)
    os.close(out)
    assert b"".join(came) == b"".join(said)


@pytest.mark.parametrize(("output", "pieces"), [("stream", 1), ("json", 2)])
def test_records_are_joined_unless_their_times_are_shown(
    output: str, pieces: int, tmp_path: Path
) -> None:
    records = [(at * 20, Record(float(at), 1, b"line\n")) for at in range(2)]

    async def alike() -> int:
        with (tmp_path / "out").open("wb") as out:
            console = Console([out.fileno()] * 3, tmp_path, {}, colour=False)
            shown = create_printer(console, ["a", "b"], output, tmp_path, WallClock())
            return len(set(map(shown.merge_key, records)))

    assert asyncio.run(alike()) == pieces


@pytest.mark.parametrize("wait", [poll_readable, select_readable])
def test_the_files_that_can_be_read_are_told(wait: Callable[..., set[int]]) -> None:
    (out, into), (other, its) = os.pipe(), os.pipe()
    os.write(into, b"x")
    assert wait(out, other) == {out}
    os.close(its)
    assert wait(out, other) == {out, other}, "an end can be read, too"
    assert os.read(out, 9) == b"x"
    assert wait(out, other) == {other}
    main, terminal = os.openpty()
    os.write(main, b"typed\n")
    assert wait(out, terminal) == {terminal}
    for file in (out, into, other, main, terminal):
        os.close(file)
