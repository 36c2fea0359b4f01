"""What a user meets first: public names, start-up time, help and refusals."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import tpuherd
from tests.rules.budgets import list_commands
from tpuherd.cli import main as command_line
from tpuherd.cli.command_table import ALIASES, FIRST, SECTIONS, all_commands_page, help_page
from tpuherd.cli.examples import EXAMPLES
from tpuherd.commands.terminal_facts import choose_colour

HERD = [sys.executable, "-m", "tpuherd.launcher"]
HEAVY = {
    "asyncio", "asyncssh", "click", "google", "h2", "httpx", "httpx2", "jax", "msgspec",
    "numpy", "rich", "sqlite3", "ssl", "uvicorn", "yaml",
}  # fmt: skip
LAZILY = "import it in the function that needs it (`python -X importtime` shows who imports it)"


def herd(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*HERD, *words], capture_output=True, text=True)


def test_the_public_api_has_at_most_20_names() -> None:
    names = tpuherd.__all__
    assert len(names) <= 20, f"tpuherd.__all__ has {len(names)} names, may have 20; remove one"
    for name in names:
        assert hasattr(tpuherd, name), f"tpuherd.__all__ names {name}, which is not there"


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--version"]], ids=" ".join)
def test_quick_commands_load_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tpuherd.launcher", *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.split("\n")}
    assert not loaded & HEAVY, f"herd {words[0]} loads {loaded & HEAVY}; {LAZILY}"


def test_the_python_package_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("import tpuherd") & HEAVY
    assert not loaded, f"`import tpuherd` loads {loaded}; {LAZILY}"


def test_the_launcher_loads_only_itself() -> None:
    """It starts, asks the daemon, and ends: every import is most of a warm command's time."""
    more = modules_loaded_by("import tpuherd.launcher") - modules_loaded_by("import time")
    odd = sorted(name for name in more if name.partition(".")[0] != "tpuherd")
    assert not odd, f"tpuherd/launcher.py loads {odd}; {LAZILY}"


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
    loaded = modules_loaded_by(f"import {modules}") & FAR
    assert not loaded, f"ls, status, why and events load {loaded}; {LAZILY}"


#: No page of help loads these.
HELP_SPARES = FAR | {"asyncio", "sqlite3", "ssl"}


def test_help_of_no_command_loads_anything_heavy() -> None:
    lines = [words.split() for words, _ in list_commands()]
    script = f"""
from tpuherd.cli.main import run
for words in {lines!r}:
    assert run([*words, "--help"]) == 0, words
"""
    loaded = modules_loaded_by(script) & HELP_SPARES
    assert not loaded, f"a page of `herd COMMAND --help` loads {loaded}; {LAZILY}"


def test_the_command_page_lists_every_option_and_command() -> None:
    for parameter in command_line.herd.params:
        for option in parameter.opts:
            assert option in all_commands_page(), f"`herd --all` lacks {option}: add it to its head"
    for section in SECTIONS.values():
        for name, (sentence, _) in section.items():
            assert re.search(rf"^  {name} +{re.escape(sentence)}$", all_commands_page(), re.M)
            assert (f"\n  {name} " in help_page()) is (name in FIRST)
    wide = [line for line in all_commands_page().splitlines() if len(line) > 80]
    assert not wide, f"shorten these sentences in cli/command_table.py to 80 columns: {wide}"


def test_the_first_page_of_help_fits_a_small_screen() -> None:
    lines, advice = help_page().splitlines(), "change FIRST or a sentence in cli/command_table.py"
    assert len(FIRST) == 14, f"`herd --help` has 14 commands, not {len(FIRST)}; {advice}"
    assert len(lines) <= 24, f"`herd --help` has {len(lines)} lines, may have 24; {advice}"
    assert max(map(len, lines)) <= 80, f"`herd --help` is wider than 80 columns; {advice}"
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
    odd = sorted(pages.keys() ^ EXAMPLES.keys())
    assert not odd, f"commands and EXAMPLES in cli/examples.py differ; add or remove: {odd}"
    for words, page in pages.items():
        lines, where = EXAMPLES[words], f"EXAMPLES of {words!r} in cli/examples.py"
        assert 1 <= len(lines) <= 3, f"{where} has {len(lines)} lines; keep 1 to 3"
        assert re.search(
            r"\n\nExamples?:\n" + "".join(f"  {re.escape(one)}\n?" for one in lines), page
        ), f"`herd {words} --help` does not end with {where}: let nothing follow, break no line"
        assert all(f"herd {re.split(' FILE| JOB', words)[0]}" in one for one in lines[:1]) or (
            words in ("context", "engine", "engine daemon", "sim")
        ), f"{where} begins with another command; begin with `herd {words}`"


ODD = re.compile(
    r"\b(wish\w*|bears|nobody|whoever|no more|so long|so many|goes on|is told|is said"
    r"|as it stands|keepers?|holders)\b",
    re.I,
)


def test_help_is_written_in_plain_words() -> None:
    pages = [*help_pages(), ("", help_page()), ("--all", all_commands_page())]
    found = [f"herd {words}: {one[0]}" for words, page in pages for one in ODD.finditer(page)]
    assert not found, f"write the help of these commands without these words: {found}"


def test_every_command_and_option_has_a_description() -> None:
    for words, command in list_commands():
        where = f"`herd {words}` ({command.callback.__module__})" if command.callback else words
        assert command.help, f"{where} has no help; give its function a docstring"
        first = command.get_short_help_str(200)
        assert first.endswith("."), f"{where}: {first!r}; make it a sentence with a full stop"
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, f"{where}: {parameter.opts[0]} has no help; give it help="


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["simm"], "herd: unknown command simm; did you mean sim?"),
        (["frobnicate"], "herd: unknown command frobnicate; `herd --all` lists all commands."),
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
