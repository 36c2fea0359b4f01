"""The script that everybody has, with argparse, print and np.savez, unmodified, in a world."""

from collections.abc import Iterator

import pytest

from tests.conformance.world import until
from tests.integration.engines import Owner

pytestmark = pytest.mark.real

PRINTS_AND_WAITS = """
import time
print("it has begun")
time.sleep(900)
"""


@pytest.fixture(autouse=True)
def clean(user: Owner) -> Iterator[None]:
    yield
    user.leave_all()


def code(user: Owner, name: str, text: str) -> str:
    """Write a script into the folder that jobs ship."""
    folder = user.home / "code"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return str(folder)


def test_what_it_prints_is_in_the_log_while_it_runs(user: Owner) -> None:
    where = code(user, "prints.py", PRINTS_AND_WAITS)
    user.job("prints", "python3 prints.py", accelerator="v4-8", workdir=where)
    until(
        lambda: "it has begun" in user.herd("logs", "prints").stdout, "its first line", seconds=120
    )
