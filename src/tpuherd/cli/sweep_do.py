"""What `herd sweep FILE` does: it is `herd run`, of a job that says what is to be tried."""

from collections.abc import Mapping

from tpuherd.cli import run_do
from tpuherd.cli.console import Console
from tpuherd.cli.errand import MISUSED, Home
from tpuherd.cli.job_page import told
from tpuherd.cli.run_do import Asked


async def wish(asked: Asked, console: Console, home: Home) -> int:
    """Refused where the job has nothing to try; else wished as any other."""
    page, _ = told(asked.said, console.folder)
    if isinstance(page.value, Mapping) and "sweep" not in page.value:
        await console.tell(
            f"{asked.name}: {asked.said.file} has no `sweep:`, which says what to try:"
            " docs/howto/sweeps.md; herd run runs it as it is"
        )
        return MISUSED
    return await run_do.wish(asked, console, home)
