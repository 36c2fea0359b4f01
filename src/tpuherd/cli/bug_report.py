"""`herd bug-report`: packs what a maintainer needs to find a bug, without secrets."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command(name="bug-report")
@click.option("--output", metavar="FILE", help="Where to write it; it must not exist yet.")
@click.option(
    "--job", metavar="JOB", help="Only this job's files and events, with the end of its output."
)
@click.option(
    "--hide-project", is_flag=True, help="Also hide the ids of projects and names of buckets."
)
def bug_report(output: str | None, job: str | None, hide_project: bool) -> ParsedCommand:
    """Pack what a maintainer needs to find a bug into one archive, without secrets.

    It has versions, settings, job files, events, logs of herd itself and what herd check finds.
    Values of env, secrets, tokens, e-mail addresses and your name are removed. Of what your
    programs print it has the last lines of failures, and with --job the end of all output. Nothing
    is sent and nothing is changed.
    """
    work = partial(run_bug_report, output, job, hide_project)
    return make_parsed_command("herd bug-report", work)


async def run_bug_report(
    output: str | None,
    job: str | None,
    hide_project: bool,
    console: "Console",
    home: "HostAccess",
) -> int:
    from tpuherd.bug_report.build_report import BugReportOptions, build_report
    from tpuherd.bug_report.pack_report import choose_output, write_report
    from tpuherd.clock import WallClock
    from tpuherd.views.bug_report_page import report_summary

    path = choose_output(output, console.folder, WallClock().now())
    found = await build_report(BugReportOptions(job=job, hide_project=hide_project), console, home)
    write_report(path, found.content)
    text = report_summary(found.files, found.hidden, found.problems, path=str(path))
    await console.print_text(text)
    return 0
