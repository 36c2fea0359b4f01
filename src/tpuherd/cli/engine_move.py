"""Moves an engine to another machine or back: store, secrets, logs and code.

A marker refuses the old store before it is sent. To finish an interrupted move, repeat it: by the
marker's token the other side knows whether the store had arrived.
"""

import asyncio
import secrets
import subprocess
from collections.abc import Mapping

from tpuherd.cli import via_client
from tpuherd.cli.via_client import RemoteMachine
from tpuherd.cli.via_server import prepare_move
from tpuherd.errors import HerdError, InvalidInput
from tpuherd.jobs import engine_control, engine_transfer
from tpuherd.settings import contexts_file, project_access
from tpuherd.settings.folders import resolve_folders
from tpuherd.store import moved_marker


def find_machine(environ: Mapping[str, str], target: str | None) -> RemoteMachine:
    """Return the machine of the current context."""
    if environ.get("HERD_WORLD"):
        raise InvalidInput("only the engine of a context can be moved, and HERD_WORLD is set",
                    hint="herd context add NAME --world DIRECTORY")  # fmt: skip
    if not contexts_file.current_context(resolve_folders(environ).config, environ):
        raise InvalidInput("only the engine of a context can be moved, and there is no context",
                    hint="herd context add NAME --project ID")  # fmt: skip
    found = via_client.find_remote_machine(environ, via=target)
    if found is None:
        raise InvalidInput("its engine is on this machine", hint="herd engine move --to USER@HOST")
    return found


def move_away(target: str, environ: Mapping[str, str]) -> str:
    """Move to that machine; return a sentence for the user."""
    far = find_machine(environ, target)
    current = contexts_file.current_context(resolve_folders(environ).config, environ).get("via")
    if current and current != target:
        raise InvalidInput(f"the engine is on {current}", hint="herd engine move --back first")
    place = project_access.resolve_access(environ)
    engine_transfer.refuse_shared_store(place)
    via_client.prepare_machine(far)
    folder = engine_transfer.part_folders(place)[engine_transfer.STORE]
    stone = moved_marker.read_moved_marker(folder)
    token = stone["token"] if stone else secrets.token_hex(8)
    jobs = asyncio.run(prepare_move(place, to=target, token=token))
    words = far.ssh_command(far.server_command("arrive", token), options=["-T"])
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        try:
            engine_transfer.pack_transfer(place, process.stdin, jobs)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it had arrived before, or stderr says why not
        except (OSError, HerdError):  # the last part was not sent, so it has not arrived
            process.kill()
            moved_marker.remove_marker(folder)
            raise
        said = process.stderr.read()
    if process.returncode not in (0, via_client.SSH_FAILED):
        moved_marker.remove_marker(folder)
    via_client.raise_if_failed(far, process.returncode, said)
    save_machine(environ, far.context, target)
    begun = via_client.run_on_machine(far, far.server_command("run", secrets.token_hex(8), START))
    return f"{far.context} moved to {target}, {jobs_text(len(jobs))}; {engine_start_text(begun)}"


START = b'["engine", "start"]'.hex()


def move_back(environ: Mapping[str, str]) -> str:
    """Move to this machine; return a sentence for the user."""
    place = project_access.resolve_access(environ)
    engine_transfer.refuse_shared_store(place)
    folder = engine_transfer.part_folders(place)[engine_transfer.STORE]
    far = find_machine(environ, (moved_marker.read_moved_marker(folder) or {}).get("to"))
    via_client.prepare_machine(far)
    before = via_client.run_on_machine(far, far.server_command("stone")).stdout.decode().strip()
    if not before or before != moved_marker.last_arrival(folder):
        fetch_store(far, place)
    save_machine(environ, far.context, None)
    asyncio.run(engine_control.start_engine(place, environ))
    jobs = jobs_text(len(moved_marker.read_stored_jobs(folder)))
    return f"{far.context} moved back to this machine, {jobs}"


def fetch_store(far: RemoteMachine, place: project_access.ProjectAccess) -> None:
    """Fetch the store and all that belongs to it; the other machine keeps a marker only."""
    token = secrets.token_hex(8)
    moved_marker.refuse_second_store(
        engine_transfer.part_folders(place)[engine_transfer.STORE], token
    )
    line = far.server_command("give", token, f"the machine of {project_access.local_user()}")
    words = far.ssh_command(line, options=["-T"])
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            engine_transfer.unpack_transfer(place, process.stdout, token)
        except HerdError:
            process.stdout.close()
            said = process.stderr.read()
            via_client.run_on_machine(far, far.server_command("stay"))
            via_client.raise_if_failed(far, process.wait(), said)
            raise


def save_machine(environ: Mapping[str, str], context: str, target: str | None) -> None:
    """Save the machine in the context."""
    with contexts_file.edit_contexts(resolve_folders(environ).config) as content:
        one = contexts_file.find_context(content, context)
        one.pop("via", None)
        if target is not None:
            one["via"] = target


def jobs_text(jobs: int) -> str:
    return f"with {jobs} job{'' if jobs == 1 else 's'}"


def engine_start_text(begun: "subprocess.CompletedProcess[bytes]") -> str:
    said = (begun.stdout if begun.returncode == 0 else begun.stderr).decode(errors="replace")
    return said.strip() or "the engine did not start: run herd engine start"
