"""What `herd sweep status`, `herd sweep best` and `herd sweep plot` do."""

from tpuherd.cli.console import Console
from tpuherd.cli.errand import Home
from tpuherd.cli.reading import reading
from tpuherd.core.view_sweep import best_text, sweep_csv, sweep_text
from tpuherd.core.view_sweep_plot import sketch, svg
from tpuherd.desk.sweeps import swept
from tpuherd.ports import NotFound


async def listed(name: str, json_: bool, csv_: bool, console: Console, home: Home) -> int:
    """All trials."""
    with reading(console) as here:
        page, _ = swept(here.store, here.now, name)
        text = sweep_csv(page)[:-1] if csv_ else sweep_text(page, colour=console.coloured(1))
        await here.show(page, text, json_=json_)
    return 0


async def chosen(name: str, json_: bool, console: Console, home: Home) -> int:
    """The best one."""
    with reading(console) as here:
        page, _ = swept(here.store, here.now, name)
        row = next((one for one in page["each"] if one["trial"] == page["best"]), None)
        if row is None:
            raise NotFound(f"no trial of {page['sweep']} is complete and has told a value yet")
        await here.show(row, best_text(page, row), json_=json_)
    return 0


async def drawn(name: str, picture: bool, console: Console, home: Home) -> int:
    """As a picture, or in letters."""
    with reading(console) as here:
        page, search = swept(here.store, here.now, name)
        text = svg(page, search)[:-1] if picture else sketch(page, search, console.size()[1])
        await here.show(page, text, json_=False)
    return 0
