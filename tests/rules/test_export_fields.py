"""A field of a job is forgotten by no export."""

import pytest

from tpuherd.exports.field_table import ENGINES
from tpuherd.jobfile.fields import FIELDS


@pytest.mark.parametrize("engine", ENGINES)
def test_the_table_of_each_engine_has_every_field(engine: str) -> None:
    assert FIELDS.keys() <= ENGINES[engine].keys()
    assert all(row.becomes or row.lost for row in ENGINES[engine].values())
