"""What `herd run` does: reads the page, has it wished, and shows what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tpuherd.cli.console import Console
from tpuherd.cli.desk import desk, dollars, say, say_json
from tpuherd.cli.errand import ABORTED, MISUSED, Home
from tpuherd.cli.job_page import Said, told
from tpuherd.core import sweep_space
from tpuherd.core.changes import Change, difference
from tpuherd.core.expand import per_hour
from tpuherd.core.model import Goal, Offer
from tpuherd.core.spec import document
from tpuherd.core.spec_job import Search
from tpuherd.core.spec_yaml import Page
from tpuherd.core.view_text import lined
from tpuherd.core.wish import Wish
from tpuherd.desk.wishing import Made, Ready, ready, wished

TRIALS_SHOWN = 10
WORDS = {
    "made": "is wished",
    "again": "runs again",
    "resumed": "goes on",
    "changed": "is changed",
    "same": "is wished so already",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is wanted."""

    said: Said
    goal: Goal
    follow: bool | None
    yes: bool
    dry: bool
    json_: bool
    by: str = ""  #: the command, if it is another one

    @property
    def name(self) -> str:
        """Who says it."""
        if self.by:
            return self.by
        return "herd run" if self.goal is Goal.RUN else "herd up"


async def wish(asked: Asked, console: Console, home: Home) -> int:
    """Everything that can be wrong is found before anything is stored."""
    page, base = told(asked.said, console.folder)
    with desk(console, home, asked.name, yes=asked.yes, begins=not asked.dry) as here:
        found = await ready(page, base, asked.goal, here)
        if found is None:
            return await mistaken(page, asked.said.file or "", asked.name, console)
        if asked.dry:
            return await shown(asked, found, here.store.wishes().get(found.job.name), console)
        made = await wished(found, here, offers_table(found.offers))
        if made is None:
            return ABORTED
        await reported(asked, made, found, console)
    if asked.goal is Goal.RUN and (console.terminal(1) if asked.follow is None else asked.follow):
        from tpuherd.cli.follow import follow

        return await follow(found.job.name, console, home)
    return 0


async def mistaken(page: Page, file: str, name: str, console: Console) -> int:
    """All of them, a line each."""
    for one in sorted(page.mistakes, key=lambda each: each.line):
        await console.tell(f"{name}: {one.said(file)}")
    return MISUSED


def offers_table(offers: Sequence[Offer]) -> str:
    """Where a node may come from, the best liked first."""
    rows = [("TYPE", "ZONE", "TIER", "RUNTIME", "HOSTS", "PER HOUR")]
    for one in offers:
        price = dollars(one.price)
        rows.append((one.type, one.zone, one.tier, one.runtime, str(one.hosts), price))
    return lined(rows)


async def shown(asked: Asked, found: Ready, before: Wish | None, console: Console) -> int:
    """Only what it comes to."""
    change = difference(before.document, document(found.job)) if before else Change()
    if asked.json_:
        keys = ("zone", "type", "tier", "runtime", "hosts", "price", "rank")
        offers = [{key: getattr(one, key) for key in keys} for one in found.offers]
        about = {"job": document(found.job), "offers": offers, "granted": found.granted}
        await say_json(console, {**about, **summary(found, change)})
        return 0
    await say(
        console, f"{offers_table(found.offers)}\n\n{many(found)}{found.job.name}: {price(found)}"
    )
    for line in change.lines:
        await say(console, f"  {line}")
    if found.job.sweep is not None:
        await say(console, f"\n{trials_table(found.job.sweep)}")
    if not found.granted:
        await console.tell(f"{asked.name}: no grants are known: you would be asked first")
    return 0


def trials_table(search: Search) -> str:
    """The first trials, where nothing has to be learnt for them."""
    all_ = f"{sweep_space.many(search)} trials"
    if search.method == "bayes":
        return f"{all_}, each by what those before it have told"
    first = range(min(TRIALS_SHOWN, sweep_space.many(search)))
    rows = [sweep_space.suggested(search, number) for number in first]
    names = list(search.parameters)
    lines = [(str(at), *(str(row[name]) for name in names)) for at, row in enumerate(rows)]
    more = f"; the first {len(rows)}" if len(rows) < sweep_space.many(search) else ""
    return f"{all_}{more}:\n{lined([('TRIAL', *names), *lines])}"


def summary(found: Ready, change: Change) -> dict[str, object]:
    """What both kinds of JSON have."""
    least, most = per_hour(found.slots)
    return {
        "slots": [slot.name for slot in found.slots],
        "per_hour": {"least": least, "most": most},
        "trials": sweep_space.many(found.job.sweep) if found.job.sweep else None,
        "difference": list(change.lines),
        "needs": change.needs,
    }


def price(found: Ready) -> str:
    """$1.20 to $1.40 an hour"""
    least, most = per_hour(found.slots)
    if least is None:
        return "an unknown price"
    return f"{dollars(least)}{'' if least == most else f' to {dollars(most)}'} an hour"


def many(found: Ready) -> str:
    """3 ×, where there are several."""
    return f"{len(found.slots)} × " if len(found.slots) > 1 else ""


async def reported(asked: Asked, made: Made, found: Ready, console: Console) -> None:
    """One line."""
    if asked.json_:
        about = {"job": made.wish.job, "did": made.word, "revision": made.wish.revision}
        await say_json(console, {**about, **summary(found, made.change)})
    elif console.said.loud >= 0:
        best = found.offers[0]
        zones = len({one.zone for one in found.offers})
        where = best.zone if zones == 1 else f"one of {zones} zones"
        trials = f", {sweep_space.many(found.job.sweep)} trials" if found.job.sweep else ""
        what = f"{many(found)}{best.type} {best.tier} in {where}, {price(found)}{trials}"
        await console.tell(f"{made.wish.job} {WORDS[made.word]}: {what}")
