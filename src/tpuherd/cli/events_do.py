"""What `herd events` does."""

import json

from tpuherd.cli.console import Console
from tpuherd.cli.errand import Home
from tpuherd.cli.reading import Reading, moment, reading
from tpuherd.core.model import Event
from tpuherd.core.view_events import line, record
from tpuherd.desk.reading import named

LAST = 200
LOOK_S = 0.2


async def told(
    name: str | None, follow: bool, since: float | None, json_: bool, console: Console, home: Home
) -> int:
    """Those there are, and with --follow those that come."""
    with reading(console) as here:
        job, slot = (None, None) if name is None else named(here.store, name)
        last = LAST if since is None else None
        seen = 0
        for seq, event in here.store.events(job=job, slot=slot, limit=last, newest=True):
            seen = seq
            if since is None or event.at >= since:
                await put(here, seq, event, json_=json_)
        while follow:
            await console.flush()
            await here.clock.sleep(LOOK_S)
            for seq, event in here.store.events(after=seen, job=job, slot=slot):
                seen = seq
                await put(here, seq, event, json_=json_)
    return 0


async def put(here: Reading, seq: int, event: Event, *, json_: bool) -> None:
    """One line."""
    if json_:
        text = json.dumps(record(seq, event), ensure_ascii=False)
    else:
        text = f"{moment(event.at, here.now)}  {event.slot or event.job or '-':<12}  {line(event)}"
    await here.console.say(f"{text}\n".encode(errors="replace"))
