"""The worked examples of the pages for users of other tools run as written."""

import re
from pathlib import Path

import pytest

from tests.integration.test_docs_run import ROOT, run_script

HOWTO = ROOT / "docs" / "howto"
#: By page: what its example prints at least so often.
PAGES = {
    "from-gcloud": {"version 1 on t1v": 4, "version 2 on t1v": 12, "installed": 9},
    "from-levanter": {"run k3v9x0ab": 2},
    "from-skypilot": {"training with --lr 0.1 --rank 1": 2, "preempted": 1},
    "from-tpucare": {"try 0": 2, "try 1": 1},
    "from-tpunicorn": {"training on t1v": 4},
}

pytestmark = [pytest.mark.real, pytest.mark.needs("git")]


@pytest.mark.parametrize("page", PAGES)
def test_the_example_runs_as_written(page: str, tmp_path: Path) -> None:
    text = (HOWTO / f"{page}.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    assert blocks
    done = run_script("set -e\n" + "\n".join(blocks), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for words, many in PAGES[page].items():
        assert done.stdout.count(words) >= many, f"{words}\n{done.stdout}\n{done.stderr}"


def test_every_page_is_here() -> None:
    pages = {file.stem for file in HOWTO.glob("from-*.md")}
    assert {page for page in pages if "```sh" in (HOWTO / f"{page}.md").read_text()} == set(PAGES)
