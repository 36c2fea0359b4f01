"""What `herd ls`, `herd status`, `herd why` and `herd capacity` do."""

from tpuherd.cli.console import Console
from tpuherd.cli.errand import Home
from tpuherd.cli.reading import reading
from tpuherd.core.view_capacity import capacity_text
from tpuherd.core.view_events import line
from tpuherd.core.view_pages import job_text, jobs_text, why_text
from tpuherd.core.view_text import span
from tpuherd.desk.reading import capacity, jobs, status, why, why_told


async def listed(json_: bool, console: Console, home: Home) -> int:
    """All jobs."""
    with reading(console) as here:
        rows = jobs(here.store, here.now)
        await here.show(rows, jobs_text(rows, colour=console.coloured(1)), json_=json_)
    return 0


async def shown(name: str, json_: bool, console: Console, home: Home) -> int:
    """One job, or one slot."""
    with reading(console) as here:
        page = status(here.store, here.now, name)
        await here.show(page, job_text(page, colour=console.coloured(1)), json_=json_)
    return 0


async def explained(name: str, json_: bool, console: Console, home: Home) -> int:
    """What it does or waits for."""
    with reading(console) as here:
        now = here.now
        slots, recent, engine = why(here.store, now, name)
        lines = [(f"{span(max(0.0, now - one.at))} ago", line(one)) for _, one in recent]
        content = why_told(slots, recent, engine)
        await here.show(content, why_text(slots, lines, engine=engine), json_=json_)
    return 0


async def learnt(json_: bool, console: Console, home: Home) -> int:
    """What was learnt of zones."""
    with reading(console) as here:
        rows = capacity(here.store, here.now)
        await here.show(rows, capacity_text(rows, colour=console.coloured(1)), json_=json_)
    return 0
