"""A page of help fits a screen."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "tests" / "scenarios" / "cli" / "help"  #: as `herd COMMAND --help` prints them
LINES, COLUMNS = 30, 80
ADVICE = "use fewer words, or hide a rare option (`hidden=True`; the reference shows it, too)"


def list_pages() -> list[tuple[str, list[str]]]:
    """Return each page with the command that prints it."""
    text = "".join(file.read_text() for file in sorted(PAGES.glob("*.txt")))
    parts = re.split(r"^\$ (herd.*)\n", text, flags=re.M)[1:]
    pages = zip(parts[::2], parts[1::2], strict=True)
    return [(name, page.strip("\n").split("\n")) for name, page in pages if "--help" in name]


def test_each_page_fits_a_screen() -> None:
    pages = list_pages()
    assert len(pages) > 80
    long = [f"{name}: {len(page)} lines of {LINES}" for name, page in pages if len(page) > LINES]
    wide = [f"{name}: {line}" for name, page in pages for line in page if len(line) > COLUMNS]
    assert long + wide == [], f"{long + wide}: {ADVICE}"


def test_the_lists_of_subcommands_cut_no_sentence() -> None:
    cut = [
        f"{name}: {line.strip()}"
        for name, page in list_pages()
        for line in page
        if line.endswith("...") and not line.startswith("Usage:")
    ]
    assert cut == [], f"{cut}: shorten the first sentence of the subcommand's docstring"
