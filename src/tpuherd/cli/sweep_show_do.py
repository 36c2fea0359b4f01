"""What `herd sweep status`, `herd sweep best` and `herd sweep plot` do."""

from functools import partial
from typing import Any

from tpuherd.cli.store_session import open_store_session
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.errors import NotFound
from tpuherd.jobs.sweep_queries import sweep_status
from tpuherd.views.printable import show_values
from tpuherd.views.sweep_plot import draw_sketch, draw_svg
from tpuherd.views.sweep_table import best_text, sweep_csv, sweep_text


async def run_sweep_status(
    name: str, json_: bool, csv_: bool, console: Console, home: HostAccess
) -> int:
    """All trials."""
    async with open_store_session(console) as here:
        page, _ = sweep_status(here.store, here.now, name)
        text = csv_text if csv_ else partial(sweep_text, **console.table_style)
        await here.print_content(page, text, json_=json_)
    return 0


def csv_text(page: Any) -> str:
    """A line for each trial."""
    return sweep_csv(page)[:-1]


async def run_sweep_best(name: str, json_: bool, console: Console, home: HostAccess) -> int:
    """The best one."""
    async with open_store_session(console) as here:
        page, _ = sweep_status(here.store, here.now, name)
        row = next((one for one in page["each"] if one["trial"] == page["best"]), None)
        if row is None:
            raise NotFound(f"no trial of {page['sweep']} is complete and has told a value yet")
        await here.print_content(row, partial(best_text, show_values(page)), json_=json_)
    return 0


async def run_sweep_plot(name: str, picture: bool, console: Console, home: HostAccess) -> int:
    """As a picture, or in letters."""
    async with open_store_session(console) as here:
        page, search = sweep_status(here.store, here.now, name)
        columns = console.terminal_size()[1]

        def text(page: Any) -> str:
            return draw_svg(page, search)[:-1] if picture else draw_sketch(page, search, columns)

        await here.print_content(page, text, json_=False)
    return 0
