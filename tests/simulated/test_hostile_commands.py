"""Hostile words as every argument and option of every command: a sentence, and nothing done.

Commands, arguments and options come from the table of commands: a new one is covered by itself.
`HERD_HOSTILE=all` tries every word at every place; else each place gets one, by turns.
"""

import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import click
import pytest

from tests.hostile_words import WORDS
from tests.unit.test_printable import acts
from tpuherd.cli.command_table import HIDDEN, SECTIONS
from tpuherd.cli.main import run
from tpuherd.views.printable import COLOURED

EVERY = os.environ.get("HERD_HOSTILE") == "all"
#: What an argument of a process can be: no NUL, and bytes that are no text as Python has them.
ARGUMENTS = {kind: word for kind, word in WORDS.items() if kind not in ("nul", "half")}
#: These serve until they are ended.
SERVING = {"sim start", "engine run", "ui", "top", "daemon run"}
INTERNAL = ("internal error", "Traceback", "HERD_DEBUG")


def list_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """A command, or those of a group."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from list_commands(below, f"{path} {name}")
    elif path not in SERVING:
        yield path, command


def all_commands() -> dict[str, click.Command]:
    places = {name: place for many in SECTIONS.values() for name, (_, place) in many.items()}
    found: dict[str, click.Command] = {}
    for name, place in {**places, **HIDDEN}.items():
        module, _, attribute = place.partition(":")
        found.update(list_commands(getattr(import_module(module), attribute), name))
    return found


COMMANDS = all_commands()
#: The word that each command gets when not every one does.
TURNS = {path: [*ARGUMENTS][at % len(ARGUMENTS)] for at, path in enumerate(COMMANDS)}


def hostile_lines(path: str, command: click.Command, word: str) -> Iterator[Sequence[str]]:
    """Command lines with the word at each place that takes a text."""
    given = [one for one in command.params if isinstance(one, click.Argument) and one.required]
    plain = ["x"] * len(given)
    for at, _ in enumerate(given):
        yield [*path.split(), "--", *plain[:at], word, *plain[at + 1 :]]
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_flag and not option.count:
            yield [*path.split(), f"{option.opts[0]}={word}", *plain]
    if not given:
        yield [*path.split(), word]


@pytest.mark.parametrize("path", COMMANDS)
def test_hostile_arguments_are_answered_with_a_sentence(
    path: str, world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    words = list(ARGUMENTS.values())
    for word in words if EVERY else [ARGUMENTS[TURNS[path]]]:
        for line in hostile_lines(path, COMMANDS[path], word):
            status = run(line, {**os.environ, "TERM": "dumb"})
            said = capfd.readouterr()
            shown = [one[:60] for one in line]
            assert not any(one in said.err for one in INTERNAL), (shown, said.err[-500:])
            assert not acts(COLOURED.sub("", said.out + said.err)), shown
            assert len(said.err) < 250_000, shown
            assert status in range(256), shown
    # A file that is called like the whole word was asked for, as by --output.
    assert not [file for file in tmp_path.rglob("*") if file.name == "pwned"], "it was run"
