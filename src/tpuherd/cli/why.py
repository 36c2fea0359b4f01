"""`herd why`: what a job waits for."""

from functools import partial

import click

from tpuherd.cli.parsed_command import Errand, errand


@click.command()
@click.argument("name")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def why(name: str, json_: bool) -> Errand:
    """Say what each slot of a job does or waits for, in a sentence, and what happened last.

    NAME is a job (gpt) or a slot (gpt-0).
    """
    from tpuherd.cli.job_reports import explained

    return errand("herd why", partial(explained, name, json_))
