"""A field of a job is forgotten by no export."""

import pytest

from tpuherd.exports.field_table import ENGINES
from tpuherd.jobfile.fields import FIELDS


@pytest.mark.parametrize("engine", ENGINES)
def test_the_table_of_each_engine_has_every_field(engine: str) -> None:
    empty = FIELDS.keys() - {
        name for name, row in ENGINES[engine].items() if row.becomes or row.lost
    }
    assert not empty, f"exports/field_table.py: say what {empty} become in {engine}, or is lost"
