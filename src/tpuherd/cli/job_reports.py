"""What `herd ls`, `herd status`, `herd why` and `herd capacity` do."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tpuherd.cli.store_session import reading
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.jobs.job_queries import capacity, jobs, status, why, why_told
from tpuherd.views.capacity_table import capacity_text
from tpuherd.views.event_lines import line
from tpuherd.views.format_text import span
from tpuherd.views.job_pages import job_text, jobs_text, why_text
from tpuherd.views.printable import show_values
from tpuherd.views.trouble_line import trouble_rows


async def listed(json_: bool, console: Console, home: Home) -> int:
    """All jobs."""
    async with reading(console) as here:
        await here.show_troubles(apart=json_)
        rows = jobs(here.store, here.now)
        await here.show(rows, partial(jobs_text, **console.style), json_=json_)
    return 0


async def shown(name: str, json_: bool, console: Console, home: Home) -> int:
    """One job, or one slot."""
    async with reading(console) as here:
        page = status(here.store, here.now, name)
        page["troubles"] = trouble_rows(here.troubles())
        if not json_:
            await here.show_troubles()
        await here.show(page, partial(job_text, **console.style), json_=json_)
    return 0


async def explained(name: str, json_: bool, console: Console, home: Home) -> int:
    """What it does or waits for."""
    async with reading(console) as here:
        now = here.now
        _, recent, engine = why(here.store, now, name)
        lines = [(f"{span(max(0.0, now - one.at))} ago", line(one)) for _, one in recent]
        content = why_told(here.store, now, name)
        content["troubles"] = trouble_rows(here.troubles())
        lines = show_values(lines)
        if not json_:
            await here.show_troubles()

        def text(told: Mapping[str, Any]) -> str:
            return why_text(told["slots"], lines, engine=engine)

        await here.show(content, text, json_=json_)
    return 0


async def learnt(json_: bool, console: Console, home: Home) -> int:
    """What was learnt of zones."""
    async with reading(console) as here:
        rows = capacity(here.store, here.now)
        await here.show(rows, partial(capacity_text, **console.style), json_=json_)
    return 0
