"""Withdrawn commands, and words of other tools, get one sentence that says what to type."""

import pytest

from tpuherd import withdrawn
from tpuherd.cli import command_table, main


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main.run(words, {}) == main.MISUSED
    return capsys.readouterr().err


@pytest.mark.parametrize("word", [*withdrawn.COMMANDS, *withdrawn.WORDS])
def test_each_word_is_refused_with_what_to_type(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    instead = {**withdrawn.COMMANDS, **withdrawn.WORDS}[word]
    for words in (word.split(), ["-q", *word.split(), "gpt"]):
        told = refusal(capsys, *words)
        assert f"use {instead}\n" in told
        assert told.count("\n") == 1


@pytest.mark.parametrize(("option", "instead"), withdrawn.OPTIONS.items())
def test_options_of_other_tools_are_named(
    option: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refusal(capsys, "run", "job.yaml", option)
    assert told == f"herd run: no such option {option}; use {instead}\n"


def test_what_stands_is_no_withdrawn_command() -> None:
    for command in withdrawn.COMMANDS:
        name, _, below = command.partition(" ")
        assert below or name not in main.PLACES.keys() | command_table.ALIASES.keys()
