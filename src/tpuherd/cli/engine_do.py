"""What `herd engine` does."""

from datetime import UTC, datetime

from tpuherd.cli.job_session import say, say_json
from tpuherd.cli.store_session import tell_notices
from tpuherd.clock import WallClock
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.exit_status import UNREACHED
from tpuherd.jobs import engine_control
from tpuherd.model.trouble import Trouble
from tpuherd.settings import project_access
from tpuherd.store.set_aside import acknowledge
from tpuherd.views.trouble_line import trouble_line

LOGS = ("engine.log.1", "engine.log")
NONE = "no engine runs; the next command on a job that wants one starts it"


def scope(console: Console) -> project_access.Scope:
    """What is meant; the engine of a world that is gone can be ended, too."""
    return project_access.scope(console.environ, world=console.said.world)


async def started(console: Console, home: Home) -> int:
    """Begin it."""
    found = await engine_control.start(
        project_access.place(console.environ, world=console.said.world), console.environ
    )
    await say(console, f"the engine runs: pid {found['pid']} on {found['host']}")
    return 0


async def stopped(console: Console, home: Home) -> int:
    """End it."""
    ended = await engine_control.stop(scope(console))
    await say(console, "the engine has ended" if ended else "no engine runs")
    return 0


async def shown(json_: bool, console: Console, home: Home) -> int:
    """How it is."""
    found = engine_control.state(scope(console))
    await tell_notices(console, scope(console).store)
    for one in found["troubles"]:
        await console.tell(trouble_line(Trouble(**one), WallClock().now()))
    if json_:
        await say_json(console, found)
    elif found["running"]:
        until = datetime.fromtimestamp(found["lease_until"], UTC).strftime("%H:%M:%S")
        text = f"pid {found['pid']} on {found['host']}, epoch {found['epoch']}"
        await say(console, f"{text}, lease until {until} UTC, for {found['place']}")
    else:
        await console.tell(f"herd engine status: {NONE}")
    return 0 if found["running"] else UNREACHED


async def acknowledged(console: Console, home: Home) -> int:
    """Its user knows what became of a damaged store."""
    many = acknowledge(scope(console).store)
    await say(console, "acknowledged" if many else "there is nothing to acknowledge")
    return 0


async def told(lines: int, console: Console, home: Home) -> int:
    """The end of its log."""
    folder = scope(console).store
    text: list[str] = []
    for name in LOGS:
        file = folder / name
        if file.exists():
            text += file.read_text(errors="replace").splitlines()
    if text:
        await say(console, "\n".join(text[-lines:]))
    return 0
