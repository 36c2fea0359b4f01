"""The lists of long tests name existing tests."""

from pathlib import Path

import pytest

from tests.tiers import LONG, REAL, is_listed

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("row", LONG + REAL)
def test_every_row_names_a_test(row: str) -> None:
    file, _, name = row.partition("[")[0].partition("::")
    text = (TESTS / file).read_text() if (TESTS / file).exists() else ""
    wanted = f"def {name}(" if name else "def test_"
    assert wanted in text, f"tests/tiers.py: {row} names no test; correct the row, or remove it"


def test_a_case_of_a_file_is_that_case_of_all_its_tests() -> None:
    rows = ("unit/test_a.py[two-words]",)
    assert is_listed("tests/unit/test_a.py::test_x[two-words]", rows)
    assert is_listed("tests/unit/test_a.py::test_y[two-words-3.8]", rows)
    for other in ("test_a.py::test_x[two]", "test_a.py::test_x", "test_b.py::test_x[two-words]"):
        assert not is_listed(f"tests/unit/{other}", rows)
