"""`herd engine adopt`: takes over nodes of a lost store, of another owner, or of other tools."""

from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.targets import fold_names

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess


@click.command()
@click.argument("names", nargs=-1, metavar="[OWNER | NODE... --job FILE]")
@click.option("--job", "file", metavar="FILE", help="Take the nodes into the job of this file.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def adopt(names: tuple[str, ...], file: str | None, yes: bool, json_: bool) -> ParsedCommand:
    """Take over nodes and requests that belong to no job.

    They are yours, or those of OWNER. Each job is rebuilt from the metadata of its node. From then
    on OWNER's resources count as yours.

    With --job, take running NODEs that other tools created into the job of FILE, a new one.
    Nothing is restarted; herd prepares them and runs the command of FILE there, if it has one.
    Copies without a node are requested, and a node that is lost is replaced. `herd stop` and
    `herd down` delete these nodes, as they do the others of the job.
    """
    if file is not None:
        if not names:
            raise click.UsageError("name the nodes: herd engine adopt NODE… --job FILE")
        return make_parsed_command(
            "herd engine adopt", partial(run_adopt_nodes, names, file, yes, json_)
        )
    if len(names) > 1:
        raise click.UsageError("to adopt nodes, give their job: herd engine adopt NODE… --job FILE")
    owner = names[0] if names else None
    return make_parsed_command("herd engine adopt", partial(run_adopt, owner, json_))


async def run_adopt(owner: str | None, json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.jobs.adopt_resources import adopt_resources

    async with open_job_session(console, home, "herd engine adopt") as here:
        found = await adopt_resources(owner, here)
    if json_:
        await print_json(console, found)
        return 0
    await print_lines(
        console, f"Adopted {fold_names(found.adopted)}" if found.adopted else "Nothing to adopt"
    )
    if found.unknown:
        left = fold_names(found.unknown)
        await console.print_notice(f"{left}: the metadata has no job; `herd gc NAME` deletes it")
    return 0


async def run_adopt_nodes(
    names: tuple[str, ...],
    file: str,
    yes: bool,
    json_: bool,
    console: "Console",
    home: "HostAccess",
) -> int:
    from tpuherd.cli.job_options import JobArguments, read_job_input
    from tpuherd.cli.job_session import open_job_session, print_json, print_lines
    from tpuherd.cli.submit_job import print_mistakes
    from tpuherd.exit_status import ABORTED
    from tpuherd.jobs.adopt_nodes import adopt_nodes, check_adoption, find_nodes

    page, base = read_job_input(JobArguments(file=file, fields={}), console.folder)
    async with open_job_session(console, home, "herd engine adopt", yes=yes) as here:
        nodes = await find_nodes(names, here)
        checked = await check_adoption(nodes, page, base, here)
        if checked is None:
            return await print_mistakes(page, file, "herd engine adopt", console)
        found = await adopt_nodes(checked, here)
        if found is None:
            return ABORTED
    if json_:
        await print_json(console, found)
        return 0
    job = checked.found.job
    for name, ask in checked.asks.items():
        await print_lines(console, f"Adopted {name} as {ask.slot}")
    if job.run is not None and console.said.loud >= 0:
        await console.print_notice(
            f"herd engine adopt: {job.name}'s command starts there next to what runs already;"
            f" `herd smi {job.name} --processes` shows who uses the chips,"
            f" `herd clean {job.name}` frees them"
        )
    return 0
