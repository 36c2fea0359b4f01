"""What `herd sweep FILE` does: it is `herd run`, of a job that says what is to be tried."""

from collections.abc import Mapping

from tpuherd.cli import submit_job
from tpuherd.cli.job_options import read_job_input
from tpuherd.cli.submit_job import RunOptions
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.exit_status import MISUSED


async def run_sweep(asked: RunOptions, console: Console, home: HostAccess) -> int:
    """Refused where the job has nothing to try; else wished as any other."""
    page, _ = read_job_input(asked.said, console.folder)
    if isinstance(page.value, Mapping) and "sweep" not in page.value:
        await console.print_notice(
            f"{asked.command_name}: {asked.said.file} has no `sweep:`, which says what to try:"
            " docs/howto/sweeps.md; herd run runs it as it is"
        )
        return MISUSED
    return await submit_job.run_job(asked, console, home)
