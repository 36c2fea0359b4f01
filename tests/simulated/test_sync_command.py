"""What `herd sync` does besides shipping."""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from tpuherd.cli.sync import DAY_S, prune_snapshots_daily
from tpuherd.jobs.upload_consent import ask_upload_consent
from tpuherd.sync import upload_check
from tpuherd.sync.snapshot_store import AGE_MAX_S, Archive, open_archive
from tpuherd.sync.take_snapshot import snapshot_folder


def test_old_snapshots_are_deleted_once_a_day(tmp_path: Path) -> None:
    code, archive = tmp_path / "code", open_archive(tmp_path)
    code.mkdir()
    shots = []
    for content in "abc":
        (code / "x").write_text(content)
        shots.append(snapshot_folder(code, archive, {"PATH": os.environ["PATH"]}).id)
    now = (archive.folder / "tick").stat().st_mtime
    old = now - AGE_MAX_S - 1

    def aged(id: str) -> None:
        os.utime(archive.rows_folder / id, (old, old))

    aged(shots[0])
    prune_snapshots_daily(archive, now)
    assert [archive.load_rows(id) is not None for id in shots] == [False, True, True]
    aged(shots[1])
    prune_snapshots_daily(archive, now)
    assert archive.load_rows(shots[1]) is not None
    prune_snapshots_daily(archive, now + 2 * DAY_S)
    assert archive.load_rows(shots[1]) is None
    assert archive.load_rows(shots[2]) is not None


class Answering:
    """Somebody who always says the same."""

    environ: Mapping[str, str] = {}

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def show_message(self, sentence: str) -> None:
        raise AssertionError(sentence)

    async def ask_confirmation(
        self, question: str, details: str = "", *, instead: str = ""
    ) -> bool:
        self.asked.append(question.partition(" (")[0])
        return self.answer


def test_large_uploads_are_read_only_after_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_check, "BYTES_MAX", 5000)
    code, archive = tmp_path / "code", Archive(tmp_path / "archive")
    code.mkdir()
    (code / "big").write_text("x" * 6000)
    (code / "id_rsa").write_text("key")
    taking = partial(snapshot_folder, code, archive, {"PATH": os.environ["PATH"]})
    no = Answering(False)
    assert asyncio.run(ask_upload_consent(taking(), taking, archive, no)) is None
    assert no.asked == ["0.0 GB would be shipped"]
    assert archive.blobs.disk_usage() == 0
    yes = Answering(True)
    agreed = asyncio.run(ask_upload_consent(taking(), taking, archive, yes))
    assert agreed is not None
    assert yes.asked == ["0.0 GB would be shipped", "id_rsa looks like an SSH private key"]
    assert (agreed.id, agreed.size) == (taking().id, 6003)
    assert asyncio.run(ask_upload_consent(taking(), taking, archive, no)) == taking()
    assert len(no.asked) == 1  # not again
