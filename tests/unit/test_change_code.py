"""A folder is all the code of a job, or the part of it that has its name."""

from pathlib import Path

import pytest

from tpuherd.jobs.change_code import find_part, replace_part
from tpuherd_host.agent.snapshots.manifest import pack_row, parse_row


def rows(*names: str, id: int = 0) -> list[bytes]:
    return [pack_row(name.encode(), 0o100644, 3, bytes([id]) * 32) for name in names]


OLD = rows("train.py", "configs/a.yaml", "configs/gone.yaml", "gpt/model.py", "lib/configs/x.yaml")


@pytest.mark.parametrize(
    ("folder", "new", "part"),
    [
        ("/home/ann/gpt", ["train.py", "gpt/model.py"], ""),
        ("/home/ann/gpt/configs", ["a.yaml", "new.yaml"], "configs"),
        ("/home/ann/gpt/lib/configs", ["x.yaml"], "lib/configs"),
        ("/home/ann/elsewhere", ["a.yaml"], None),
        (None, ["other.py"], None),
    ],
)
def test_which_part_of_the_code_a_folder_is(
    folder: str | None, new: list[str], part: str | None
) -> None:
    place = Path(folder) if folder else None
    assert find_part("train.py", place, rows(*new), OLD) == part
    assert find_part("", place, rows(*new), OLD) == "", "without a known script nothing is guessed"
    assert find_part("made.py", place, rows(*new), OLD) == "", "it was not in the code before"


def test_a_part_is_replaced_with_all_that_it_has() -> None:
    found = replace_part(OLD, rows("a.yaml", "new.yaml", id=1), "configs")
    names = {parse_row(row).path.decode(): parse_row(row).id[0] for row in found}
    assert names == {
        "train.py": 0, "gpt/model.py": 0, "lib/configs/x.yaml": 0,
        "configs/a.yaml": 1, "configs/new.yaml": 1,
    }  # fmt: skip
