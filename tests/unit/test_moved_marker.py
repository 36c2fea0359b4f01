"""A store that was moved away says where its jobs are."""

from pathlib import Path

import pytest

from tpuherd.errors import InvalidInput
from tpuherd.store.database import Database
from tpuherd.store.moved_marker import leave_marker


@pytest.mark.parametrize(
    ("to", "hint"),
    [
        ("me@vm", "use them there: herd context add NAME --via me@vm"),
        ("PostgreSQL database herd at db", "HERD_STORE=URL herd engine store move here"),
    ],
)
def test_a_moved_store_refuses_to_open(tmp_path: Path, to: str, hint: str) -> None:
    Database(tmp_path, 1.0).close()
    leave_marker(tmp_path, to=to, token="t1")
    with pytest.raises(InvalidInput, match=f"were moved to {to}") as refused:
        Database(tmp_path, 2.0)
    assert hint in refused.value.hint
