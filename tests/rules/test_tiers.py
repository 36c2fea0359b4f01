"""The list of long tests names existing tests."""

from pathlib import Path

import pytest

from tests.tiers import LONG

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("row", LONG)
def test_every_row_names_a_test(row: str) -> None:
    file, _, name = row.partition("::")
    text = (TESTS / file).read_text()
    assert not name or f"def {name.partition('[')[0]}(" in text
