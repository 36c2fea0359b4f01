"""The end of `via:` on the other machine: `python -m tpuherd.cli.via_server WORD NAME …`, over SSH.

    run NAME TOKEN WORDS     run `herd WORDS`, with what was uploaded under TOKEN
    take NAME TOKEN          read a tar on stdin: the context, and an upload
    lacks NAME               read ids of contents on stdin; print those missing here

Everything of a context is in ~/.tpuherd-via/NAME.
"""

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
from tpuherd.errors import HerdError
from tpuherd.exit_status import SIGNALLED
from tpuherd.jobs import code_transfer, via_parcel
from tpuherd.jobs.code_transfer import BLOBS, ROWS, read_tar_files, store_code, write_private_file
from tpuherd.settings import contexts_file, project_access
from tpuherd.settings.folders import LocalFolders, resolve_folders
from tpuherd.sync.snapshot_store import open_archive

SWEEP_S = 86_400.0
SHELL = """#!/bin/sh
# herd, as the context of that name uses it
export XDG_CONFIG_HOME='{home}/config' XDG_STATE_HOME='{home}/state'
exec '{python}' -P -m tpuherd.launcher "$@"
"""


def main(words: list[str]) -> int:
    word, name, *rest = words
    home = Path.home() / ROOT / name
    os.umask(0o077)
    environ = context_environment(home)
    try:
        if word == "run":
            return run_herd(home, environ, rest[0], json.loads(bytes.fromhex(rest[1])))
        if word == "take":
            receive_bundle(home, resolve_folders(environ), rest[0])
        else:
            state = resolve_folders(environ).state
            print(*sorted(missing_contents(sys.stdin, state)), sep="\n")
    except HerdError as error:
        hint = f" ({error.hint})" if error.hint else ""
        print(f"{error.sentence}{hint}", file=sys.stderr)
        return 1
    return 0


def context_environment(home: Path) -> dict[str, str]:
    """Return this process's environment with the folders of the context, which says the rest."""
    found = dict(project_access.process_environment())
    for name in ("HERD_WORLD", "HERD_STORE"):
        found.pop(name, None)
    places = {"XDG_CONFIG_HOME": str(home / "config"), "XDG_STATE_HOME": str(home / "state")}
    return {**found, **places}


def run_herd(home: Path, environ: dict[str, str], token: str, words: list[str]) -> int:
    """The command, in a process of its own, to which who began it can send signals. What came along
    is removed behind it."""
    folder = home / CARRIED / token
    mark = home / RUNNING / token
    if folder.exists():
        environ = {**environ, via_parcel.VARIABLE: str(folder)}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the child handles them
    line = [sys.executable, "-P", "-m", "tpuherd.launcher", *words]
    try:
        place = folder if folder.exists() else home
        with subprocess.Popen(line, cwd=place, env=environ) as process:
            write_private_file(mark, str(process.pid).encode())
            status = process.wait()
    finally:
        mark.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return status if status >= 0 else SIGNALLED - status


def receive_bundle(home: Path, places: LocalFolders, token: str) -> None:
    """Save the context and what a command uploads."""
    remove_leftovers(home, WallClock().now())
    folder = home / CARRIED / token
    archive = open_archive(places.state)
    with archive.blobs.shared_lock(), archive.blobs.new_pack() as fresh:
        for name, content in read_tar_files(sys.stdin.buffer):
            if name == LETTER:
                save_context(home, places.config, json.loads(content))
            elif name.partition("/")[0] in (BLOBS, ROWS):
                store_code(archive, fresh, name, content)
            else:
                write_private_file(folder / name, content)


def missing_contents(ids: Iterable[str], state: Path) -> list[str]:
    """Return the ids of contents that are not here."""
    archive = open_archive(state)
    return [
        one.hex()
        for one in code_transfer.missing_contents((bytes.fromhex(id) for id in ids), archive)
    ]


def save_context(home: Path, folder: Path, letter: Mapping[str, Any]) -> None:
    """Save the cloud, the owner id, the user's name and the grants."""
    with contexts_file.edit_contexts(folder) as content:
        content["current"] = letter["name"]
        content["contexts"] = {letter["name"]: letter["context"]}
        key = letter["key"]
        content["projects"][key] = {**content["projects"].get(key, {}), **letter["terms"]}
    write_private_file(folder / "owner", letter["owner"].encode())
    write_private_file(folder / "user", letter["user"].encode())
    program = home / PROGRAM
    write_private_file(program, SHELL.format(home=home, python=home.parent / CURRENT).encode())
    program.chmod(0o700)
    write_private_file(home / DIGEST, letter["digest"].encode())


def remove_leftovers(home: Path, now: float) -> None:
    """Delete what killed commands left."""
    for folder in (home / CARRIED, home / RUNNING):
        for entry in folder.iterdir() if folder.exists() else ():
            if entry.stat().st_mtime < now - SWEEP_S:
                shutil.rmtree(entry, ignore_errors=True)
                entry.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
