"""The page of benchmarks says what the results say, and README.md quotes what they say."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.page.contents import SECTIONS  # noqa: E402
from bench.page.document import IMAGES, QUOTES, README, pages  # noqa: E402
from bench.page.plots import PLOTS  # noqa: E402
from bench.page.results import read_runs  # noqa: E402


def test_page_plots_and_readme_are_what_the_results_give() -> None:
    found = pages(read_runs())
    stale = [p.name for p, text in found.items() if not p.exists() or p.read_text() != text]
    left = {one.name for one in IMAGES.glob("bench-*.svg")} - {one.name for one in found}
    assert (stale, left) == ([], set()), f"{stale} are stale: `make bench-page`; delete {left}"


def test_every_result_is_on_the_page() -> None:
    named = {section.name for section in SECTIONS}
    found = [run.name for run in read_runs() if run.benchmark not in named]
    assert not found, f"bench/results: {found} are on no page; add a section to bench/page/contents"


def test_every_section_has_its_benchmark_and_its_plot() -> None:
    gone = [s.name for s in SECTIONS if not (ROOT / f"bench/{s.name}.py").exists()]
    odd = {s.plot for s in SECTIONS if s.plot} ^ set(PLOTS)
    assert not gone, f"bench/page/contents.py: {gone} have no benchmark; remove their sections"
    assert not odd, f"bench/page: {odd} are in contents.py or in plots.py only; add the other half"


def test_readme_quotes_every_figure_that_it_means_to() -> None:
    text = README.read_text()
    gone = [words for words, _, _ in QUOTES if f"| {words} |" not in text]
    assert not gone, f"README.md lacks rows of QUOTES in bench/page/document.py; add {gone}"
