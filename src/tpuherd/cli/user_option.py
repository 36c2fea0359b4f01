"""The option by which a command acts on another user's jobs on purpose."""

import click

other_user = click.option(
    "--user", metavar="NAME", help="Act on jobs of this other user; the events will say so."
)
