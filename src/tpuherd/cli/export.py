"""`herd export`: writes a job for another engine, Kubernetes or Slurm."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.exit_status import MISUSED

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess
    from tpuherd.exports.exported_job import ExportedJob
    from tpuherd.exports.write_export import Export
    from tpuherd.jobfile.read_job import Mistake

WriteExport = Callable[["ExportedJob"], "Export"]
target_argument = click.argument("target", metavar="JOB|FILE")
as_json = click.option("--json", "json_", is_flag=True, help="Print JSON.")


@click.group()
def export() -> None:
    """Write a job for another engine, which needs no herd.

    The job goes to standard output, and what it loses there to standard error. Nothing is started,
    and a job that herd has stays as it is.
    """


@export.command()
@target_argument
@click.option(
    "--image",
    metavar="IMAGE",
    help="The image with your code and its packages. Default: the job's `image`.",
)
@click.option("--queue", metavar="NAME", help="The LocalQueue of Kueue that takes the job.")
@click.option(
    "--provisioning",
    type=click.Choice(("flex-start", "queued")),
    help="Get nodes by flex-start, or by queued flex-start, instead of the job's tier.",
)
@click.option(
    "--with-queue",
    is_flag=True,
    help="Also write the queue (default: tpu), just big enough for this job.",
)
@as_json
def jobset(target: str, json_: bool, **said: Any) -> ParsedCommand:
    """Write a job as manifests for GKE, with JobSet and Kueue.

    A FILE has a dot or a slash in its name: else write ./FILE. A job that herd runs
    continues from its checkpoints: stop it first.
    """
    write = partial(write_jobset, said)
    return make_parsed_command("herd export jobset", partial(run_export, target, write, json_))


@export.command()
@target_argument
@click.option("--partition", default="", metavar="NAME", help="The partition with the TPU hosts.")
@click.option(
    "--gres",
    default="tpu",
    metavar="NAME",
    show_default=True,
    help="What the cluster calls chips, as a generic resource; '' if it does not count them.",
)
@as_json
def slurm(target: str, json_: bool, **said: Any) -> ParsedCommand:
    """Write a job as a batch script for Slurm.

    A FILE has a dot or a slash in its name: else write ./FILE. A job that herd runs
    continues from its checkpoints: stop it first.
    """
    write = partial(write_slurm, said)
    return make_parsed_command("herd export slurm", partial(run_export, target, write, json_))


def write_jobset(said: dict[str, Any], exported: "ExportedJob") -> "Export":
    from tpuherd.exports.jobset import JobSetOptions
    from tpuherd.exports.write_export import export_jobset

    words = {name: it for name, it in said.items() if it is not None}
    return export_jobset(exported, JobSetOptions(**words))


def write_slurm(said: dict[str, Any], exported: "ExportedJob") -> "Export":
    from tpuherd.exports.slurm_script import SlurmOptions
    from tpuherd.exports.write_export import export_slurm

    return export_slurm(exported, SlurmOptions(**said))


async def run_export(
    target: str, write: WriteExport, json_: bool, console: "Console", home: "HostAccess"
) -> int:
    from tpuherd.cli.job_session import print_json
    from tpuherd.views.printable import show_lines

    found = await find_export(target, console)
    if isinstance(found, list):
        for one in found:
            await console.print_notice(f"herd export: {one.format_line(target)}")
        return MISUSED
    made = write(found)
    if json_:
        await print_json(console, made)
        return 0
    text = show_lines(made.text) if console.is_terminal(1) else made.text
    await console.write(text.encode(errors="replace"))
    if console.said.loud >= 0:
        for lost in made.lost:
            await console.print_notice(f"herd export: lost: {lost.field}: {lost.why}")
        for note in made.notes:
            await console.print_notice(f"herd export: {note}")
    return 0


async def find_export(target: str, console: "Console") -> "ExportedJob | list[Mistake]":
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.load_export import is_file_name, load_export, read_export_file

    if is_file_name(target):
        return read_export_file(target, console.folder)
    async with open_store_session(console) as here:
        return load_export(here.store, target)
