"""What `herd events` does."""

from dataclasses import dataclass

from tpuherd.cli.store_session import Reading, moment, reading
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.jobs.job_queries import last_submitted, named
from tpuherd.model.slots_and_plan import Event
from tpuherd.views.event_lines import line, record
from tpuherd.views.printable import json_text

LAST = 200
LOOK_S = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a user wants to see."""

    name: str | None
    follow: bool
    since: float | None
    all_: bool  #: also of earlier jobs of the same name
    json_: bool


async def told(asked: Asked, console: Console, home: Home) -> int:
    """Those there are, and with --follow those that come."""
    name, since, json_ = asked.name, asked.since, asked.json_
    async with reading(console) as here:
        job, slot = (None, None) if name is None else named(here.store, name)
        await here.show_troubles(apart=json_)
        begun = None if job is None or asked.all_ else last_submitted(here.store, job)
        last = LAST if since is None else None
        seen = 0 if begun is None else begun[0] - 1
        for seq, event in here.store.events(
            after=seen, job=job, slot=slot, limit=last, newest=True
        ):
            seen = seq
            if since is None or event.at >= since:
                await put(here, seq, event, json_=json_)
        while asked.follow:
            await console.flush()
            await here.clock.sleep(LOOK_S)
            for seq, event in here.store.events(after=seen, job=job, slot=slot):
                seen = seq
                await put(here, seq, event, json_=json_)
    return 0


async def put(here: Reading, seq: int, event: Event, *, json_: bool) -> None:
    """One line."""
    if json_:
        await here.console.say(f"{json_text(record(seq, event))}\n".encode(errors="replace"))
        return
    when = moment(event.at, here.now)
    await here.console.show(f"{when}  {event.slot or event.job or '-':<12}  {line(event)}")
