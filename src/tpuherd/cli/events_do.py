"""What `herd events` does."""

from dataclasses import dataclass

from tpuherd.cli.store_session import StoreSession, format_moment, open_store_session
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.jobs.job_queries import last_submission, resolve_name
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.views.event_lines import event_json, event_line
from tpuherd.views.printable import json_text

LAST = 200
LOOK_S = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class EventsOptions:
    """What a user wants to see."""

    name: str | None
    follow: bool
    since: float | None
    all_: bool  #: also of earlier jobs of the same name
    json_: bool


async def run_events(asked: EventsOptions, console: Console, home: HostAccess) -> int:
    """Those there are, and with --follow those that come."""
    name, since, json_ = asked.name, asked.since, asked.json_
    async with open_store_session(console) as here:
        job, slot = (None, None) if name is None else resolve_name(here.store, name)
        await here.print_troubles(apart=json_)
        begun = None if job is None or asked.all_ else last_submission(here.store, job)
        last = LAST if since is None else None
        seen = 0 if begun is None else begun[0] - 1
        for seq, event in here.store.read_events(
            after=seen, job=job, slot=slot, limit=last, newest=True
        ):
            seen = seq
            if since is None or event.at >= since:
                await print_event(here, seq, event, json_=json_)
        while asked.follow:
            await console.flush()
            await here.clock.sleep(LOOK_S)
            for seq, event in here.store.read_events(after=seen, job=job, slot=slot):
                seen = seq
                await print_event(here, seq, event, json_=json_)
    return 0


async def print_event(here: StoreSession, seq: int, event: HistoryEvent, *, json_: bool) -> None:
    """One line."""
    if json_:
        await here.console.write(f"{json_text(event_json(seq, event))}\n".encode(errors="replace"))
        return
    when = format_moment(event.at, here.now)
    await here.console.print_text(
        f"{when}  {event.slot or event.job or '-':<12}  {event_line(event)}"
    )
