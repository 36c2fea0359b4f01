"""`herd sweep status`, `herd sweep best` and `herd sweep plot`: what came of a sweep."""

from functools import partial

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("name")
@as_json
@click.option("--csv", "csv_", is_flag=True, help="Print CSV, a line for each trial.")
def status(name: str, json_: bool, csv_: bool) -> ParsedCommand:
    """Show all trials of a sweep: parameters, where they are, and what they told last.

    The best is marked with a star.
    """
    from tpuherd.cli.sweep_show_do import run_sweep_status

    return make_parsed_command("herd sweep status", partial(run_sweep_status, name, json_, csv_))


@click.command()
@click.argument("name")
@as_json
def best(name: str, json_: bool) -> ParsedCommand:
    """Show the best of the trials that are complete; exit status 4 while there is none."""
    from tpuherd.cli.sweep_show_do import run_sweep_best

    return make_parsed_command("herd sweep best", partial(run_sweep_best, name, json_))


@click.command()
@click.argument("name")
@click.option("--svg", is_flag=True, help="Print a picture, for a file of its own.")
def plot(name: str, svg: bool) -> ParsedCommand:
    """Draw how the best value came about, and each parameter against the metric.

    \b
    herd sweep plot lr
    herd sweep plot lr --svg > lr.svg
    """
    from tpuherd.cli.sweep_show_do import run_sweep_plot

    return make_parsed_command("herd sweep plot", partial(run_sweep_plot, name, svg))
