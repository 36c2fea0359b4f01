"""`herd sweep`: tries many parameters on many nodes, and shows the results."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.job_options import COMMAND, FileGroup, JobCommand, read_job_input
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.run import add_follow_options, add_job_options, parse_run_options
from tpuherd.errors import NotFound
from tpuherd.exit_status import MISUSED
from tpuherd.views.printable import show_values
from tpuherd.views.sweep_plot import draw_sketch, draw_svg
from tpuherd.views.sweep_table import best_text, sweep_csv, sweep_text, unreported_line

if TYPE_CHECKING:
    from tpuherd.cli.submit_job import RunOptions
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

PIPE_COLUMNS = 80  #: of a plot in a file or pipe
as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")


@click.group(cls=FileGroup)
def sweep() -> None:
    """Try many parameters on many nodes.

    FILE is a job file with a `sweep:`. Trials run on the job's copies, one after another; a
    preempted trial continues first, on any free node.
    """


@click.command(FileGroup.BEGIN, cls=JobCommand)
@click.argument("file", metavar="")
@add_job_options
@add_follow_options
@click.pass_context
def begin(context: click.Context, /, file: str, **said: Any) -> ParsedCommand:
    """Start the sweep of a job file; options replace its fields."""
    from tpuherd.cli.submit_job import RunOptions
    from tpuherd.model.slots_and_plan import Goal

    choices = {word: said.pop(word) for word in ("follow", "waits")}
    told = parse_run_options(file, context.meta.get(COMMAND, []), said)
    asked = RunOptions(goal=Goal.RUN, by="herd sweep", **choices, **told)
    return make_parsed_command("herd sweep", partial(run_sweep, asked), attentive=True)


@click.command()
@click.argument("name")
@as_json
@click.option("--csv", "csv_", is_flag=True, help="Print CSV, a line for each trial.")
def status(name: str, json_: bool, csv_: bool) -> ParsedCommand:
    """Show all trials of a sweep: parameters, slot and latest values.

    The best trial is marked with a star.
    """
    return make_parsed_command("herd sweep status", partial(run_sweep_status, name, json_, csv_))


@click.command()
@click.argument("name")
@as_json
def best(name: str, json_: bool) -> ParsedCommand:
    """Show the best complete trial; exit status 4 if there is none yet."""
    return make_parsed_command("herd sweep best", partial(run_sweep_best, name, json_))


@click.command()
@click.argument("name")
@click.option("--svg", is_flag=True, help="Print an SVG picture.")
def plot(name: str, svg: bool) -> ParsedCommand:
    """Plot the best value over time, and by each parameter."""
    return make_parsed_command("herd sweep plot", partial(run_sweep_plot, name, svg))


async def run_sweep(asked: "RunOptions", console: "Console", home: "HostAccess") -> int:
    """Submit the job like any other, unless it has no `sweep:`."""
    from tpuherd.cli import submit_job

    page, _ = read_job_input(asked.said, console.folder)
    if isinstance(page.value, Mapping) and "sweep" not in page.value:
        await console.print_notice(
            f"{asked.command_name}: {asked.said.file} has no `sweep:` (see docs/howto/sweeps.md);"
            " `herd run` runs it as it is"
        )
        return MISUSED
    return await submit_job.run_job(asked, console, home)


async def run_sweep_status(
    name: str, json_: bool, csv_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.sweep_queries import sweep_status

    async with open_store_session(console) as here:
        page, _ = sweep_status(here.store, here.now, name)
        style = console.screen_style
        if csv_ or style is None:
            text = csv_text if csv_ else partial(sweep_text, **console.table_style)
        else:
            from tpuherd.views.sweep_screen import sweep_screen

            text = partial(sweep_screen, **style)
        await here.print_content(page, text, json_=json_)
    return 0


def csv_text(page: Any) -> str:
    return sweep_csv(page)[:-1]


async def run_sweep_best(name: str, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.sweep_queries import repeating_lines, sweep_status

    async with open_store_session(console) as here:
        page, _ = sweep_status(here.store, here.now, name)
        row = next((one for one in page["trials"] if one["trial"] == page["best"]), None)
        if row is None:
            sentence = f"no trial of {page['sweep']} is complete and has a value yet"
            raise NotFound(sentence, hint=unreported_line(page))
        style, told = console.screen_style, show_values(page)
        stored = here.store.stored_jobs().get(page["sweep"])
        command = show_values(repeating_lines(stored, row))
        text = partial(best_text, told, command)
        if style is not None:
            from tpuherd.views.sweep_screen import best_screen

            text = partial(best_screen, told, command, colour=style["colour"])
        await here.print_content(row, text, json_=json_)
    return 0


async def run_sweep_plot(name: str, picture: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.sweep_queries import sweep_status

    async with open_store_session(console) as here:
        page, search = sweep_status(here.store, here.now, name)
        style = console.screen_style

        def text(page: Any) -> str:
            if picture:
                return draw_svg(page, search)[:-1]
            if style is None:
                return draw_sketch(page, search, PIPE_COLUMNS)
            from tpuherd.views.sweep_screen import plot_screen

            return plot_screen(page, search, **style)

        await here.print_content(page, text, json_=False)
    return 0


sweep.commands = {FileGroup.BEGIN: begin, "status": status, "best": best, "plot": plot}
