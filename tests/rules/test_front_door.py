"""What a user meets first: public names, start-up time, help and refusals."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

import tpuherd
from tpuherd.cli import main as command_line
from tpuherd.cli.command_table import ALIASES, FIRST, SECTIONS, all_commands_page, help_page
from tpuherd.cli.examples import EXAMPLES
from tpuherd.commands.terminal_facts import choose_colour

HERD = [sys.executable, "-m", "tpuherd.launcher"]
HEAVY = {
    "asyncio", "asyncssh", "click", "google", "h2", "httpx", "httpx2", "jax", "msgspec",
    "numpy", "rich", "sqlite3", "ssl", "uvicorn", "yaml",
}  # fmt: skip
CLI = sorted(Path(command_line.__file__).parent.glob("*.py"))


def herd(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*HERD, *words], capture_output=True, text=True)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command there is, as it is typed."""
    rows = [(n, place) for section in SECTIONS.values() for n, (_, place) in section.items()]
    for name, place in rows:
        module, _, attribute = place.partition(":")
        waiting = [(name, getattr(import_module(module), attribute))]
        while waiting:
            words, command = waiting.pop(0)
            yield words, command
            if isinstance(command, click.Group):
                waiting += [(f"{words} {n}", sub) for n, sub in command.commands.items()]


def test_the_public_api_has_at_most_20_names() -> None:
    assert len(tpuherd.__all__) <= 20
    for name in tpuherd.__all__:
        assert hasattr(tpuherd, name), name


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--version"]], ids=" ".join)
def test_quick_commands_load_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tpuherd.launcher", *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.split("\n")}
    assert not loaded & HEAVY


def test_the_python_package_loads_nothing_heavy() -> None:
    script = "import sys, tpuherd; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert not set(done.stdout.split()) & HEAVY


#: Commands that only read load none of these: they ask neither the cloud nor a host.
FAR = {"asyncssh", "cryptography", "google", "h2", "httpx2", "msgspec", "uvicorn", "yaml"}


