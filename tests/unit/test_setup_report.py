"""The text of `herd setup gcp`."""

import pytest

from tpuherd.views.setup_report import LATER, closing_line, count_changes, plan_lines, undo_lines


def step(state: str, note: str = "") -> dict[str, str]:
    return {"state": state, "fact": "it is so", "action": "Make it so", "note": note}


@pytest.mark.parametrize(
    ("state", "note", "line"),
    [
        ("there", "", "  ✓ it is so"),
        ("there", "by a rule", "  ✓ it is so: by a rule"),
        ("made", "", "  ✓ it is so"),
        ("missing", "2 other keys stay", "  + Make it so: 2 other keys stay"),
        ("later", "", f"  + Make it so: {LATER}"),
        ("blocked", "no network", "  ✗ Make it so: no network"),
        ("failed", "denied", "  ✗ Make it so: denied"),
    ],
)  # fmt: skip
def test_a_line_says_what_is_so_or_what_is_done(state: str, note: str, line: str) -> None:
    assert list(plan_lines([step(state, note)])) == [line]


@pytest.mark.parametrize(
    ("states", "line"),
    [
        (["there"], "Nothing to do"),
        (["there", "missing"], "Nothing was changed"),
        (["later", "blocked"], "Nothing was changed; see what stands at ✗"),
        (["there", "blocked"], "Nothing was changed; see what stands at ✗"),
        (["made", "there"], "To undo this: herd setup gcp --undo"),
        (["made", "failed"], "To undo this: herd setup gcp --undo; see what stands at ✗"),
    ],
    ids=str,
)
def test_the_last_line_says_what_to_do_next(states: list[str], line: str) -> None:
    assert closing_line([step(one) for one in states]) == line


def test_changes_are_counted() -> None:
    steps = [step(one) for one in ("there", "missing", "later", "blocked")]
    assert count_changes(steps) == "make 2 changes"
    assert count_changes(steps[:2]) == "make 1 change"


def test_what_is_undone_left_or_failed() -> None:
    rows = [
        {"sentence": "Delete it", "undone": True, "failed": False},
        {"sentence": "it stays", "undone": False, "failed": False},
        {"sentence": "denied", "undone": False, "failed": True},
    ]
    assert list(undo_lines(rows)) == ["  - Delete it", "  = it stays", "  ✗ denied"]
