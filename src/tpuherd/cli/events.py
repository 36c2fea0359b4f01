"""`herd events`: shows what happened, and why."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from tpuherd.cli.formats import Moment
from tpuherd.cli.parsed_command import ParsedCommand, make_parsed_command
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.views.event_lines import event_json, event_line
from tpuherd.views.printable import json_text

if TYPE_CHECKING:
    from tpuherd.cli.store_session import StoreSession
    from tpuherd.commands.console import Console
    from tpuherd.commands.host_access import HostAccess

LAST = 200
LOOK_S = 0.2


@click.command()
@click.argument("name", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events.")
@click.option(
    "--since", type=Moment(), help="Only from this time on: 10m (ago), 12:30 or 2026-01-31T12:30."
)
@click.option("--all", "all_", is_flag=True, help="Also show earlier jobs of this name.")
@click.option("--json", "json_", is_flag=True, help="Print a line of JSON for each event.")
def events(
    name: str | None, follow: bool, since: float | None, all_: bool, json_: bool
) -> ParsedCommand:
    """Show what happened to a job (gpt), a slot (gpt-0) or everything, and why.

    By default, it shows the last 200 events; for a job, only those since it was last submitted.
    """
    asked = EventsOptions(name=name, follow=follow, since=since, all_=all_, json_=json_)
    return make_parsed_command("herd events", partial(run_events, asked))


@dataclass(frozen=True, kw_only=True, slots=True)
class EventsOptions:
    name: str | None
    follow: bool
    since: float | None
    all_: bool  #: also of earlier jobs of the same name
    json_: bool


async def run_events(asked: EventsOptions, console: "Console", home: "HostAccess") -> int:
    from tpuherd.cli.store_session import open_store_session
    from tpuherd.jobs.job_queries import last_submission, resolve_name

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


async def print_event(here: "StoreSession", seq: int, event: HistoryEvent, *, json_: bool) -> None:
    from tpuherd.cli.store_session import format_moment

    if json_:
        await here.console.write(f"{json_text(event_json(seq, event))}\n".encode(errors="replace"))
        return
    when, name = format_moment(event.at, here.now), event.slot or event.job or "-"
    style = here.console.screen_style
    if style is None:
        await here.console.print_text(f"{when}  {name:<12}  {event_line(event)}")
    else:
        from tpuherd.views.event_screen import event_screen

        text = event_screen(when, event, name=name, **style)
        await here.console.print_text(text, coloured=True)
