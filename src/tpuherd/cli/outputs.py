"""`herd outputs`: lists and copies what a job wrote below its `outputs`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.errors import HerdError, NotFound
from tpuherd.exit_status import FAILED, PARTLY

if TYPE_CHECKING:
    from tpuherd.cli.store_session import StoreSession
    from tpuherd.commands.console import Console, TableStyle
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.commands.job_outputs import OutputFile
    from tpuherd.ports import Host

HEAD = ("FILE", "SIZE", "WHERE")
ASK_S = 60.0


@click.command()
@click.argument("job", required=False)
@click.argument("path", default="")
@click.option(
    "-o", "--output-dir", type=click.Path(file_okay=False, path_type=Path), help="Copy them there."
)
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def outputs(job: str | None, path: str, output_dir: Path | None, json_: bool) -> ParsedCommand:
    """List the outputs of JOB, or copy them into a folder.

    They are the files of the job's `outputs`: brought back when attempts ended, and on the hosts of
    the attempt that runs. PATH is a path or a pattern, as it is listed or as the command wrote it.
    """
    return make_parsed_command("herd outputs", partial(run_outputs, job, path, output_dir, json_))


async def run_outputs(
    name: str | None,
    path: str,
    output_dir: Path | None,
    json_: bool,
    console: "Console",
    home: "HostAccess",
) -> int:
    from tpuherd.cli.store_session import choose_job, open_store_session
    from tpuherd.commands.job_outputs import copy_outputs, file_row, select_outputs
    from tpuherd.views.format_text import format_bytes

    job = await choose_job(name, "herd outputs", console)
    async with open_store_session(console) as here:
        files, complete = await find_files(job, here, console, home)
        found = select_outputs(files, path)
        if not found:
            raise missing_files(job, path, files, here)
        failed: dict[str, str] = {}
        if output_dir is not None:
            failed = await copy_outputs(found, console.folder / output_dir)
            for file, why in failed.items():
                await console.print_notice(f"herd outputs: {file}: {why}")
        if json_ or output_dir is None:
            rows = [file_row(one) for one in found if one.name not in failed]
            await here.print_content(
                rows, lambda rows: files_table(rows, console.table_style), json_=json_
            )
        elif console.said.loud >= 0:
            many, size = len(found) - len(failed), sum(one.bytes for one in found)
            said = f"{many} file{'s' if many != 1 else ''}"
            await console.print_text(f"copied {said} to {output_dir} ({format_bytes(size)})")
    if failed:
        return PARTLY if len(failed) < len(found) else FAILED
    return 0 if complete else PARTLY


async def find_files(
    job: str, here: "StoreSession", console: "Console", home: "HostAccess"
) -> "tuple[list[OutputFile], bool]":
    """Return the outputs, and whether all hosts on which the job runs have answered."""
    from tpuherd.commands.command_types import resolve_hosts
    from tpuherd.commands.job_outputs import find_here, find_on_host, outputs_folder
    from tpuherd.jobs.load_history import slot_histories
    from tpuherd.model.slot_history import has_running_attempt
    from tpuherd.remote import fanout

    files = list(find_here(outputs_folder(console), job))
    stored = here.store.stored_jobs().get(job)
    if stored is None or not any(map(has_running_attempt, slot_histories(here.store, stored))):
        return files, True
    try:
        place, reach = await home.open_remote(console)
        hosts = await resolve_hosts(job, place, reach)
    except HerdError as error:
        await console.print_notice(f"herd outputs: only what is here: {error.sentence}")
        return files, False
    many = len({host.node for host in hosts}) > 1

    async def ask(host: "Host") -> "list[OutputFile]":
        label = f"{host.node}.w{host.worker}" if many else f"w{host.worker}"
        return await find_on_host(stored, await reach.pool.get_link(host), label)

    results = await fanout.run_on_all(hosts, ask, seconds=ASK_S)
    for line in fanout.failure_lines(results):
        await console.print_notice(f"herd outputs: {line}")
    for done in results:
        files += done.value or ()
    return files, all(done.value is not None for done in results)


def missing_files(
    job: str, path: str, files: "list[OutputFile]", here: "StoreSession"
) -> HerdError:
    """The error that says why nothing was found, and what to do."""
    from tpuherd.jobs.job_queries import match_jobs

    if files:
        hint = f"`herd outputs {job}` lists them"
        return NotFound(f"no output of {job} matches {path}", hint=hint)
    stored = here.store.stored_jobs()
    (known,) = match_jobs((job,), stored)
    if not stored[known].document.get("outputs"):
        hint = f"name them, such as: herd set {job} outputs=results"
        return NotFound(f"{job} has no `outputs`", hint=hint)
    hint = "they come when its attempt has ended; the paths are relative to the command's folder"
    return NotFound(f"{job} has written no outputs yet", hint=hint)


def files_table(rows: "list[dict[str, object]]", style: "TableStyle") -> str:
    from tpuherd.views.format_text import format_bytes, format_table

    cells = [
        (str(row["name"]), format_bytes(int(str(row["bytes"]))), "here" if row["file"] else "host")
        for row in rows
    ]
    return format_table([HEAD, *cells], **style)
