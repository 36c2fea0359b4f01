"""The engine's log: one object per line, whose first fields no fact can hide, in bounded files."""

import json
from pathlib import Path

from tpuherd.cli.engine import is_about
from tpuherd.engine.engine_log import LOG_MAX, EngineLog, line_level, log_line
from tpuherd.history.event_kinds import EVENT_KINDS


def test_a_line_names_its_job_slot_and_attempt_and_facts_hide_nothing() -> None:
    facts = {"why": "w", "at": "never", "name": "x", "level": "y", "seq": 7, "slot": "gpt-0"}
    line = log_line("attempt.ended", {**facts, "job": "gpt", "attempt": "gpt-0-a1-7kq"}, 0.5)
    assert list(json.loads(line).items()) == [
        ("at", "1970-01-01T00:00:00.500+00:00"), ("level", "info"), ("name", "attempt.ended"),
        ("seq", 7), ("job", "gpt"), ("slot", "gpt-0"), ("attempt", "gpt-0-a1-7kq"), ("why", "w"),
    ]  # fmt: skip
    assert "\n" not in log_line("x", {"why": "two\nlines", "set": {1}}, 0.0)
    assert is_about(line, "gpt") and is_about(line, "gpt-0") and not is_about(line, "gp")
    assert not is_about("not JSON", "gpt")


def test_levels() -> None:
    levels = {name: line_level(name) for name in (*EVENT_KINDS, "survey.failed", "notify.sent")}
    assert levels["engine.problem"] == levels["store.set_aside"] == "error"
    assert {name for name, level in levels.items() if level == "warning"} == {
        "notify.gave_up", "slot.collect_failed", "slot.gave_up", "slot.setup_failed",
        "survey.failed",
    }  # fmt: skip


def test_the_log_is_rotated_and_keeps_one_old_file(tmp_path: Path) -> None:
    log = EngineLog(file=tmp_path / "engine.log", now=lambda: 0.0)
    for _ in range(40):
        log.write_event("big", {"text": "x" * (LOG_MAX // 16)})
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert sizes.keys() == {"engine.log", "engine.log.1"}
    assert max(sizes.values()) < LOG_MAX * 1.2
    EngineLog(file=tmp_path / "absent" / "engine.log", now=lambda: 0.0).write_event("x", {})
