"""Modules that are imported at their first use, by several threads at once."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tpuherd.lazy_modules import import_lazily

SLOW = "from time import sleep\nsleep(0.2)\nANSWER = 42\n"


def test_threads_wait_for_a_module_that_another_one_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_load.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    slow = import_lazily("slow_to_load")
    assert "slow_to_load" not in sys.modules
    start = Barrier(4)

    def use() -> object:
        start.wait()
        return slow.ANSWER

    with ThreadPoolExecutor(4) as pool:
        assert [one.result() for one in [pool.submit(use) for _ in range(4)]] == [42] * 4
    with pytest.raises(AttributeError):
        slow.NOTHING  # noqa: B018
    del sys.modules["slow_to_load"]
