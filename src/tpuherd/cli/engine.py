"""`herd engine`: inspects, starts and stops the process that keeps jobs running."""

import json
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.adopt import adopt
from tpuherd.cli.anywhere import current_invocation, named_world
from tpuherd.cli.daemon import daemon
from tpuherd.cli.engine_metrics import metrics
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.cli.plan import plan
from tpuherd.cli.print_text import print_text
from tpuherd.cli.store import store
from tpuherd.errors import HerdError, InvalidInput
from tpuherd.exit_status import UNREACHED
from tpuherd.settings import project_access
from tpuherd.views.trouble_line import read_problem, trouble_line

if TYPE_CHECKING:
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

LOGS = ("engine.log.1", "engine.log")
NONE = "no engine is running; the next command that needs it starts it"


@click.group(commands=[plan, metrics, adopt, store, daemon])
def engine() -> None:
    """Inspect the process that keeps your jobs running, its plan, its store and the daemon."""


@engine.command()
@click.option(
    "--stand-by", is_flag=True, help="Stay, and lead whenever no other engine of the store does."
)
def run(stand_by: bool) -> int:
    """Run the engine in the foreground, while there is work."""
    from tpuherd.cli import via_client
    from tpuherd.engine import engine_process
    from tpuherd.settings import project_access

    try:
        environ = current_invocation().environ
        place = project_access.resolve_access(environ, world=named_world())
        if stand_by:
            print_text(engine_process.stand_by(place, environ))
        else:
            print_text(engine_process.run_engine(place, environ, aloud=True))
    except HerdError as error:
        return via_client.print_error("herd engine run", error)
    return 0


@engine.command()
def start() -> ParsedCommand:
    """Start the engine in the background, unless one is running.

    Commands that need an engine start it by themselves.
    """
    return make_parsed_command("herd engine start", run_engine_start)


@engine.command()
def stop() -> ParsedCommand:
    """Stop the engine. Commands on hosts continue, for at most 72 hours without an engine."""
    return make_parsed_command("herd engine stop", run_engine_stop)


@engine.command()
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def status(json_: bool) -> ParsedCommand:
    """Show whether and where the engine is running."""
    return make_parsed_command("herd engine status", partial(run_engine_status, json_))


@engine.command()
def acknowledge() -> ParsedCommand:
    """Accept the restored store, so that the engine continues."""
    return make_parsed_command("herd engine acknowledge", run_engine_acknowledge)


@engine.command()
@click.option("-n", "--lines", default=50, show_default=True, help="How many of the last lines.")
@click.option("--job", default="", metavar="NAME", help="Only lines of this job or slot.")
def logs(lines: int, job: str) -> ParsedCommand:
    """Print the last lines of the engine's own log, in JSON."""
    return make_parsed_command("herd engine logs", partial(run_engine_logs, lines, job))


@engine.command()
def install() -> int:
    """Make systemd start the engine after a reboot.

    It writes a user unit and prints the next steps.
    """
    from tpuherd.cli import systemd_unit, via_client
    from tpuherd.settings import project_access

    try:
        if sys.platform == "darwin":
            raise InvalidInput("macOS has no systemd", hint="run herd engine run in a terminal")
        environ = current_invocation().environ
        place = project_access.resolve_access(environ, world=named_world())
        file, todo = systemd_unit.install_unit(place, environ)
    except HerdError as error:
        return via_client.print_error("herd engine install", error)
    print_text(f"{file} is written. Now run:", err=True)
    click.echo(todo)
    return 0


def engine_scope(console: "Console") -> project_access.ProjectScope:
    """Return the project or world; the engine of a deleted world can be stopped, too."""
    return project_access.resolve_scope(console.environ, world=console.said.world)


async def run_engine_start(console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_lines
    from tpuherd.jobs import engine_control

    found = await engine_control.start_engine(
        project_access.resolve_access(console.environ, world=console.said.world), console.environ
    )
    await print_lines(console, f"The engine is running: pid {found['pid']} on {found['host']}")
    return 0


async def run_engine_stop(console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_lines
    from tpuherd.jobs import engine_control

    ended = await engine_control.stop_engine(engine_scope(console))
    await print_lines(console, "Stopped the engine" if ended else "No engine is running")
    return 0


async def run_engine_status(json_: bool, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_json, print_lines
    from tpuherd.cli.store_session import print_notices
    from tpuherd.clock import WallClock
    from tpuherd.jobs import engine_control

    found = engine_control.engine_status(engine_scope(console))
    await print_notices(console, engine_scope(console).store_folder)
    for one in found["problems"]:
        await console.print_notice(trouble_line(read_problem(one), WallClock().now()))
    if json_:
        await print_json(console, found)
    elif found["running"]:
        until = datetime.fromtimestamp(found["lease_until"], UTC).strftime("%H:%M:%S")
        text = f"pid {found['pid']} on {found['host']}, epoch {found['epoch']}"
        await print_lines(console, f"{text}, lease until {until} UTC, for {found['scope']}")
    else:
        await console.print_notice(f"herd engine status: {NONE}")
    return 0 if found["running"] else UNREACHED


async def run_engine_acknowledge(console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_lines
    from tpuherd.jobs import engine_control

    done = engine_control.acknowledge_damage(
        project_access.resolve_access(console.environ, world=console.said.world), console.environ
    )
    await print_lines(console, "Acknowledged" if done else "Nothing to acknowledge")
    return 0


async def run_engine_logs(lines: int, job: str, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.job_session import print_lines

    folder = engine_scope(console).store_folder
    text: list[str] = []
    for name in LOGS:
        file = folder / name
        if file.exists():
            text += file.read_text(errors="replace").splitlines()
    if job:
        text = [line for line in text if is_about(line, job)]
    if text:
        await print_lines(console, "\n".join(text[-lines:]))
    return 0


def is_about(line: str, name: str) -> bool:
    """Whether a line of the log is about this job or slot."""
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and name in (found.get("job"), found.get("slot"))
