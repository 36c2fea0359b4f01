"""`herd set`: changes fields of a job."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.job_options import parse_setting, set_field
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.user_option import other_user
from tpuherd.exit_status import ABORTED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.jobs.submit import SubmitResult


@click.command("set")
@click.argument("name")
@click.argument("words", nargs=-1, required=True, metavar="FIELD=VALUE…")
@other_user
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def set_(
    name: str, words: tuple[str, ...], user: str | None, yes: bool, json_: bool
) -> ParsedCommand:
    """Change fields of a job; `FIELD=` resets a field to its default.

    It first shows what the change costs: a new node, a new attempt, or neither.
    """
    setting = SetOptions(name=name, words=words, user=user, yes=yes, json_=json_)
    return make_parsed_command("herd set", partial(run_set, setting, "herd set"))


@dataclass(frozen=True, kw_only=True, slots=True)
class SetOptions:
    name: str
    words: tuple[str, ...]
    user: str | None  #: whose job it is, if it is another's
    yes: bool
    json_: bool


async def run_set(asked: SetOptions, said_by: str, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import open_job_session
    from tpuherd.cli.submit_job import print_ignored, print_mistakes
    from tpuherd.jobfile.joined_fields import join_fields
    from tpuherd.jobfile.yaml_with_lines import YamlDocument
    from tpuherd.jobs.submit import change_job

    async with open_job_session(
        console, home, said_by, yes=asked.yes, acting_for=asked.user
    ) as here:
        page = YamlDocument(value=join_fields(here.get_own_job(asked.name).document))
        for word in asked.words:
            where, value = parse_setting(word)
            set_field(page, where, [value])
        made = await change_job(asked.name, page, here)
        if page.mistakes:
            return await print_mistakes(page, "", said_by, console)
        await print_ignored(page, "", said_by, console)
        if made is None:
            return ABORTED
    await print_change(asked, made, console)
    return 0


async def print_change(asked: SetOptions, made: "SubmitResult", console: "Console") -> None:
    from tpuherd.cli.job_session import print_json, print_lines

    change, stored_job = made.change, made.stored_job
    if asked.json_:
        about = {
            "job": stored_job.job,
            "revision": stored_job.revision,
            "difference": list(change.lines),
        }
        await print_json(console, {**about, "needs": change.needs, "document": stored_job.document})
    elif not change.lines:
        await console.print_notice(f"{stored_job.job} already has these values")
    else:
        await print_lines(console, "\n".join((*change.lines, change.sentence)))
