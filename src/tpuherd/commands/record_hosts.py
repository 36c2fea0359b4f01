"""Asks the hosts of a target once for the names of what they have, for a transcript."""

import json
from collections.abc import Sequence
from importlib.resources import files

from tpuherd.commands.command_types import ExecRequest
from tpuherd.commands.run_command import run_command
from tpuherd.jobs.open_project import Prompter
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.results import HostResult
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.settings.recordings import Recording, append_record, recording_flag
from tpuherd.transcripts.scrub_hosts import scrub_host

TIMEOUT_S = 120.0
BYTES_MAX = 1 << 20


async def record_hosts(
    target: str,
    recording: Recording,
    place: ProjectAccess,
    reach: RemoteSession,
    prompter: Prompter,
) -> Sequence[HostResult]:
    """Append a line for each host that answered; return those that did not."""
    request = ExecRequest(
        target=target,
        argv=("python3", "-"),
        script=files("tpuherd_host").joinpath("record_probe.py").read_bytes(),
        timeout_s=TIMEOUT_S,
    )
    missed = []
    for result in (await run_command(request, place, reach, prompter)).hosts:
        try:
            facts = json.loads(result.stdout[:BYTES_MAX]) if result.status == 0 else None
        except ValueError:
            facts = None
        if not isinstance(facts, dict):
            missed.append(result)
            continue
        at = {"at": round(reach.clock.now() - recording.start, 3)}
        line = {**scrub_host(facts, recording.placeholders), **at}
        append_record(recording, recording_flag(place), line)
    return missed
