"""The documentation is true: generated pages are current, links work, commands parse."""

import re
import runpy
import shlex
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

from tpuherd.cli.main import herd
from tpuherd.jobfile.fields import FIELDS
from tpuherd_sim.weather import arguments

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/*.md", "bench/**/*.md")
    for page in ROOT.glob(pattern)
)
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
KINDS = ("tutorial.md", "howto", "reference", "explanation", "decisions", "glossary.md")


def generated() -> dict[Path, str]:
    sys.path.insert(0, str(ROOT / "docs"))  # as where a program's own folder stands
    words: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    pages: dict[Path, str] = words["pages"]()
    return pages


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as hosting sites derive them from headings."""
    headings = re.findall(r"^#+ +(.+)$", prose(page), re.M)
    bare = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in bare}


def test_generated_pages_are_up_to_date() -> None:
    stale = [p.name for p, text in generated().items() if not p.exists() or p.read_text() != text]
    assert stale == [], f"docs/reference is stale: {', '.join(stale)}; `make docs` writes it"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        where = f"{page.relative_to(ROOT)} links to {target}"
        if re.match(r"[a-z]+:", target):
            continue  # external links are not checked
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{where}, which is not there; correct the path"
        assert not anchor or anchor in anchors(other), f"{where}: no such heading; correct it"


def test_every_protection_against_a_threat_names_a_test() -> None:
    page = ROOT / "docs" / "explanation" / "threats.md"
    named = re.findall(r"\[(test_\w+)\]\(([^)]+)\)", page.read_text())
    assert len(named) > 30
    for test, file in named:
        there = f"def {test}(" in (page.parent / file).read_text()
        assert there, f"threats.md: {file} has no {test}; name the test that proves it now"


def test_every_page_is_linked_from_another() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for target in re.findall(r"\]\(([^)#\s]+)", prose(page)):
            other = (page.parent / target).resolve()
            if other.suffix == ".md" and other.exists() and other not in reached:
                waiting.append(other)
    lost = [str(p.relative_to(ROOT)) for p in PAGES if p.resolve() not in reached]
    assert lost == [], f"no page links to {', '.join(lost)}; link it where one would look for it"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_page_exists(kind: str) -> None:
    assert (ROOT / "docs" / kind).exists(), f"docs/{kind} is gone; the README promises it"


def test_decisions_are_numbered_and_name_what_was_given_up() -> None:
    numbers = [int(d.name[:4]) for d in DECISIONS]
    assert numbers == [*range(1, len(DECISIONS) + 1)], "docs/decisions: name them 0001, 0002, …"
    for decision in DECISIONS:
        text = decision.read_text()
        assert text.startswith(f"# {decision.name[:4]} "), f"{decision.name}: begin with its number"
        for heading in ("## Context", "## Decision", "## What we gave up"):
            assert heading in text, f"{decision.name} has no part {heading}; write it"
        assert text.count("\n") <= 60, f"{decision.name} has more than 60 lines; shorten it"


def test_the_glossary_has_each_word_once_in_alphabetical_order() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    words = [row.lower() for row in re.findall(r"^\| ([^|]+) \|", page, re.M)][1:]
    assert len(words) > 100
    odd = [two for one, two in pairwise(words) if one >= two]
    assert not odd, f"docs/glossary.md: {odd} come twice or too late in the alphabet; move them"


def test_readme_names_the_two_commands() -> None:
    for command, file in (("demo", "README.md"), ("test", "README.md"), ("test", ".ci/run")):
        text = (ROOT / file).read_text()
        assert f"make {command}" in text, f"{file} does not name `make {command}`; add it"


def test_changelog_is_for_users_and_starts_with_unreleased() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## Unreleased" in text, "CHANGELOG.md: add `## Unreleased` above the last release"


def shown_commands() -> list[tuple[str, list[str]]]:
    """Return every `herd …` in the shell blocks of every page, with its page."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(), re.M | re.S):
            for line in block.splitlines():
                for said in re.findall(r"(?:^\s*|\$\(|['`])herd ([^#|;&>)`]*)", line):
                    if said.split() and "'" not in said:
                        found.append((str(page.relative_to(ROOT)), shlex.split(said)))
    return found


@pytest.mark.parametrize(("page", "words"), shown_commands(), ids=str)
def test_every_command_shown_is_valid(page: str, words: list[str]) -> None:
    command: click.Command = herd
    context = click.Context(herd, info_name="herd")
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        below = command.get_command(context, rest.pop(0))
        assert below is not None, f"{page}: herd {shlex.join(words)}: no such command; correct it"
        command, context = below, click.Context(below, parent=context, info_name=below.name)
    try:
        command.make_context(command.name, rest, parent=context.parent)
    except click.UsageError as refused:
        assert "does not exist" in str(refused), f"{page}: herd {shlex.join(words)}: {refused}"
    except click.exceptions.Exit:
        pass  # --help
    if words[:2] == ["sim", "weather"] and len(words) > 2 and words[2] != "clear":
        arguments.parse_words(
            arguments.find_kind(words[2]), [w for w in words[3:] if not w.startswith("--")]
        )


def test_examples_call_the_python_of_the_hosts() -> None:
    """TPU VM images have `python3` and no `python`."""
    lines = [(page.name, line) for page in PAGES for line in page.read_text().splitlines()]
    lines += [(name, f"run: {field.example}") for name, field in FIELDS.items()]
    said = [where for where in lines if re.search(r"(run: |-- |^ +)python (?!-m tests)", where[1])]
    assert said == [], f"write python3, TPU VMs have no `python`: {said}"


def test_the_architecture_page_names_every_layer() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][0]
    names = re.findall(r"(?<!\()tpuherd\.(\w+)", " ".join(contract["layers"]))
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    picture = re.findall(r"^```text\n(.*?)^```", page, re.M | re.S)[0]
    shown = set(re.findall(r"(\w+)(?:\.py|/)", picture))
    missing = [name for name in names if name not in {*shown, "front", "_version"}]
    assert not missing, f"the picture of docs/explanation/architecture.md lacks {missing}; add them"
