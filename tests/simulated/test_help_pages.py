"""Every page of help is as its file in tests/scenarios/cli/help says: 80 columns, no color."""

from collections.abc import Iterator

import click
import pytest

from tests.simulated.golden_files import check_golden, check_no_other_files
from tpuherd.cli.main import herd, run

NEAR = ("src/tpuherd/cli/*.py", "tests/scenarios/cli/help/*")
HEAD = click.Context(herd, info_name="herd")
COMMANDS = herd.list_commands(HEAD)


def list_pages(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the words of a command, and those of all below it."""
    yield words
    if isinstance(command, click.Group):
        for name in command.list_commands(HEAD):
            below = command.get_command(HEAD, name)
            assert below is not None
            yield from list_pages(below, (*words, name))


def test_the_pages_of_all_commands(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = ""
    for option in ("--help", "--all"):
        assert run([option]) == 0
        text += f"$ herd {option}\n{capfd.readouterr().out}\n"
    check_golden("help/herd.txt", text)
    check_no_other_files("help/*", [f"help/{name}.txt" for name in ["herd", *COMMANDS]])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_pages_of_a_command(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command = herd.get_command(HEAD, name)
    assert command is not None
    text = ""
    for words in list_pages(command, (name,)):
        assert run([*words, "--help"]) == 0
        text += f"$ herd {' '.join(words)} --help\n{capfd.readouterr().out}\n"
    check_golden(f"help/{name}.txt", text)
