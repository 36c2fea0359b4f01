"""How a command line is parsed: options that may be anywhere, words of the remote command."""

import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from tpuherd.cli import main as command_line
from tpuherd.cli.parsed_command import ParsedCommand
from tpuherd.commands.command_types import ExecRequest


def understand(line: str, environ: dict[str, str] | None = None) -> ParsedCommand:
    """What a command line comes to, without doing it."""
    commands: list[ParsedCommand] = []

    def keep(command: Any) -> int:
        commands.append(command)
        return 0

    assert command_line.run(shlex.split(line), environ or {}, keep) == 0, line
    return commands[0]


@pytest.mark.parametrize(
    ("line", "world", "loud"),
    [
        ("-q ls", None, -1),
        ("ls -q", None, -1),
        ("-v ls -v", None, 2),
        ("ls -vv --json", None, 2),
        ("--world w ls", "w", 0),
        ("ls --world w", "w", 0),
        ("ls --world=w -q", "w", -1),
        ("--world old ls --world w", "w", 0),
        ("sweep -v status gpt --world w", "w", 1),
        ("exec gpt -v -- ls", None, 1),
        ("exec -q gpt --world w ls", "w", -1),
        ("logs gpt -f --world w", "w", 0),
    ],
)
def test_world_and_verbosity_options_may_be_anywhere(
    line: str, world: str | None, loud: int
) -> None:
    said = understand(line).said
    assert (said.world, said.loud) == (world and Path(world), loud)


def test_every_command_takes_them() -> None:
    waiting: list[click.Command] = [command_line.herd]
    many = 0
    while waiting:
        command = waiting.pop()
        taken = {name for param in command.params for name in param.opts}
        assert {"-q", "-v", "--world"} <= taken, command.name
        many += 1
        if isinstance(command, click.Group):
            context = click.Context(command)
            below = [command.get_command(context, name) for name in command.list_commands(context)]
            waiting += [one for one in below if one is not None]
    assert many > 50


@pytest.mark.parametrize("verb", ["exec", "ssh"])
@pytest.mark.parametrize(
    ("words", "argv"),
    [
        ("gpt -- ls -v --world x -q", ["ls", "-v", "--world", "x", "-q"]),
        ("gpt ls -l -v --help", ["ls", "-l", "-v", "--help"]),
        ("-v gpt prog --world x -- -q", ["prog", "--world", "x", "--", "-q"]),
        ("-t gpt --world w top -q", ["top", "-q"]),
        ("gpt -- -v", ["-v"]),
    ],
)
def test_options_of_the_remote_command_are_not_ours(verb: str, words: str, argv: list[str]) -> None:
    request = understand(f"{verb} {words}").work.args[0]  # type: ignore[attr-defined]
    assert isinstance(request, ExecRequest)
    assert (request.target, list(request.argv)) == ("gpt", argv)


def test_a_value_that_looks_like_an_option_is_a_value() -> None:
    command = understand("logs gpt --grep -v")
    assert (command.work.args[0].grep, command.said.loud) == ("-v", 0)  # type: ignore[attr-defined]


def test_words_after_the_dashes_of_run_are_its_command() -> None:
    command = understand("run --name a --accelerator v4-8 -v -- python x.py -q --world w")
    assert command.work.args[0].said.command == (  # type: ignore[attr-defined]
        "python", "x.py", "-q", "--world", "w",
    )  # fmt: skip
    assert (command.said.loud, command.said.world) == (1, None)


@pytest.mark.parametrize(
    ("command", "shell"),
    [
        ("'ls -l | head'", "ls -l | head"),
        ("-- 'ls -l'", "ls -l"),
        ("'ls|head'", "ls|head"),
        ("'~/bin/tool'", "~/bin/tool"),
        ("FOO=1 cmd", "FOO=1 cmd"),
        ("'A=x y' B= cmd 'a b' C=3", "A='x y' B='' cmd 'a b' C=3"),
        ("ls", None),
        ("FOO=1", None),
        ("ls -l '*.log'", None),
        ("env FOO=1 cmd", None),
    ],
)
def test_what_exec_gives_to_the_shell(command: str, shell: str | None) -> None:
    [request] = understand(f"exec gpt {command}").work.args  # type: ignore[attr-defined]
    words = shlex.split(command.removeprefix("-- "))
    assert (request.shell, request.argv) == (shell, () if shell else tuple(words))
