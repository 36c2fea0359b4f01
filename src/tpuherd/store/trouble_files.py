"""Stores the current troubles, which reading commands show first.

Each source has a small file of fixed size that is overwritten in place. So troubles can be recorded
on a full disk and with a damaged database.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from tpuherd.model.trouble import TroubleRecord
from tpuherd.views.trouble_line import TITLES

SIZE = 8192
TEXT_MAX = 400  #: for a sentence, and for its hint


class TroubleStore:
    """The troubles of one store. Recording or ending one may raise OSError."""

    def __init__(self, folder: Path, found: Callable[[], Iterable[TroubleRecord]] = tuple) -> None:
        self.folder = folder
        self._found = found  #: what this process has found by itself

    def record_trouble(self, source: str, sentence: str, *, hint: str = "", now: float) -> None:
        """Record that it occurred, or that it persists."""
        before = self._read(source)
        trouble = TroubleRecord(
            source=source,
            sentence=sentence[:TEXT_MAX],
            hint=hint[:TEXT_MAX],
            since=before.since if before else now,
            at=now,
            times=before.times + 1 if before else 1,
        )
        self._write(source, json.dumps(asdict(trouble)))

    def end_trouble(self, source: str) -> None:
        """Record that it is over."""
        if self._read(source) is not None or not self._source_file(source).exists():
            self._write(source, "")

    def read(self) -> list[TroubleRecord]:
        """All current troubles."""
        return [*self._read_all(), *self._found()]

    def _read_all(self) -> Iterator[TroubleRecord]:
        for source in TITLES:
            found = self._read(source)
            if found is not None:
                yield found

    def _read(self, source: str) -> TroubleRecord | None:
        """A file that can't be read counts as no trouble: a persisting one is recorded again."""
        try:
            return TroubleRecord(**json.loads(self._source_file(source).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, source: str, text: str) -> None:
        content = text.encode("utf-8", "replace")
        assert len(content) <= SIZE, "texts are cut to TEXT_MAX"
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._source_file(source), flags, 0o600)
        try:
            os.pwrite(descriptor, content.ljust(SIZE), 0)
        finally:
            os.close(descriptor)

    def _source_file(self, source: str) -> Path:
        return self.folder / f"trouble-{source}.json"
