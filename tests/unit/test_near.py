"""Which tests `make near` runs."""

import pytest
from scripts.near import near_tests

TESTS = {
    "tests/conftest.py": "import tests.tiers",
    "tests/tiers.py": "",
    "tests/unit/rig.py": "from tpuherd.store import database",
    "tests/unit/second_rig.py": "def start():\n    from tests.unit.rig import start",
    "tests/unit/test_store.py": "from tpuherd.store.database import Database",
    "tests/unit/test_rig.py": "from tests.unit.second_rig import start",
    "tests/unit/test_job.py": "import tpuherd.job",
    "tests/page/conftest.py": "from tests.page.server import serve",
    "tests/page/server.py": "import tpuherd.web.server",
    "tests/page/test_page.py": "",
    "tests/rules/test_help.py": 'NEAR = ("src/tpuherd/cli/*.py", "docs/*.md")',
    "tests/rules/test_schemas.py": "from json_schemas import SCHEMAS",
}


@pytest.mark.parametrize(
    ("changed", "near"),
    [
        ("src/tpuherd/store/database.py", "unit/test_rig.py unit/test_store.py"),
        ("src/tpuherd/store/__init__.py", "unit/test_rig.py"),
        ("tests/unit/rig.py", "unit/test_rig.py"),
        ("tests/unit/test_job.py", "unit/test_job.py"),
        ("src/tpuherd/job.py", "unit/test_job.py"),
        ("src/tpuherd/web/server.py", "page/test_page.py"),
        ("src/tpuherd/cli/run.py", "rules/test_help.py"),
        ("docs/howto/jobs.md", "rules/test_help.py"),
        ("docs/json_schemas.py", "rules/test_schemas.py"),
        ("src/tpuherd/jobs.py", ""),
        ("Makefile", ""),
    ],
)
def test_near_are_tests_that_import_a_changed_file_or_read_it(changed: str, near: str) -> None:
    assert near_tests([changed], TESTS) == [f"tests/{file}" for file in near.split()]


def test_a_change_of_all_tests_is_near_all() -> None:
    assert near_tests(["tests/tiers.py"], TESTS) == [
        file for file in sorted(TESTS) if "/test_" in file
    ]
