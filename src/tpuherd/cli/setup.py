"""`herd setup gcp`: makes what a Google Cloud project lacks for TPUs, and undoes it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import ABORTED, FAILED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.project_setup.setup_session import SetupSession
    from tpuherd.project_setup.setup_types import SetupRequest

NAME = "herd setup gcp"


@click.group()
def setup() -> None:
    """Prepare a cloud project for TPUs."""


@setup.command()
@click.option(
    "--way",
    metavar="WAY",
    help="How to reach hosts: external (default), internal, iap, or jump:USER@HOST.",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="RANGE",
    help="Addresses that may log in; default: this machine's.",
)
@click.option(
    "--open-to-internet",
    is_flag=True,
    help="What --from anywhere needs beside --yes.",
)
@click.option("--mosh", is_flag=True, help="Let mosh through, too (UDP 60000 to 61000).")
@click.option("--network", metavar="NAME", default="default", help="The network of your nodes.")
@click.option(
    "--keys",
    type=click.Choice(["project", "os-login", "node"]),
    metavar="PLACE",
    default="project",
    help="Where your SSH key goes: os-login, node or project, which is the default.",
)
@click.option("--api", "apis", multiple=True, metavar="NAME", help="Another API, such as storage.")
@click.option("--member", metavar="ACCOUNT", help="Who gets the roles; default: you.")
@click.option(
    "--service-account",
    metavar="EMAIL",
    help="The nodes' account, which may then write logs.",
)
@click.option("--undo", is_flag=True, help="Undo what this command has made, and nothing else.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def gcp(**said: Any) -> ParsedCommand:
    """Make what the Google Cloud project lacks for TPUs, after showing it.

    APIs are enabled, roles given, one firewall rule made for SSH, and your SSH key added. What is
    there already stays as it is, and each change can be undone with --undo.
    """
    return make_parsed_command(NAME, partial(run_undo if said["undo"] else run_setup, said))


@asynccontextmanager
async def open_setup(console: "Console") -> "AsyncIterator[SetupSession]":
    """Yield a session with the project's journal."""
    from tpuherd.clock import WallClock
    from tpuherd.project_setup.journal import open_journal
    from tpuherd.project_setup.setup_session import SetupSession
    from tpuherd.remote.open_remote import open_cloud
    from tpuherd.settings import project_access

    place = project_access.resolve_access(console.environ, world=console.said.world)
    clock = WallClock()
    journal = open_journal(place)
    async with open_cloud(place, clock) as cloud:
        owner = project_access.get_owner_id(place.folders.config)
        yield SetupSession(place=place, rest=cloud.rest, clock=clock, owner=owner, journal=journal)


async def run_setup(said: Mapping[str, Any], console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_json, print_lines
    from tpuherd.project_setup.goals import list_goals
    from tpuherd.project_setup.read_request import read_request
    from tpuherd.project_setup.run_setup import make_goals, survey_goals
    from tpuherd.remote.client_key import key_pair
    from tpuherd.views.setup_report import closing_line, plan_lines

    async with open_setup(console) as here:
        request = read_request(said, here.place)
        key = key_pair(here.place.folders.config).public
        goals = list_goals(request, owner=here.owner, login=here.place.login, public_key=key)
        steps = [one.as_json() for one in await survey_goals(goals, here)]
        needed = any(one["state"] in ("missing", "later") for one in steps)
        if not said["json_"]:
            heading = f"{here.place.title}, network {request.network}, way {request.way.text}"
            await print_lines(console, "\n".join([heading, *plan_lines(steps)]))
        if needed and not said["dry_run"]:
            if not await confirm_setup(said, request, steps, console):
                return ABORTED
            planned, steps = steps, []
            with here.journal.hold():
                async for one in make_goals(goals, here):
                    steps.append(one.as_json())
                    is_news = steps[-1] != planned[len(steps) - 1]
                    if is_news and not said["json_"]:
                        await print_lines(console, "\n".join(plan_lines(steps[-1:])))
    if said["json_"]:
        about = {"project": here.project, "network": request.network, "way": request.way.text}
        await print_json(console, {**about, "dry_run": said["dry_run"], "steps": steps})
    else:
        await print_lines(console, closing_line(steps))
    return FAILED if any(one["state"] in ("blocked", "failed") for one in steps) else 0


async def confirm_setup(
    said: Mapping[str, Any],
    request: "SetupRequest",
    steps: Sequence[Mapping[str, Any]],
    console: "Console",
) -> bool:
    """Ask, and once more if the firewall would be wide open."""
    from tpuherd.cli.ask_user import TerminalPrompter
    from tpuherd.errors import InvalidInput
    from tpuherd.project_setup.read_request import is_wide
    from tpuherd.views.setup_report import count_changes, plan_lines

    opens = any(one["kind"] == "firewall" and one["state"] in ("missing", "later") for one in steps)
    wide = opens and is_wide(request.sources)
    if wide and said["yes"] and not said["open_to_internet"]:
        raise InvalidInput(
            "this would let every address on the Internet try to log in",
            hint="name your own with --from ADDRESS, or add --open-to-internet",
        )
    prompter = TerminalPrompter(console, NAME, yes=said["yes"])
    details = "\n".join(plan_lines(steps)) if said["json_"] else ""
    if not await prompter.ask_confirmation(f"{count_changes(steps)}, as shown above", details):
        return False
    question = "let every address on the Internet try to log in, not only yours"
    return not wide or await prompter.ask_confirmation(question)


async def run_undo(said: Mapping[str, Any], console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.ask_user import TerminalPrompter
    from tpuherd.cli.job_session import print_json, print_lines
    from tpuherd.project_setup.run_setup import undo_changes
    from tpuherd.views.setup_report import undo_lines

    async with open_setup(console) as here:
        results = [one.as_json() async for one in undo_changes(here, act=False)]
        if not said["json_"] and results:
            await print_lines(console, "\n".join([here.place.title, *undo_lines(results)]))
        act = bool(results) and not said["dry_run"]
        if act:
            prompter = TerminalPrompter(console, NAME, yes=said["yes"])
            if not await prompter.ask_confirmation("undo this"):
                return ABORTED
            with here.journal.hold():
                results = [one.as_json() async for one in undo_changes(here, act=True)]
            left = [one for one in results if not one["undone"]]
    if said["json_"]:
        about = {"project": here.project, "dry_run": said["dry_run"]}
        await print_json(console, {**about, "changes": results})
    elif not results:
        await print_lines(console, f"Nothing to undo in {here.place.title}.")
    elif act:
        await print_lines(console, "\n".join(undo_lines(left) if left else ["Undone."]))
    return FAILED if any(one["failed"] or one["kept"] for one in results) else 0
