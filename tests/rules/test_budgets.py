"""What the project promises, and its files, are within tests/rules/budgets.toml."""

import pytest

from tests.rules.budgets import count_all, lower_numbers, read_budgets

TABLES = ("promises", "lines", "files", "protocols")
SLACK = 0.05  #: of a number of lines may be unused before the number has to be lowered
COUNTS = count_all()
BUDGETS = read_budgets()
TAKEN = [row for row in BUDGETS["allowances"].values() if row["taken"]]


def limit(table: str, name: str) -> int:
    """Return the number of the file, and what the allowances in use add to it."""
    added = {"src": "lines", "tests": "lines"}.get(name, name)
    extra = sum(row.get(added, 0) for row in TAKEN) if table in ("promises", "lines") else 0
    return int(BUDGETS[table].get(name, 0)) + extra


@pytest.mark.parametrize("table", ["promises", "lines", "protocols"])
def test_nothing_grows_beyond_its_budget(table: str) -> None:
    grown = [
        f"{name}: {now}, may be {limit(table, name)}"
        for name, now in COUNTS[table].items()
        if now > limit(table, name)
    ]
    assert not grown, (
        f"{table} grew: {'; '.join(grown)}. Remove something, or write a decision record that"
        f" names what it is worth and raise the number in [{table}] of tests/rules/budgets.toml"
    )


def test_packages_have_no_more_files_than_their_budget() -> None:
    grown = {name: now - limit("files", name) for name, now in COUNTS["files"].items()}
    grown = {name: more for name, more in grown.items() if more > 0}
    allowed = sum(row["files"] for row in TAKEN)
    assert sum(grown.values()) <= allowed, (
        f"files more than [files] of tests/rules/budgets.toml says: {grown}, and allowances in use"
        f" allow {allowed}. Join files that change together, or write a decision record and raise"
        " the number of the package"
    )


def test_numbers_are_near_what_is_there() -> None:
    slack = [
        f"{name}: {now} of {limit('lines', name)}"
        for name, now in COUNTS["lines"].items()
        if now < BUDGETS["lines"][name] * (1 - SLACK)
    ]
    assert not slack, f"budgets.toml is wider than needed: {', '.join(slack)}. Run `make budgets`"


def test_make_budgets_lowers_numbers_and_raises_none() -> None:
    text = '# why\n[files]\n"tpuherd.a" = 5\n"tpuherd.b" = 5\n"tpuherd.gone" = 2\n'
    counts = {"files": {"tpuherd.a": 3, "tpuherd.b": 9}}
    assert lower_numbers(text, counts) == '# why\n[files]\n"tpuherd.a" = 3\n"tpuherd.b" = 5\n'


def test_the_file_has_its_tables_only() -> None:
    assert set(BUDGETS) == {*TABLES, "allowances"}, "tests/rules/budgets.toml: remove the others"
