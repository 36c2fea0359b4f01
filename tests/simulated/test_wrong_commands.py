"""What wrong command lines are answered, as the files in tests/scenarios/cli/wrong say.

One file a command, with its status and what it prints on stderr; newcomers.txt has what people
typed on their first day, with all that it prints.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.simulated.fixed_world import FixedWorld, open_fixed_world
from tests.simulated.golden_files import check_golden, check_no_other_files
from tests.simulated.wrong_commands import OWN, wrong_lines
from tpuherd.cli.main import herd
from tpuherd.exit_status import MISUSED

NEAR = ("src/tpuherd/cli/*.py", "src/tpuherd/withdrawn.py", "tests/scenarios/cli/wrong/*")
HEAD = click.Context(herd, info_name="herd")
COMMANDS = herd.list_commands(HEAD)
NEWCOMERS = Path(__file__).parents[1] / "scenarios" / "cli" / "newcomers.txt"


@pytest.fixture
def fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[FixedWorld]:
    with open_fixed_world(tmp_path, monkeypatch, capfd) as world:
        yield world


@pytest.mark.parametrize("name", COMMANDS)
def test_mistakes_are_answered_with_a_sentence(name: str, fixed: FixedWorld) -> None:
    command = herd.get_command(HEAD, name)
    assert command is not None
    before, text = fixed.kept(), ""
    for line in wrong_lines(command, name):
        status, out, err = fixed.run(*shlex.split(line))
        assert status != MISUSED or out == "", line
        text += f"$ herd {line}\n{err}status {status}\n\n"
    check_golden(f"wrong/{name}.txt", text)
    assert fixed.kept() == before


def test_files_and_mistakes_belong_to_commands() -> None:
    check_no_other_files("wrong/*", [f"wrong/{name}.txt" for name in [*COMMANDS, "newcomers"]])
    assert OWN.keys() <= set(COMMANDS)


def test_what_newcomers_typed(fixed: FixedWorld) -> None:
    """Lines of newcomers.txt: `file NAME`, its content indented, `herd …`; `#` explains."""
    text = ""
    for part in NEWCOMERS.read_text().split("\n\n"):
        text += f"{part.rstrip()}\n"
        file: list[str] = []
        for line in part.splitlines():
            if line.startswith("    "):
                file.append(line[4:])
            elif line.startswith("file "):
                name = line.removeprefix("file ")
            elif line.startswith("herd "):
                if file:
                    (fixed.home / "work" / name).write_text("\n".join(file) + "\n")
                status, out, err = fixed.run(*shlex.split(line)[1:])
                text += f"{out}{err}status {status}\n"
        text += "\n"
    check_golden("wrong/newcomers.txt", text)
