"""What `herd engine` does."""

from datetime import UTC, datetime

from tpuherd import app
from tpuherd.cli import engine_process
from tpuherd.cli.console import Console
from tpuherd.cli.desk import say, say_json
from tpuherd.cli.errand import UNREACHED, Home
from tpuherd.store.database import home as store_home

LOGS = ("engine.log.1", "engine.log")
NONE = "no engine runs; the next command on a job that wants one starts it"


def place(console: Console) -> app.Place:
    """The one that is meant."""
    return app.place(console.environ, world=console.said.world)


async def started(console: Console, home: Home) -> int:
    """Begin it."""
    found = await engine_process.start(place(console), console.environ)
    await say(console, f"the engine runs: pid {found['pid']} on {found['host']}")
    return 0


async def stopped(console: Console, home: Home) -> int:
    """End it."""
    ended = await engine_process.stop(place(console))
    await say(console, "the engine has ended" if ended else "no engine runs")
    return 0


async def shown(json_: bool, console: Console, home: Home) -> int:
    """How it is."""
    found = engine_process.state(place(console))
    if json_:
        await say_json(console, found)
    elif found["running"]:
        until = datetime.fromtimestamp(found["lease_until"], UTC).strftime("%H:%M:%S")
        text = f"pid {found['pid']} on {found['host']}, epoch {found['epoch']}"
        await say(console, f"{text}, lease until {until} UTC, for {found['place']}")
    else:
        await console.tell(f"herd engine status: {NONE}")
    return 0 if found["running"] else UNREACHED


async def told(lines: int, console: Console, home: Home) -> int:
    """The end of its log."""
    where = place(console)
    folder = store_home(where.folders.state, world=where.world, project=where.project)
    text: list[str] = []
    for name in LOGS:
        file = folder / name
        if file.exists():
            text += file.read_text(errors="replace").splitlines()
    if text:
        await say(console, "\n".join(text[-lines:]))
    return 0
