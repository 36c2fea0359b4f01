"""What `herd sweep status`, `herd sweep best` and `herd sweep plot` do."""

from functools import partial
from typing import Any

from tpuherd.cli.store_session import reading
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.errors import NotFound
from tpuherd.jobs.sweep_queries import swept
from tpuherd.views.printable import show_values
from tpuherd.views.sweep_plot import sketch, svg
from tpuherd.views.sweep_table import best_text, sweep_csv, sweep_text


async def listed(name: str, json_: bool, csv_: bool, console: Console, home: Home) -> int:
    """All trials."""
    async with reading(console) as here:
        page, _ = swept(here.store, here.now, name)
        text = write_csv if csv_ else partial(sweep_text, **console.style)
        await here.show(page, text, json_=json_)
    return 0


def write_csv(page: Any) -> str:
    """A line for each trial."""
    return sweep_csv(page)[:-1]


async def chosen(name: str, json_: bool, console: Console, home: Home) -> int:
    """The best one."""
    async with reading(console) as here:
        page, _ = swept(here.store, here.now, name)
        row = next((one for one in page["each"] if one["trial"] == page["best"]), None)
        if row is None:
            raise NotFound(f"no trial of {page['sweep']} is complete and has told a value yet")
        await here.show(row, partial(best_text, show_values(page)), json_=json_)
    return 0


async def drawn(name: str, picture: bool, console: Console, home: Home) -> int:
    """As a picture, or in letters."""
    async with reading(console) as here:
        page, search = swept(here.store, here.now, name)
        columns = console.size()[1]

        def text(page: Any) -> str:
            return svg(page, search)[:-1] if picture else sketch(page, search, columns)

        await here.show(page, text, json_=False)
    return 0
