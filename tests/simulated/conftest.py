"""Commands as typed in a home of their own, for the tests of what they read and print."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tpuherd.cli.main import run

Herd = Callable[..., tuple[int, str, str]]
#: What a test process may have, and a user who begins has not.
VARIABLES = (
    "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "HERD_WORLD", "CLOUDSDK_CONFIG",
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCE_METADATA_HOST",
)  # fmt: skip


def use_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make this folder the home of a user who has nothing yet."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def herd(capfd: pytest.CaptureFixture[str]) -> Herd:
    """A command's status, and what it prints."""

    def herd(*words: str) -> tuple[int, str, str]:
        status = run(words)
        said = capfd.readouterr()
        return status, said.out, said.err

    return herd


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a world that was deleted, in a home of its own."""
    use_home(tmp_path, monkeypatch)
    monkeypatch.setenv("HERD_WORLD", str(tmp_path / "world"))
    return tmp_path / "world"
