"""`herd map`: runs a command for each of many items, on many nodes."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.formats import Duration
from tpuherd.cli.job_options import COMMAND, OPTIONS, FileGroup, JobCommand
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.run import add_job_options, parse_run_options
from tpuherd.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from tpuherd.cli.map_submission import MapInput
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


class ItemGroup(FileGroup):
    """`herd map JOB FILE`, or one of its other subcommands."""

    BEGIN = "JOB"


@click.group("map", cls=ItemGroup)
def map_() -> None:
    """Run a command for each line of a file, on many nodes.

    Items run on the job's copies, one on each node at a time; an item whose node is lost runs
    again. The exit status is the greatest of all items.
    """


@click.command(ItemGroup.BEGIN, cls=JobCommand)
@click.argument("job", metavar="")
@click.argument("file", metavar="[FILE] -- COMMAND", required=False)
@click.option(
    "--retries", type=click.IntRange(0, 1000), metavar="N",
    help="How often a failed item is tried again.",
)  # fmt: skip
@click.option("--timeout", "timeout_s", type=Duration(), help="How long one item may run.")
@click.option("--again", is_flag=True, help="Run all items again, also those that succeeded.")
@click.option("--detach", is_flag=True, help="Do not wait for the end.")
@partial(add_job_options, rare=set(OPTIONS) - {"name", "accelerator", "copies", "workdir"})
@click.pass_context
def begin(context: click.Context, /, job: str, file: str | None, **said: Any) -> ParsedCommand:
    """Run a command for each line of FILE, or of standard input (-).

    JOB is a job, or a job file, whose nodes are deleted after the last item. The item replaces {}
    in COMMAND, as one argument, or is appended. The same command line again runs only what has not
    succeeded.
    """
    from tpuherd.cli.map_submission import MapInput

    own = {name: said.pop(name) for name in ("retries", "timeout_s", "again", "detach")}
    if file is None:
        if not said["name"]:
            raise click.UsageError("give items: herd map JOB FILE -- COMMAND {}")
        options = parse_run_options(None, context.meta.get(COMMAND, []), said)
        asked = MapInput(target="", items=job, **own, **options)
    else:
        named = not ("." in job or "/" in job)
        if named and any(said[name] for name in said if name not in ("yes", "dry", "json_")):
            raise click.UsageError(f"{job} is a job: options that describe one need a job file")
        options = parse_run_options(None if named else job, context.meta.get(COMMAND, []), said)
        asked = MapInput(target=job if named else "", items=file, **own, **options)
    if asked.target and asked.dry:
        raise click.UsageError("--dry-run needs a job file")
    return make_parsed_command("herd map", partial(run_map, asked), attentive=True)


@click.command()
@click.argument("name")
@click.option("--failed", is_flag=True, help="Only items that failed.")
@click.option("--json", "json_", is_flag=True, help="Print JSON, with all items.")
def status(name: str, failed: bool, json_: bool) -> ParsedCommand:
    """Show a map's items, and the last lines of those that failed."""
    return make_parsed_command("herd map status", partial(run_map_status, name, failed, json_))


@click.command()
@click.argument("name")
@click.argument("item", type=click.IntRange(0))
@click.option("--json", "json_", is_flag=True, help="Print a line of JSON for each line.")
def logs(name: str, item: int, json_: bool) -> ParsedCommand:
    """Show the output of the item with this number."""
    return make_parsed_command("herd map logs", partial(run_map_logs, name, item, json_))


async def run_map(asked: "MapInput", console: "Console", home: "HostAccess") -> int:
    """Submit the map, and follow it."""
    from tpuherd.cli.map_submission import submit_and_follow
    from tpuherd.sweeps.map_items import parse_items

    content = await read_items(asked.items, console)
    name = "standard input" if asked.items == "-" else asked.items
    return await submit_and_follow(asked, parse_items(content, name), console, home)


async def read_items(file: str, console: "Console") -> bytes:
    """Return the content of a file, or of standard input."""
    from tpuherd.sweeps.map_items import TOTAL_BYTES_MAX

    if file == "-":
        pieces: list[bytes] = []
        while piece := await console.read():
            pieces.append(piece)
            if sum(map(len, pieces)) > TOTAL_BYTES_MAX:
                break
        return b"".join(pieces)
    try:
        with (console.folder / Path(file).expanduser()).open("rb") as stream:
            return stream.read(TOTAL_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror}") from error


async def run_map_status(
    name: str, failed: bool, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.job_queries import map_status
    from tpuherd.views.map_table import keep_failed, map_text

    async with open_store_session(console) as here:
        page = map_status(here.store, here.now, name)
        page = keep_failed(page) if failed else page
        await here.print_content(page, partial(map_text, **console.table_style), json_=json_)
    return 0


async def run_map_logs(
    name: str, item: int, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.logs import run_logs
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.commands.find_logs import LogQuery
    from tpuherd.jobs.job_queries import map_status

    async with open_store_session(console) as here:
        page = map_status(here.store, here.now, name)
    if item >= page["total"]:
        raise NotFound(f"{page['map']} has {page['total']} items: their numbers begin at 0")
    attempt = page["items"][item]["attempt"]
    if not attempt:
        raise NotFound(f"item {item} of {page['map']} has not started yet")
    return await run_logs(LogQuery(target=None, attempt=attempt, json_=json_), console, home)


map_.commands = {ItemGroup.BEGIN: begin, "status": status, "logs": logs}
