"""What `herd ls`, `herd status`, `herd why` and `herd capacity` do."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tpuherd.cli.store_session import open_store_session
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.jobs.job_queries import capacity_rows, job_rows, job_status, slot_reasons, why_as_json
from tpuherd.views.capacity_table import capacity_text
from tpuherd.views.event_lines import event_line
from tpuherd.views.format_text import format_span
from tpuherd.views.job_pages import job_text, jobs_text, why_text
from tpuherd.views.printable import show_values
from tpuherd.views.trouble_line import trouble_rows


async def run_ls(json_: bool, console: Console, home: HostAccess) -> int:
    """All jobs."""
    async with open_store_session(console) as here:
        await here.print_troubles(apart=json_)
        rows = job_rows(here.store, here.now)
        await here.print_content(rows, partial(jobs_text, **console.table_style), json_=json_)
    return 0


async def run_status(name: str, json_: bool, console: Console, home: HostAccess) -> int:
    """One job, or one slot."""
    async with open_store_session(console) as here:
        page = job_status(here.store, here.now, name)
        page["troubles"] = trouble_rows(here.current_troubles())
        if not json_:
            await here.print_troubles()
        await here.print_content(page, partial(job_text, **console.table_style), json_=json_)
    return 0


async def run_why(name: str, json_: bool, console: Console, home: HostAccess) -> int:
    """What it does or waits for."""
    async with open_store_session(console) as here:
        now = here.now
        _, recent, engine = slot_reasons(here.store, now, name)
        lines = [
            (f"{format_span(max(0.0, now - one.at))} ago", event_line(one)) for _, one in recent
        ]
        content = why_as_json(here.store, now, name)
        content["troubles"] = trouble_rows(here.current_troubles())
        lines = show_values(lines)
        if not json_:
            await here.print_troubles()

        def text(told: Mapping[str, Any]) -> str:
            return why_text(told["slots"], lines, engine=engine)

        await here.print_content(content, text, json_=json_)
    return 0


async def run_capacity(json_: bool, console: Console, home: HostAccess) -> int:
    """What was learnt of zones."""
    async with open_store_session(console) as here:
        rows = capacity_rows(here.store, here.now)
        await here.print_content(rows, partial(capacity_text, **console.table_style), json_=json_)
    return 0
