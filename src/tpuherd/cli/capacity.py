"""`herd capacity`: what was learnt about zones."""

from functools import partial

import click

from tpuherd.cli.parsed_command import Errand, errand


@click.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def capacity(json_: bool) -> Errand:
    """Show how each zone has answered: refusals, grants, time until READY, life until a loss."""
    from tpuherd.cli.job_reports import learnt

    return errand("herd capacity", partial(learnt, json_))
