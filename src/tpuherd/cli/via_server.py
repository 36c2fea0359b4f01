"""The end of `via:` on the other machine: `python -m tpuherd.cli.via_server WORD NAME …`, over SSH.

    run NAME TOKEN WORDS     be `herd WORDS`, with what came along under TOKEN
    take NAME TOKEN          a tar on stdin: what we must know, and what comes along
    arrive NAME TOKEN        a tar on stdin: a fleet's store, to be the one here
    lacks NAME               ids of contents on stdin: those that are not here, on stdout
    give NAME TOKEN TO       the same the other way, on stdout; from now on it is there
    stay NAME                it stays here after all
    stone NAME               by which journey it left, if it did

All of a context stands in ~/.tpuherd-via/NAME, apart from whatever its login does besides.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tpuherd.cli.via_layout import CARRIED, CURRENT, DIGEST, LETTER, PROGRAM, ROOT, RUNNING
from tpuherd.clock import WallClock
from tpuherd.engine.create_engine import holder
from tpuherd.errors import Broken, HerdError
from tpuherd.exit_status import SIGNALLED
from tpuherd.jobs import engine_control, engine_transfer, via_parcel
from tpuherd.jobs.engine_transfer import BLOBS, ROWS, files, keep, write
from tpuherd.model.stored_job import Wish
from tpuherd.settings import contexts_file, project_access
from tpuherd.settings.folders import resolve_folders
from tpuherd.store import moved_marker
from tpuherd.store.database import Database
from tpuherd.sync.snapshot_store import archived

SWEEP_S = 86_400.0
LEASE_S = 60.0  #: nobody begins an engine while the stone is set
SHELL = """#!/bin/sh
# herd, as the context of that name uses it
export XDG_CONFIG_HOME='{home}/config' XDG_STATE_HOME='{home}/state'
exec '{python}' -P -m tpuherd.launcher "$@"
"""


def main(words: list[str]) -> int:
    """What was asked for."""
    word, name, *rest = words
    home = Path.home() / ROOT / name
    os.umask(0o077)
    os.environ["XDG_CONFIG_HOME"] = str(home / "config")
    os.environ["XDG_STATE_HOME"] = str(home / "state")
    os.environ.pop("HERD_WORLD", None)
    try:
        if word == "run":
            return be(home, rest[0], json.loads(bytes.fromhex(rest[1])))
        if word == "take":
            take(home, rest[0])
        elif word == "lacks":
            print(*sorted(lacks(sys.stdin)), sep="\n")
        elif word == "arrive":
            arrive(rest[0])
        elif word == "give":
            give(rest[0], rest[1])
        elif word == "stone":
            print((moved_marker.stone(store()) or {}).get("token", ""))
        else:
            moved_marker.stay(store())
    except HerdError as error:
        hint = f" ({error.hint})" if error.hint else ""
        print(f"{error.sentence}{hint}", file=sys.stderr)
        return 1
    return 0


def be(home: Path, token: str, words: list[str]) -> int:
    """The command, in a process of its own, to which who began it can send signals. What came along
    is removed behind it."""
    folder = home / CARRIED / token
    mark = home / RUNNING / token
    environ = dict(os.environ)
    if folder.exists():
        environ[via_parcel.VARIABLE] = str(folder)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # theirs to heed
    line = [sys.executable, "-P", "-m", "tpuherd.launcher", *words]
    try:
        place = folder if folder.exists() else home
        with subprocess.Popen(line, cwd=place, env=environ) as process:
            write(mark, str(process.pid).encode())
            status = process.wait()
    finally:
        mark.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return status if status >= 0 else SIGNALLED - status


def take(home: Path, token: str) -> None:
    """What this context is, and what a command brings."""
    sweep(home, WallClock().now())
    folder = home / CARRIED / token
    archive = archived(resolve_folders(os.environ).state)
    with archive.blobs.held(), archive.blobs.writer() as fresh:
        for name, content in files(sys.stdin.buffer):
            if name == LETTER:
                know(home, json.loads(content))
            elif name.partition("/")[0] in (BLOBS, ROWS):
                keep(archive, fresh, name, content)
            else:
                write(folder / name, content)


def lacks(ids: Iterable[str]) -> list[str]:
    """What of some code has never come here, or is here no more."""
    archive = archived(resolve_folders(os.environ).state)
    return [
        one.hex() for one in engine_transfer.lacking((bytes.fromhex(id) for id in ids), archive)
    ]


def know(home: Path, letter: Mapping[str, Any]) -> None:
    """Which cloud is meant, who we are in it, and what may be had."""
    folder = resolve_folders(os.environ).config
    with contexts_file.changing(folder) as content:
        content["current"] = letter["name"]
        content["contexts"] = {letter["name"]: letter["context"]}
        key = letter["key"]
        content["projects"][key] = {**content["projects"].get(key, {}), **letter["terms"]}
    write(folder / "owner", letter["owner"].encode())
    program = home / PROGRAM
    write(program, SHELL.format(home=home, python=home.parent / CURRENT).encode())
    program.chmod(0o700)
    write(home / DIGEST, letter["digest"].encode())


def sweep(home: Path, now: float) -> None:
    """What killed commands left."""
    for folder in (home / CARRIED, home / RUNNING):
        for entry in folder.iterdir() if folder.exists() else ():
            if entry.stat().st_mtime < now - SWEEP_S:
                shutil.rmtree(entry, ignore_errors=True)
                entry.unlink(missing_ok=True)


# ---- a fleet that moves --------------------------------------------------------------------------


def store() -> Path:
    """The folder of the store here."""
    return engine_transfer.folders(project_access.place(os.environ))[engine_transfer.STORE]


def arrive(token: str) -> None:
    """A fleet is ours from now on."""
    place = project_access.place(os.environ)
    if moved_marker.refuse_two(engine_transfer.folders(place)[engine_transfer.STORE], token):
        return
    engine_transfer.unpack(place, sys.stdin.buffer, token)


def give(token: str, to: str) -> None:
    """It is theirs."""
    place = project_access.place(os.environ)
    wishes = asyncio.run(departing(place, to=to, token=token))
    engine_transfer.pack(place, sys.stdout.buffer, wishes)
    sys.stdout.flush()


async def departing(place: project_access.Place, *, to: str, token: str) -> list[Wish]:
    """End the engine, and set the stone; what is wished. Once more is as good."""
    folder = engine_transfer.folders(place)[engine_transfer.STORE]
    if moved_marker.stone(folder) is None:
        await engine_control.stop(place)
        store = Database(folder, WallClock().now())
        try:
            epoch = store.take(holder(os.getpid()), WallClock().now(), LEASE_S)
            if epoch is None:
                raise Broken("an engine has begun meanwhile: try again")
            moved_marker.leave(folder, to=to, token=token)
            store.release(epoch)
        finally:
            store.close()
    return moved_marker.wished(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
