"""Writes to a bucket from hosts and reads it back: the last proof that a job can use it."""

from importlib.resources import files

from tpuherd.commands.command_types import ExecRequest
from tpuherd.commands.run_command import run_command
from tpuherd.jobs.open_project import Prompter
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.results import HostResult
from tpuherd.settings.project_access import ProjectAccess

TIMEOUT_S = 120.0


async def probe_bucket(
    request: ExecRequest, place: ProjectAccess, reach: RemoteSession, talk: Prompter
) -> tuple[HostResult, ...]:
    """Return what each host reports; a status of 0 means that it worked."""
    return (await run_command(request, place, reach, talk)).hosts


def probe_request(bucket: str, target: str, *, write: bool, yes: bool) -> ExecRequest:
    """Return the command that checks the bucket on all hosts of the target."""
    options = () if write else ("--read-only",)
    return ExecRequest(
        target=target,
        argv=("python3", "-", bucket, *options),
        script=files("tpuherd_host").joinpath("bucket_probe.py").read_bytes(),
        timeout_s=TIMEOUT_S,
        yes=yes,
        in_code=False,
    )
