"""`herd metrics`: shows what scripts reported and hosts did over time."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.formats import Moment
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

DAY_S = 86_400.0
POINTS = 600
ALL_POINTS = 1_000_000


@click.command()
@click.argument("name", metavar="NAME", required=False)
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option(
    "--since", type=Moment(), help="Only from this time on: 1h (ago), 12:30 or 2026-01-31T12:30."
)
@click.option("--csv", "csv_", is_flag=True, help="Print all points as CSV.")
@click.option("--json", "json_", is_flag=True, help="Print all points as JSON.")
def metrics(
    name: str | None, values: tuple[str, ...], since: float | None, csv_: bool, json_: bool
) -> ParsedCommand:
    """Show what a job (gpt) or a slot (gpt-0) did over time, by default during the last day.

    Without a VALUE, it shows what scripts report: loss, step, step_rate and others. Hosts have cpu,
    ram_used, ram_total, disk_free, disk_total, net_in and net_out; chips have hbm_used, hbm_total
    and duty. A day is kept in full, and 30 days by ten minutes.
    """
    if csv_ and json_:
        raise click.UsageError("--csv and --json exclude each other")
    if name is None:
        raise click.UsageError(
            "name a job; `herd engine metrics` prints all metrics for Prometheus"
        )
    asked = MetricsOptions(name=name, values=values, since=since, csv_=csv_, json_=json_)
    return make_parsed_command("herd metrics", partial(run_metrics, asked))


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsOptions:
    name: str
    values: tuple[str, ...]
    since: float | None
    csv_: bool
    json_: bool


async def run_metrics(asked: MetricsOptions, console: "Console", home: "HostAccess") -> int:
    import asyncio

    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.job_queries import resolve_name
    from tpuherd.jobs.job_series import SeriesQuestion, read_job_series

    machine = asked.csv_ or asked.json_
    async with open_store_session(console) as here:
        await here.print_troubles(apart=machine)
        job, slot = resolve_name(here.store, asked.name)
        question = SeriesQuestion(
            name=asked.name, job=job, slot=slot, values=asked.values,
            since=here.now - DAY_S if asked.since is None else asked.since, until=here.now,
            points=ALL_POINTS if machine else POINTS,
        )  # fmt: skip
        style = console.table_style

        def read_and_draw() -> str:
            from tpuherd.views.printable import json_text
            from tpuherd.views.series_table import series_csv, series_rows, series_text

            found = read_job_series(here.store.folder, question)
            if asked.json_:
                return f"{json_text(series_rows(found))}\n"
            return series_csv(found) if asked.csv_ else series_text(found, **style)

        text = await asyncio.to_thread(read_and_draw)  # other commands go on meanwhile
        if machine:
            await console.write(text.encode(errors="replace"))
        else:
            await console.print_text(text, coloured=True)
    return 0
