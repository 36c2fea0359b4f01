"""What `herd engine` does."""

from datetime import UTC, datetime

from tpuherd.cli.job_session import print_json, print_lines
from tpuherd.cli.store_session import print_notices
from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.exit_status import UNREACHED
from tpuherd.jobs import engine_control
from tpuherd.model.trouble import TroubleRecord
from tpuherd.settings import project_access
from tpuherd.store.set_aside import acknowledge_notices
from tpuherd.views.trouble_line import trouble_line

LOGS = ("engine.log.1", "engine.log")
NONE = "no engine runs; the next command on a job that wants one starts it"


def engine_scope(console: Console) -> project_access.ProjectScope:
    """What is meant; the engine of a world that is gone can be ended, too."""
    return project_access.resolve_scope(console.environ, world=console.said.world)


async def run_engine_start(console: Console, home: HostAccess) -> int:
    """Begin it."""
    found = await engine_control.start_engine(
        project_access.resolve_access(console.environ, world=console.said.world), console.environ
    )
    await print_lines(console, f"the engine runs: pid {found['pid']} on {found['host']}")
    return 0


async def run_engine_stop(console: Console, home: HostAccess) -> int:
    """End it."""
    ended = await engine_control.stop_engine(engine_scope(console))
    await print_lines(console, "the engine has ended" if ended else "no engine runs")
    return 0


async def run_engine_status(json_: bool, console: Console, home: HostAccess) -> int:
    """How it is."""
    found = engine_control.engine_status(engine_scope(console))
    await print_notices(console, engine_scope(console).store_folder)
    for one in found["troubles"]:
        await console.print_notice(trouble_line(TroubleRecord(**one), WallClock().now()))
    if json_:
        await print_json(console, found)
    elif found["running"]:
        until = datetime.fromtimestamp(found["lease_until"], UTC).strftime("%H:%M:%S")
        text = f"pid {found['pid']} on {found['host']}, epoch {found['epoch']}"
        await print_lines(console, f"{text}, lease until {until} UTC, for {found['place']}")
    else:
        await console.print_notice(f"herd engine status: {NONE}")
    return 0 if found["running"] else UNREACHED


async def run_engine_acknowledge(console: Console, home: HostAccess) -> int:
    """Its user knows what became of a damaged store."""
    many = acknowledge_notices(engine_scope(console).store_folder)
    await print_lines(console, "acknowledged" if many else "there is nothing to acknowledge")
    return 0


async def run_engine_logs(lines: int, console: Console, home: HostAccess) -> int:
    """The end of its log."""
    folder = engine_scope(console).store_folder
    text: list[str] = []
    for name in LOGS:
        file = folder / name
        if file.exists():
            text += file.read_text(errors="replace").splitlines()
    if text:
        await print_lines(console, "\n".join(text[-lines:]))
    return 0
