"""`herd levanter`: the command lines of Levanter's scripts, which become jobs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpuherd.cli.job_options import COMMAND, JobCommand
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command

if TYPE_CHECKING:
    from tpuherd.cli.levanter_jobs import SpinUpOptions

F = TypeVar("F", bound=Callable[..., Any])
NO_IMAGE = (
    "docker_base_image", "docker_repository", "docker_registry", "image_name", "github_user",
    "github_token", "extra_context",
)  # fmt: skip
CAPACITY = ("preemptible", "spot", "reserved", "on-demand", "best-effort")


def add_options(*options: Any) -> Callable[[F], F]:
    """Return a decorator that adds these options in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


consent = (
    click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
    click.option("--dry-run", "dry", is_flag=True, help="Only check, and show zones and prices."),
)
detach = click.option("--detach", is_flag=True, help="Do not show events and output.")
add_node_options = add_options(
    click.option("-z", "--zone", default="", help="Zone; without it, any that your grants allow."),
    click.option("-t", "--type", "type_", default="", help="TPU type, such as v3-32."),
    click.option("-i", "--image", default="", help="Runtime version of the TPU VM."),
    click.option("-p", "--preemptible", is_flag=True, help="Use preemptible capacity."),
    click.option("-s", "--setup", default="", help="Setup script, or setup-tpu-vm[-nfs].sh."),
    click.option("-b", "--branch", default="", help="Branch or commit instead of your folder."),
    click.option("-r", "--repo", default="", help="Git repository; default: your clone's origin."),
    click.option("-n", "--subnetwork", default="", help="Subnetwork."),
    click.option("--retries", type=int, default=-1, help="End after N failures; -1: never."),
    click.option("-a", "--autodelete", is_flag=True, help="No effect: an existing TPU is kept."),
    click.option("--use-alpha", "--use_alpha", "alpha", is_flag=True, help="No effect."),
    *consent,
)  # fmt: skip


@click.group()
def levanter() -> None:
    """Run Levanter as its own scripts do, on a TPU that herd keeps.

    `babysit` and `spin-up` take the options of babysit-tpu-vm.sh and spin-up-vm.sh, `launch` those
    of launch.py and its .levanter.yaml. The TPU has exactly the name that you give.
    """


@levanter.command("babysit", cls=JobCommand)
@click.argument("name")
@add_node_options
@detach
@click.pass_context
def babysit(context: click.Context, /, name: str, **said: Any) -> ParsedCommand:
    """Run a command until it succeeds, across preemptions.

    It stands after --; at the end the TPU is deleted. All attempts have one RUN_ID: that of your
    environment, else a new one. Variables may stand before the command:
    -- WANDB_API_KEY=… levanter/infra/run.sh python …
    """
    from tpuherd.cli.levanter_jobs import run_babysit

    asked = read_node_options(name, said)
    work = partial(run_babysit, asked, words_after_dashes(context), not said["detach"])
    return make_parsed_command("herd levanter babysit", work, attentive=True)


@levanter.command("spin-up", cls=JobCommand)
@click.argument("name")
@add_node_options
@click.pass_context
def spin_up(context: click.Context, /, name: str, **said: Any) -> ParsedCommand:
    """Create a TPU, prepare its hosts, and print their addresses.

    The TPU is kept, and replaced when it is preempted, until `herd down`.
    """
    from tpuherd.cli.levanter_jobs import run_spin_up

    if COMMAND in context.meta:
        raise click.UsageError("spin-up takes no command; babysit does")
    asked = read_node_options(name, said)
    return make_parsed_command("herd levanter spin-up", partial(run_spin_up, asked))


@levanter.command("run", cls=JobCommand)
@click.argument("name")
@add_options(*consent, detach)
@click.pass_context
def run(context: click.Context, /, name: str, yes: bool, dry: bool, detach: bool) -> ParsedCommand:
    """Run a command on a TPU that `spin-up` made.

    It stands after --, and has Levanter's environment. Your folder is shipped as it is now. The TPU
    is kept at the end.
    """
    from tpuherd.cli.levanter_jobs import RunOnNode, run_on_node

    words = words_after_dashes(context)
    asked = RunOnNode(name=name, words=words, follow=not detach, yes=yes, dry=dry)
    return make_parsed_command("herd levanter run", partial(run_on_node, asked), attentive=True)


@levanter.command("launch", cls=JobCommand, context_settings={"allow_interspersed_args": False})
@add_options(
    click.option("--tpu_name", "--tpu-name", help="Exact name of the TPU."),
    click.option("--tpu_type", "--tpu-type", help="TPU type, such as v4-32."),
    click.option("--zone", help="Zone; without it, any that your grants allow."),
    click.option("--node_count", "--node-count", type=int, metavar="N",
                 help="Slices of one multislice run."),
    click.option("--version", help="Runtime version of the TPU VM."),
    click.option("--capacity_type", "--capacity-type", type=click.Choice(CAPACITY), metavar="KIND",
                 help="Such as spot (or --spot); default: on-demand."),
    *(click.option(f"--{word}", "capacity_type", flag_value=word, hidden=True,
                   help=f"The same as --capacity_type {word}.")
      for word in CAPACITY[:4]),
    click.option("--retries", type=int, help="Restarts after failures; -1: without end."),
    click.option("--run_id", "--run-id", help="The id of the run; default: a new one."),
    click.option("-e", "--env", nargs=2, multiple=True, metavar="KEY VALUE",
                 help="An environment variable."),
    click.option("--foreground", is_flag=True, help="Show events and output until the end."),
    click.option("--autodelete", is_flag=True, help="Delete the TPU when the command has ended."),
    click.option("--project", help="Must be the current context's project."),
    *(click.option(f"--{name}", hidden=True) for name in NO_IMAGE),
    *consent,
)  # fmt: skip
@click.argument("rest", nargs=-1, metavar="[--] COMMAND...")
@click.pass_context
def launch(context: click.Context, /, rest: tuple[str, ...], **said: Any) -> ParsedCommand:
    """Run a command on a TPU, as launch.py does, without images.

    This folder is shipped, and the TPU created if needed. Defaults come from the environment
    (TPU_NAME, ZONE, …) and from .levanter.yaml.
    """
    from tpuherd.cli.levanter_jobs import LaunchOptions, run_launch

    for name in NO_IMAGE:
        if said.pop(name) is not None:
            raise click.UsageError(
                f"--{name} has no meaning here: herd ships the folder and makes the environment"
                " on the hosts, so there is no image; leave it out"
            )
    words = rest or words_after_dashes(context)
    asked = LaunchOptions(words=words, said=said)
    return make_parsed_command("herd levanter launch", partial(run_launch, asked), attentive=True)


def words_after_dashes(context: click.Context) -> tuple[str, ...]:
    words = tuple(context.meta.get(COMMAND, ()))
    if not words:
        raise click.UsageError("give the command after --, such as -- python3 train.py")
    return words


def read_node_options(name: str, said: dict[str, Any]) -> "SpinUpOptions":
    from tpuherd.cli.levanter_jobs import SpinUpOptions
    from tpuherd.compat.levanter import NodeOptions

    if not said["type_"]:
        raise click.UsageError("give the TPU's type: -t v3-32")
    network = said["subnetwork"]
    node = NodeOptions(
        name=name,
        type=said["type_"],
        zone=said["zone"],
        tier="preemptible" if said["preemptible"] else "on-demand",
        runtime=said["image"],
        subnetwork="" if network == "default" else network,
    )
    kept = {word: said[word] for word in ("branch", "repo", "retries", "yes", "dry")}
    return SpinUpOptions(node=node, setup=Path(said["setup"]), **kept)
