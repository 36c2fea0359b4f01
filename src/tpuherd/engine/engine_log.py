"""The engine's own log: one JSON object per line, with the job, slot and attempt it is about."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LOG = "engine.log"
LOG_MAX = 8 << 20  #: then the log is rotated; one old file is kept
#: Names of lines that a person should look at; those that end in a word of FAILED_WORDS, too.
ERRORS = frozenset({"engine.problem", "engine.crashed", "engine.surprised", "store.set_aside"})
FAILED_WORDS = (".failed", "_failed", ".unwritten", ".unsaved", ".unread", ".gave_up", ".unnamed")


@dataclass(kw_only=True)
class EngineLog:
    """The log of one engine."""

    file: Path
    now: Callable[[], float]
    echo: Callable[[str], object] | None = None  #: gets each line, too

    def write_event(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write a line; a full disk is ignored."""
        line = log_line(name, facts, self.now())
        if self.echo is not None:
            self.echo(line)
        try:
            if self.file.exists() and self.file.stat().st_size > LOG_MAX:
                self.file.replace(self.file.with_suffix(".log.1"))
            descriptor = os.open(
                self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(line + "\n")
        except OSError:
            return


def log_line(name: str, facts: Mapping[str, Any], now: float) -> str:
    """Return a line; no fact hides its time, level or name."""
    at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    head = {"at": at, "level": line_level(name), "name": name}
    ids = {key: facts[key] for key in ("seq", "job", "slot", "attempt") if facts.get(key)}
    rest = {key: value for key, value in facts.items() if key not in (*head, *ids)}
    return json.dumps({**head, **ids, **rest}, ensure_ascii=False, default=str)


def line_level(name: str) -> str:
    """info, warning or error"""
    if name in ERRORS:
        return "error"
    return "warning" if name.endswith(FAILED_WORDS) else "info"
