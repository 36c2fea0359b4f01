"""What `herd sync` does beside shipping."""

import os
from pathlib import Path

from tpuherd.cli.sync import DAY_S, tidied
from tpuherd.hosts.snapshot import take
from tpuherd.hosts.snapshot_archive import AGE_MAX_S, archived


def test_old_snapshots_go_once_a_day(tmp_path: Path) -> None:
    code, archive = tmp_path / "code", archived(tmp_path)
    code.mkdir()
    shots = []
    for content in "abc":
        (code / "x").write_text(content)
        shots.append(take(code, archive, {"PATH": os.environ["PATH"]}).id)
    now = (archive.folder / "tick").stat().st_mtime
    old = now - AGE_MAX_S - 1

    def aged(id: str) -> None:
        os.utime(archive.rows_folder / id, (old, old))

    aged(shots[0])
    tidied(archive, now)
    assert [archive.rows(id) is not None for id in shots] == [False, True, True]
    aged(shots[1])
    tidied(archive, now)
    assert archive.rows(shots[1]) is not None
    tidied(archive, now + 2 * DAY_S)
    assert archive.rows(shots[1]) is None
    assert archive.rows(shots[2]) is not None
