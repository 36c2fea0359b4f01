"""The lines that docs/howto/your-own-script.md adds to a script bring back what it saved."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

PAGE = Path(__file__).parents[2] / "docs/howto/your-own-script.md"
NUMPY, TRAINER, _ = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERD_CHECKPOINT", str(tmp_path / "runs"))
    monkeypatch.setenv("RUN_ID", "gpt-0")
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    return tmp_path


def start(script: str) -> SimpleNamespace:
    """Return the names of a script that has just started."""
    names: dict[str, Any] = {}
    exec(script, names)
    return SimpleNamespace(**names)


def test_arrays_are_there_after_a_restart(home: Path) -> None:
    first = start(NUMPY)
    assert first.load() is None
    for step in (1, 2):
        first.save(step=step, w=numpy.full(3, step))
    found = start(NUMPY).load()
    assert found["step"] == 2 and list(found["w"]) == [2, 2, 2]


def test_a_trainer_resumes_from_its_newest_whole_checkpoint(home: Path) -> None:
    args = SimpleNamespace(output_dir=str(home / "old"))
    first = start(TRAINER)
    assert first.download(args.output_dir) is None
    for step in (500, 1000):
        folder = home / "old" / f"checkpoint-{step}"
        (folder / "deep").mkdir(parents=True)
        for name in ("a.bin", "trainer_state.json", "z.bin", "deep/b.bin"):
            (folder / name).write_text(f"{name} {step}")
        for is_first in (False, True):
            state = SimpleNamespace(global_step=step, is_world_process_zero=is_first)
            first.Upload().on_save(args, state, None, model=None)
    first.saves.write("checkpoint-1500/a.bin", [b"half"])
    found = start(TRAINER).download(str(home / "new"))
    assert found == str(home / "new/checkpoint-1000")
    names = {file.relative_to(found).as_posix() for file in Path(found).rglob("*.*")}
    assert names == {"a.bin", "trainer_state.json", "z.bin", "deep/b.bin"}
    assert Path(found, "deep/b.bin").read_text() == "deep/b.bin 1000"


def test_the_file_that_shows_a_whole_checkpoint_is_sent_last(home: Path) -> None:
    folder = home / "old/checkpoint-5"
    folder.mkdir(parents=True)
    for name in ("trainer_state.json", "a.bin", "z.bin"):
        (folder / name).touch()
    script, sent = start(TRAINER), list[str]()
    script.saves.write = lambda name, pieces: sent.append(name)
    state = SimpleNamespace(global_step=5, is_world_process_zero=True)
    script.Upload().on_save(SimpleNamespace(output_dir=str(home / "old")), state, None)
    assert sent[-1] == "checkpoint-5/trainer_state.json" and len(sent) == 3
