"""Withdrawn commands, and words of other tools, get one sentence that says what to type."""

import pytest

from tpuherd import withdrawn
from tpuherd.cli import command_table, main
from tpuherd.jobfile.read_job import JobSpec, read_document, read_fields
from tpuherd.jobfile.yaml_with_lines import read_yaml


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
    for words in (("run", "job.yaml", option), ("run", option, "job.yaml"), ("up", option)):
        told = refusal(capsys, *words)
        assert told == f"herd {words[0]}: no such option {option}; use {instead}\n"


def test_what_stands_is_no_withdrawn_command() -> None:
    for command in withdrawn.COMMANDS:
        name, _, below = command.partition(" ")
        assert below or name not in main.PLACES.keys() | command_table.ALIASES.keys()


@pytest.mark.parametrize(
    ("written", "kept"), [("python", ()), ("[boot, python]", ("boot",)), ("[python]", ())]
)
def test_a_withdrawn_value_is_dropped_with_a_notice(written: str, kept: tuple[str, ...]) -> None:
    page = read_yaml(f"name: gpt\naccelerator: v4-8\nhead_start: {written}\n")
    job = read_document(page)
    assert isinstance(job, JobSpec)
    assert job.head_start == kept
    assert [one.format_line("job.yaml") for one in page.notices] == [
        "job.yaml:3: head_start: python was withdrawn and is ignored: the command's Python starts"
        " with its attempt, about a second later"
    ]


def test_a_stored_job_with_a_withdrawn_value_is_read() -> None:
    stored = {"name": "gpt", "accelerator": ["v4-8"], "head_start": ["boot", "python"]}
    job = read_fields(stored)
    assert isinstance(job, JobSpec)
    assert job.head_start == ("boot",)
