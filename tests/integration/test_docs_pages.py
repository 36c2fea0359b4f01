"""The pages of the book, and those for users of other tools, run as written."""

import re
from pathlib import Path

import pytest

from tests.integration.test_docs_run import ROOT, run_script

DOCS = ROOT / "docs"
#: By page: what its example prints at least so often.
PAGES = {
    "book/first-tpu": {"tool of t1v": 4, "ended python3 hold.py": 1},
    "book/levanter": {"begins at step 10": 1, "run k3v9x0ab begins": 1, "STORY": 1},
    "book/pods": {"has the key: True": 8, "64\n": 1, "trained, with new code": 1},
    "book/vision": {
        "wrote, read and deleted": 4,
        "ended python3 orphan.py": 1,
        "has seen 32 of": 4,
    },
    "howto/from-gcloud": {"version 1 on t1v": 4, "version 2 on t1v": 12, "installed": 4},
    "howto/from-levanter": {"run k3v9x0ab": 2},
    "howto/from-skypilot": {"training with --lr 0.1 --rank 1": 2, "preempted": 1},
    "howto/from-tpucare": {"try 0": 1, "try 1": 1},
    "howto/from-tpunicorn": {"training on t1v": 4},
}

#: The others take up to a minute each, and are run by `make test-real`.
SHORT = ("book/first-tpu",)

pytestmark = [pytest.mark.real, pytest.mark.needs("git", "curl")]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page in SHORT else pytest.mark.heavy) for page in PAGES],
)
def test_the_example_runs_as_written(page: str, tmp_path: Path) -> None:
    text = (DOCS / f"{page}.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    assert blocks
    done = run_script("set -e\n" + "\n".join(blocks), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for words, many in PAGES[page].items():
        assert done.stdout.count(words) >= many, f"{words}\n{done.stdout}\n{done.stderr}"


def test_every_page_with_an_example_is_here() -> None:
    files = [*(DOCS / "howto").glob("from-*.md"), *(DOCS / "book").glob("*.md")]
    pages = {f"{one.parent.name}/{one.stem}" for one in files if "```sh" in one.read_text()}
    assert pages == set(PAGES)
