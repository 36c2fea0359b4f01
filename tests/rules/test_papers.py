"""Packaging: licence, authors, installation, and published types."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FIRST_SCREEN_LINES = 40


def read_project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert re.match(r"\s*Apache License\s+Version 2\.0, January 2004\n", text)
    assert "END OF TERMS AND CONDITIONS" in text
    project = read_project()
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE"]


def test_the_package_names_its_author_and_purpose() -> None:
    project = read_project()
    assert project["authors"] == [{"name": "The tpuherd authors"}]
    assert "urls" not in project, "there is no place in the web to point to yet"
    least = project["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {least}" in project["classifiers"]
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]


@pytest.mark.parametrize("package", ["tpuherd", "tpuherd_host", "tpuherd_sim"])
def test_the_types_are_published(package: str) -> None:
    assert (ROOT / "src" / package / "py.typed").is_file()
    assert "Typing :: Typed" in read_project()["classifiers"]


def test_the_first_screen_of_the_readme_says_how_to_install() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()[:FIRST_SCREEN_LINES]
    for command in ("pip install .", "uv tool install ."):
        shown = any(command in line for line in lines)
        assert shown, f"README.md: name `{command}` in the first {FIRST_SCREEN_LINES} lines"
