"""`herd explain`: names the cause of a failure, and how to fix it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.explain_logs import ExplainOrder
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("target", metavar="FILE|JOB|-")
@click.option("--attempt", metavar="N", help="Of a job: this attempt, by number or id.")
@click.option(
    "--rules",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also use the rules in this JSON file.",
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def explain(target: str, attempt: str | None, rules: Path | None, json_: bool) -> ParsedCommand:
    """Find in logs why a run failed, and say how to fix it.

    FILE is a log, a folder with one log a host, or - for standard input; gzip is fine. Of a JOB
    (gpt), slot (gpt-0) or host (gpt-0/w3) it reads the logs of the latest attempt, on all hosts.
    A name without a slash is a job if there is one: else write ./gpt.

    It looks for the first cause, which is on one host; what the others print because they lost it
    is a consequence. The exit status is 0, also if nothing is found.
    """
    from tpuherd.commands.explain_logs import ExplainOrder

    order = ExplainOrder(target=target, attempt=attempt, rules=rules)
    return make_parsed_command("herd explain", partial(run_explain, order, json_))


async def run_explain(
    order: "ExplainOrder", json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.commands.explain_logs import explain_logs
    from tpuherd.views.finding_lines import explanation_rows, explanation_text
    from tpuherd.views.printable import json_text

    explanations, notices = await explain_logs(order, console)
    for sentence in notices:
        await console.print_notice(f"herd explain: {sentence}")
    if json_:
        rows = explanation_rows(explanations)
        await console.write(f"{json_text(rows, indent=2)}\n".encode(errors="replace"))
    else:
        await console.print_text(explanation_text(explanations))
    return 0
