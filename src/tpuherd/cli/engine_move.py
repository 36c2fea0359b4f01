"""A fleet's engine goes to another machine, or comes back: store, secrets, logs, code.

A stone is set where the store was before it goes, so that nobody opens it any more. A move that was
cut is finished by saying it again: by its token the other side knows whether it had arrived.
"""

import asyncio
import secrets
import subprocess
from collections.abc import Mapping

from tpuherd.cli import via_client
from tpuherd.cli.via_client import Far
from tpuherd.cli.via_server import departing
from tpuherd.errors import HerdError, Unfit
from tpuherd.jobs import engine_control, engine_transfer
from tpuherd.settings import contexts_file, project_access
from tpuherd.settings.folders import resolve_folders
from tpuherd.store import moved_marker


def machine(environ: Mapping[str, str], target: str | None) -> Far:
    """The one that is meant, by the current context."""
    if environ.get("HERD_WORLD"):
        raise Unfit("the engine of a context moves: HERD_WORLD names a world without one",
                    hint="herd context add NAME --world DIRECTORY")  # fmt: skip
    if not contexts_file.current(resolve_folders(environ).config):
        raise Unfit("the engine of a context moves, and there is none",
                    hint="herd context add NAME --project ID")  # fmt: skip
    found = via_client.far(environ, via=target)
    if found is None:
        raise Unfit("its engine is here", hint="herd engine move --to USER@HOST")
    return found


def away(target: str, environ: Mapping[str, str]) -> str:
    """To that machine; a sentence for the user."""
    far = machine(environ, target)
    current = contexts_file.current(resolve_folders(environ).config).get("via")
    if current and current != target:
        raise Unfit(f"it is on {current}", hint="herd engine move --back first")
    via_client.prepared(far)
    place = project_access.place(environ)
    folder = engine_transfer.folders(place)[engine_transfer.STORE]
    stone = moved_marker.stone(folder)
    token = stone["token"] if stone else secrets.token_hex(8)
    wishes = asyncio.run(departing(place, to=target, token=token))
    words = far.words(far.there("arrive", token), options=["-T"])
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        try:
            engine_transfer.pack(place, process.stdin, wishes)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it had arrived before, or it says why not
        except (OSError, HerdError):  # the last piece did not go: it has not arrived
            process.kill()
            moved_marker.stay(folder)
            raise
        said = process.stderr.read()
    if process.returncode not in (0, via_client.SSH_FAILED):
        moved_marker.stay(folder)
    via_client.refuse_failed(far, process.returncode, said)
    name_machine(environ, far.context, target)
    begun = via_client.asked(far, far.there("run", secrets.token_hex(8), START))
    return f"{far.context} is on {target} now, {many(len(wishes))}; {told(begun)}"


START = b'["engine", "start"]'.hex()


def back(environ: Mapping[str, str]) -> str:
    """To this machine."""
    place = project_access.place(environ)
    folder = engine_transfer.folders(place)[engine_transfer.STORE]
    far = machine(environ, (moved_marker.stone(folder) or {}).get("to"))
    via_client.prepared(far)
    before = via_client.asked(far, far.there("stone")).stdout.decode().strip()
    if not before or before != moved_marker.arrived(folder):
        fetched(far, place)
    name_machine(environ, far.context, None)
    asyncio.run(engine_control.start(place, environ))
    jobs = many(len(moved_marker.wished(folder)))
    return f"{far.context} is here again, {jobs}; its engine runs here"


def fetched(far: Far, place: project_access.Place) -> None:
    """The store and all with it; there it is no more."""
    token = secrets.token_hex(8)
    moved_marker.refuse_two(engine_transfer.folders(place)[engine_transfer.STORE], token)
    line = far.there("give", token, f"the machine of {project_access.local_user()}")
    words = far.words(line, options=["-T"])
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            engine_transfer.unpack(place, process.stdout, token)
        except HerdError:
            process.stdout.close()
            said = process.stderr.read()
            via_client.asked(far, far.there("stay"))
            via_client.refuse_failed(far, process.wait(), said)
            raise


def name_machine(environ: Mapping[str, str], context: str, target: str | None) -> None:
    """In the context, so that commands find it."""
    with contexts_file.changing(resolve_folders(environ).config) as content:
        one = contexts_file.known(content, context)
        one.pop("via", None)
        if target is not None:
            one["via"] = target


def many(jobs: int) -> str:
    """How much came along."""
    return f"with {jobs} job{'' if jobs == 1 else 's'}"


def told(begun: "subprocess.CompletedProcess[bytes]") -> str:
    """What it said of its engine."""
    said = (begun.stdout if begun.returncode == 0 else begun.stderr).decode(errors="replace")
    return said.strip() or "its engine did not begin: herd engine start"