def modules_loaded_by(script: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_read_only_commands_load_no_network_code() -> None:
    names = "launcher cli.main cli.ls cli.status cli.why cli.events cli.run_in_process".split()
    modules = ", ".join(
        f"tpuherd.{name}" for name in (*names, "cli.store_session", "jobs.job_queries")
    )
    assert not modules_loaded_by(f"import {modules}") & FAR


#: No page of help loads these.
HELP_SPARES = FAR | {"asyncio", "sqlite3", "ssl"}


def test_help_of_no_command_loads_anything_heavy() -> None:
    lines = [words.split() for words, _ in commands()]
    script = f"""
from tpuherd.cli.main import run
for words in {lines!r}:
    assert run([*words, "--help"]) == 0, words
"""
    assert not modules_loaded_by(script) & HELP_SPARES


def test_the_command_page_lists_every_option_and_command() -> None:
    for parameter in command_line.herd.params:
        for option in parameter.opts:
            assert option in all_commands_page(), option
    for section in SECTIONS.values():
        for name, (sentence, _) in section.items():
            assert re.search(rf"^  {name} +{re.escape(sentence)}$", all_commands_page(), re.M)
            assert (f"\n  {name} " in help_page()) is (name in FIRST)
    assert max(map(len, all_commands_page().splitlines())) <= 80


def test_the_first_page_of_help_fits_a_small_screen() -> None:
    assert len(FIRST) == 14
    assert len(help_page().splitlines()) <= 24
    assert max(map(len, help_page().splitlines())) <= 80
    assert herd("--all").stdout == all_commands_page()


def help_pages() -> Iterator[tuple[str, str]]:
    """Every page of help, as a user gets it."""
    top = click.Context(command_line.herd, info_name="herd", **command_line.herd.context_settings)
    waiting: list[tuple[str, click.Command, click.Context]] = []
    for name in command_line.herd.list_commands(top):
        command = command_line.herd.get_command(top, name)
        assert command is not None
        waiting.append((name, command, top))
    while waiting:
        words, command, above = waiting.pop(0)
        name = words.rpartition(" ")[2]
        context = click.Context(command, above, info_name=name, terminal_width=80)
        yield words, command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                waiting.append((f"{words} {name}", below, context))


def test_every_help_page_ends_with_examples() -> None:
    pages = dict(help_pages())
    assert pages.keys() == EXAMPLES.keys()
    for words, page in pages.items():
        lines = EXAMPLES[words]
        assert 1 <= len(lines) <= 3, words
        assert re.search(
            r"\n\nExamples?:\n" + "".join(f"  {re.escape(one)}\n?" for one in lines), page
        )
        assert all(f"herd {re.split(' FILE| JOB', words)[0]}" in one for one in lines[:1]) or (
            words in ("context", "engine", "engine daemon", "sim")
        )


ODD = re.compile(
    r"\b(wish\w*|bears|nobody|whoever|no more|so long|so many|goes on|is told|is said"
    r"|as it stands|keepers?|holders)\b",
    re.I,
)


def test_help_is_written_in_plain_words() -> None:
    found = [(words, ODD.findall(page)) for words, page in help_pages() if ODD.search(page)]
    assert not found
    assert not ODD.search(help_page() + all_commands_page())


def test_every_command_and_option_has_a_description() -> None:
    for words, command in commands():
        assert command.help, f"herd {words} has no help"
        assert command.get_short_help_str(200).endswith("."), f"herd {words}: a sentence, please"
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, f"herd {words} {parameter.opts[0]} has no help"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["simm"], "herd: unknown command simm; did you mean sim?"),
        (["frobnicate"], "herd: unknown command frobnicate; `herd --help` lists all commands."),
        (["--wrold", "x"], "herd: no such option '--wrold'. Did you mean '--world'?"),
        (["--world", "README.md", "sim"], "README.md"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_misspelled_word_is_one_sentence_and_exit_2(words: list[str], sentence: str) -> None:
    done = herd(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_words_that_people_search_for_are_options_of_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for word, (command, option) in ALIASES.items():
        assert command_line.run([command, option, "--help"]) == 0
        page = capsys.readouterr().out
        assert command_line.run([word, "--help"]) == 0
        assert capsys.readouterr().out == page
        assert f"\n  {word} " not in all_commands_page()


def test_herd_without_a_command_prints_the_page_and_fails() -> None:
    done = herd()
    assert (done.returncode, done.stdout, done.stderr) == (2, "", help_page())


BURST = """
import click

@click.command()
def burst():
    raise ValueError("no such thing")
"""


def test_no_traceback_reaches_a_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bursting.py").write_text(BURST)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(command_line.PLACES, "burst", "bursting:burst")
    assert command_line.run(["burst"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("herd: internal error: ValueError: no such thing\n")
    assert "Traceback" not in said
    monkeypatch.setenv("HERD_DEBUG", "1")
    with pytest.raises(ValueError, match="no such thing"):
        command_line.run(["burst"])


@pytest.mark.parametrize(
    ("environment", "colour"),
    [
        ({}, None),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, None),
        ({"TERM": "dumb"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"CLICOLOR_FORCE": "0"}, None),
        ({"CLICOLOR_FORCE": "1"}, True),
    ],
    ids=str,
)
def test_the_user_decides_about_color(environment: dict[str, str], colour: bool | None) -> None:
    assert choose_colour(environment) is colour


def test_no_help_page_is_wider_than_80_columns() -> None:
    top = click.Context(command_line.herd, info_name="herd", **command_line.herd.context_settings)
    for words, command in commands():
        context = click.Context(command, top, info_name=words, terminal_width=80)
        wide = [line for line in command.get_help(context).splitlines() if len(line) > 80]
        assert not wide, f"herd {words}: {wide}"
