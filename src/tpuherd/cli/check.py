"""`herd check`: what is wrong here, in the cloud and on hosts, and how to fix it."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import FAILED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("target", required=False)
@click.option("--fix", is_flag=True, help="Do the safe repairs, say which, and check again.")
@click.option("--report", metavar="FILE", help="Also pack what a maintainer needs into a new file.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def check(target: str | None, fix: bool, report: str | None, json_: bool) -> ParsedCommand:
    """Check this machine, the cloud project, and the hosts of TARGET if there is one.

    Each line is fine, or says what is wrong, why it matters and how to fix it. Without --fix,
    nothing is changed. The exit status is 1 if something does not work.

    --report also packs jobs, events, logs and the last lines of failures, with secrets removed,
    and says what is inside. Nothing is sent: read it before you send it.
    """
    return make_parsed_command("herd check", partial(run_check, target, fix, report, json_))


async def run_check(
    target: str | None,
    fix: bool,
    report: str | None,
    json_: bool,
    console: "Console",
    home: "HostAccess",
) -> int:
    from tpuherd.checks.check_all import check_all, find_machine, has_problem
    from tpuherd.checks.fixes import fix_and_check
    from tpuherd.checks.report import check_new_file, write_report
    from tpuherd.cli.job_session import print_json
    from tpuherd.views.check_report import check_report

    path = None if report is None else console.folder / report
    if path is not None:
        check_new_file(path)
    results = await (fix_and_check if fix else check_all)(target, console, home)
    rows = [one.as_json() for one in results]
    if json_:
        await print_json(console, rows)
    else:
        await console.print_text(check_report(rows, **console.table_style), coloured=True)
    if path is not None:
        await console.print_notice(write_report(path, rows, find_machine(console)))
    return FAILED if has_problem(results) else 0
