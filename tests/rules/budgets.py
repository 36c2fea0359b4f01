"""Counts what budgets.toml limits; `make budgets` lowers its numbers to what is there."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from tpuherd.cli.command_table import SECTIONS
from tpuherd.history.event_kinds import EVENT_KINDS
from tpuherd.jobfile.fields import FIELDS

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parent / "budgets.toml"
ROUND = 100  #: lines are rounded up to this, so that few commits touch the file

Counts = dict[str, dict[str, int]]


def read_budgets() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text())


def list_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command there is with its words, groups too."""
    for section in SECTIONS.values():
        for name, (_, place) in section.items():
            module, _, attribute = place.partition(":")
            waiting = [(name, getattr(import_module(module), attribute))]
            while waiting:
                words, command = waiting.pop(0)
                yield words, command
                if isinstance(command, click.Group):
                    waiting += [(f"{words} {n}", sub) for n, sub in command.commands.items()]


def count_promises() -> dict[str, int]:
    commands = dict(list_commands())
    options = [
        option
        for command in commands.values()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    return {
        "commands": sum(" " not in words for words in commands),
        "subcommands": sum(" " in words for words in commands),
        "options": len(options),
        "fields": len(FIELDS),
        "events": len(EVENT_KINDS),
    }


def name_package(file: Path) -> str:
    """Return the package of a file below src, two levels deep."""
    return ".".join(file.relative_to(ROOT / "src").parent.parts[:2])


def is_protocol(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        ast.unparse(base).partition("[")[0].rpartition(".")[2] == "Protocol" for base in node.bases
    )


def count_lines(folder: str, suffix: str) -> int:
    files = (ROOT / folder).rglob(f"*{suffix}")
    lines = sum(file.read_text("utf-8").count("\n") for file in files)
    return -(-lines // ROUND) * ROUND


def count_all() -> Counts:
    """Return what is there now, by the tables of budgets.toml."""
    files, protocols = Counter[str](), Counter[str]()
    for file in (ROOT / "src").rglob("*.py"):
        files[name_package(file)] += 1
        found = sum(is_protocol(node) for node in ast.walk(ast.parse(file.read_text())))
        protocols.update({name_package(file): found} if found else {})
    lines = {
        "src": count_lines("src", ".py"),
        "javascript": count_lines("src", ".js"),
        "tests": count_lines("tests", ".py"),
    }
    return {
        "promises": count_promises(),
        "lines": lines,
        "files": dict(files),
        "protocols": dict(protocols),
    }


def lower_numbers(text: str, counts: Counts) -> str:
    """Return the text of budgets.toml with the numbers that can be lower; none is raised."""
    table, lines = "", []
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        row = re.fullmatch(r'("?)([\w.]+)\1 = (\d+)', line)
        if row and table in counts:
            now = min(counts[table].get(row[2], 0), int(row[3]))
            if now == 0:
                continue
            line = f"{row[1]}{row[2]}{row[1]} = {now}"
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(lower_numbers(FILE.read_text(), count_all()))
