"""`herd report`: shows where time and money went."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.errors import InvalidInput

if TYPE_CHECKING:
    from tpuherd.cli.store_session import StoreSession
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

ML_GOODPUT = "ml-goodput"
STDOUT = "-"


@click.command()
@click.argument("name", required=False)
@click.option("--html", metavar="FILE", help="Write a page for a browser; - is standard output.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.option(
    "--format",
    "format_",
    type=click.Choice([ML_GOODPUT]),
    help="Print JSON in the categories of Google's ml-goodput-measurement.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=14,
    show_default=True,
    help="Without NAME: the number of days to show.",
)
def report(
    name: str | None, html: str | None, json_: bool, format_: str | None, days: int
) -> ParsedCommand:
    """Show where the time and money of a job went, and what to change to gain most.

    NAME is a job (gpt), also a removed one, or a slot (gpt-0). Without NAME: what all jobs cost, by
    job and by day, and what they will cost at this rate.
    """
    if name is None and (html is not None or format_ is not None):
        raise click.UsageError("--html and --format need the name of a job: herd report gpt …")
    if (html is not None) + json_ + (format_ is not None) > 1:
        raise click.UsageError("give only one of --html, --json and --format")
    asked = ReportOptions(name=name, html=html, json_=json_, format_=format_, days=days)
    return make_parsed_command("herd report", partial(run_report, asked))


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    name: str | None
    html: str | None  #: a file, or -
    json_: bool
    format_: str | None
    days: int


async def run_report(asked: ReportOptions, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import format_moment, open_store_session
    from tpuherd.jobs import reports
    from tpuherd.views.cost_text import cost_text
    from tpuherd.views.report_html import report_html
    from tpuherd.views.report_text import report_text

    async with open_store_session(console) as here:
        show_time = partial(format_moment, now=here.now)
        show = partial(report_text, show_time=show_time, **console.table_style)
        if asked.name is None:
            page = reports.cost_report(here.store, here.now, asked.days)
            await here.print_content(
                page,
                partial(cost_text, show_time=show_time, **console.table_style),
                json_=asked.json_,
            )
        elif asked.format_ is not None:
            page = reports.ml_goodput_report(here.store, here.now, asked.name)
            await here.print_content(page, str, json_=True)
        else:
            page = reports.job_report(here.store, here.now, asked.name)
            if asked.html is not None:
                await write_html(here, asked.html, report_html(page, show_time))
            else:
                await here.print_content(page, show, json_=asked.json_)
    return 0


async def write_html(here: "StoreSession", place: str, text: str) -> None:
    """Write the page to a file or to standard output."""
    from tpuherd.files import atomic_write

    if place == STDOUT:
        await here.console.write(text.encode(errors="replace"))
        return
    file = Path(here.console.folder, place)
    if file.is_dir():
        raise InvalidInput(f"{place} is a folder", hint="name a file, such as report.html")
    try:
        atomic_write(file, text.encode(errors="replace"))
    except OSError as error:
        raise InvalidInput(f"{place} can't be written: {error.strerror}") from error
    await here.console.print_notice(f"Wrote {place}")
