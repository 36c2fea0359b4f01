"""The page about labs says of every command what it may do to the jobs of others."""

import re
from pathlib import Path

from tpuherd.cli.command_table import SECTIONS

PAGE = Path(__file__).parents[2] / "docs/howto/lab.md"


def test_the_list_of_what_commands_do_to_the_jobs_of_others_is_complete() -> None:
    _, _, rest = PAGE.read_text().partition("## What your commands never do")
    chapter = rest.partition("\n## ")[0]
    cells = [line.split("|")[1] for line in chapter.splitlines() if line.startswith("| ")]
    words = {text.removeprefix("herd ").split()[0]
             for cell in cells for text in re.findall(r"`([^`]+)`", cell)}  # fmt: skip
    assert words == {name for commands in SECTIONS.values() for name in commands}
