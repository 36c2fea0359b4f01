"""The lists of long tests name existing tests."""

from pathlib import Path

import pytest

from tests.tiers import LONG, REAL

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("row", LONG + REAL)
def test_every_row_names_a_test(row: str) -> None:
    file, _, name = row.partition("::")
    text = (TESTS / file).read_text()
    assert not name or f"def {name.partition('[')[0]}(" in text
