"""An environment has a new key if, and only if, something that is installed may differ."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.test_jobfile_slots import job, stored_job
from tpuherd.jobfile.environment_key import MissingFile, find_environment, needed_files

TEXTS = {
    "requirements.txt": "-r more/base.txt\n./pkg[extra]\n--find-links=wheels\njax  # ./no\n",
    "more/base.txt": "-c pins.txt\n-r https://example.com/x.txt\nnumpy\n",
    "more/pins.txt": "numpy==2\n",
    "pkg/setup.py": "",
    "pkg/src/a.py": "",
    "wheels/a.whl": "",
    "train.py": "",
    "pyproject.toml": "[project]\n./pkg\n",  # no list of requirements, whatever it looks like
    "uv.lock": 'source = { editable = "." }\nsource = { directory = "pkg" }\n'
    'source = { registry = "https://example.com/simple" }\nsource = { registry = "wheels" }\n',
    "other.txt": "numpy\n",
}
INSTALLED = {"requirements.txt", "more/base.txt", "more/pins.txt", "pkg/setup.py", "pkg/src/a.py",
             "wheels/a.whl"}  # fmt: skip
OF_PROJECT = {"uv.lock", "pyproject.toml", "pkg/setup.py", "pkg/src/a.py", "wheels/a.whl"}


def key(changes: Mapping[str, str] | None = None, **fields: Any) -> str:
    files = {name: f"id of {text}" for name, text in TEXTS.items()} | dict(changes or {})
    one = job(workdir=".", **fields)
    found = find_environment(one, stored_job(one, "s1"), files, TEXTS.__getitem__)
    return found.key if found else "none"


@pytest.mark.parametrize(
    ("requirements", "installed"),
    [
        ("requirements.txt", INSTALLED),
        ("uv.lock", OF_PROJECT),
        ("pyproject.toml", {"pyproject.toml"}),
    ],
)
def test_exactly_the_files_that_are_installed_matter(
    requirements: str, installed: set[str]
) -> None:
    assert set(needed_files(requirements, TEXTS, TEXTS.__getitem__)) == installed
    before = key(requirements=requirements)
    for name in TEXTS:
        changed = key({name: "new"}, requirements=requirements) != before
        assert changed == (name in installed), name


def test_python_and_the_file_matter_and_the_job_does_not() -> None:
    keys = {
        key(requirements="other.txt"),
        key(requirements="requirements.txt"),
        key(requirements="requirements.txt", python="3.11"),
        key(requirements="requirements.txt", python="3.12"),
        key(python="3.12"),
    }
    assert len(keys) == 5
    assert all(len(one) == 16 for one in keys)
    assert key(requirements="./other.txt", run="a", env={"A": "1"}) in keys
    assert key() == "none"


def test_a_job_that_is_removed_and_submitted_again_is_another_owner() -> None:
    one = job(python="3.12")
    first = stored_job(one)
    rows = (first, replace(first, changed_at=9.0, snapshot="x"), replace(first, made_at=1.000001))
    specs = [find_environment(one, row, {}, TEXTS.__getitem__) for row in rows]
    owners = [spec.job for spec in specs if spec is not None]
    assert owners[0] == owners[1] != owners[2]
    assert owners[0].startswith("gpt-")


def test_a_commit_never_changes_and_lost_code_has_no_key() -> None:
    one = job(repo="https://example.com/x.git", requirements="r.txt")

    def of(snapshot: str) -> str:
        found = find_environment(one, stored_job(one, snapshot), None, lambda path: "")
        assert found is not None
        return found.key

    assert of("https://example.com/x.git@aa") != of("https://example.com/x.git@bb") != ""
    assert of("0" * 64) == ""


def test_a_missing_file_is_named_with_the_one_that_names_it() -> None:
    files = {name: "" for name in TEXTS if name != "more/pins.txt"}
    with pytest.raises(MissingFile) as caught:
        list(needed_files("requirements.txt", files, TEXTS.__getitem__))
    assert (caught.value.path, caught.value.by) == ("more/pins.txt", "more/base.txt")
