"""What `herd run` does: reads the page, has it wished, and shows what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tpuherd.cli.job_options import Said, told
from tpuherd.cli.job_session import desk, dollars, say, say_json
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.errors import NotAllowed, Unfit
from tpuherd.exit_status import ABORTED, MISUSED
from tpuherd.jobfile.expand_slots import price_range
from tpuherd.jobfile.job_diff import Change, difference
from tpuherd.jobfile.read_job import document
from tpuherd.jobfile.yaml_with_lines import Page
from tpuherd.jobs.submit import Made, Ready, ready, wished
from tpuherd.model.search import Search, many
from tpuherd.model.slots_and_plan import Goal, Offer
from tpuherd.model.stored_job import Wish
from tpuherd.sweeps import search_space
from tpuherd.views.format_text import count_slices, lined

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
    waits: bool = False  #: for its end

    @property
    def name(self) -> str:
        """Who says it."""
        if self.by:
            return self.by
        return "herd run" if self.goal is Goal.RUN else "herd up"


async def wish(asked: Asked, console: Console, home: Home) -> int:
    """Refused, with nothing stored, where nobody is logged in or may look at the project."""
    try:
        return await submit(asked, console, home)
    except NotAllowed as error:
        raise Unfit(error.sentence, hint=error.hint) from error


async def submit(asked: Asked, console: Console, home: Home) -> int:
    """Everything that can be wrong is found before anything is stored."""
    page, base = told(asked.said, console.folder)
    async with desk(console, home, asked.name, yes=asked.yes, begins=not asked.dry) as here:
        found = await ready(page, base, asked.goal, here)
        if found is None:
            return await mistaken(page, asked.said.file or "", asked.name, console)
        if asked.dry:
            return await shown(asked, found, here.store.wishes().get(found.job.name), console)
        made = await wished(found, here, offers_table(found.offers))
        if made is None:
            return ABORTED
        await reported(asked, made, found, console)
    if asked.goal is not Goal.RUN:
        return 0
    return await stay_or_leave(asked, found.job.name, console, home)


async def stay_or_leave(asked: Asked, job: str, console: Console, home: Home) -> int:
    """Follow the job, wait for it, or say how to do that later."""
    if asked.follow or (asked.follow is None and not asked.waits and console.terminal(1)):
        from tpuherd.cli.follow import follow

        return await follow(job, console, home)
    if asked.waits:
        from tpuherd.cli.wait_do import waited

        return await waited((job,), None, False, console, home)
    if asked.follow is None and not asked.json_ and console.said.loud >= 0:
        await console.tell(
            f"{asked.name}: detached, as there is no terminal: `herd wait {job}` waits for its end,"
            f" `herd logs {job} -f` shows its output; --follow or --wait stays from the start"
        )
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
    await say(console, f"{offers_table(found.offers)}\n")
    await say(console, f"{count_copies(found)}{found.job.name}{each(found)}: {price(found)}")
    for line in change.lines:
        await say(console, f"  {line}")
    if found.job.sweep is not None:
        await say(console, f"\n{trials_table(found.job.sweep)}")
    if not found.granted:
        await console.tell(f"{asked.name}: no grants are known: you would be asked first")
    return 0


def trials_table(search: Search) -> str:
    """The first trials, where nothing has to be learnt for them."""
    all_ = f"{many(search)} trials"
    if search.method == "bayes":
        return f"{all_}, each by what those before it have told"
    first = range(min(TRIALS_SHOWN, many(search)))
    rows = [search_space.suggested(search, number) for number in first]
    names = list(search.parameters)
    lines = [(str(at), *(str(row[name]) for name in names)) for at, row in enumerate(rows)]
    more = f"; the first {len(rows)}" if len(rows) < many(search) else ""
    return f"{all_}{more}:\n{lined([('TRIAL', *names), *lines])}"


def summary(found: Ready, change: Change) -> dict[str, object]:
    """What both kinds of JSON have."""
    prices = price_range(found.slots)
    return {
        "slots": [slot.name for slot in found.slots],
        "per_hour": {
            "least": prices.least,
            "most": prices.most,
            "unknown_in": list(prices.unknown_in),
        },
        "trials": many(found.job.sweep) if found.job.sweep else None,
        "difference": list(change.lines),
        "needs": change.needs,
    }


def price(found: Ready) -> str:
    """$6.12 to $9.36 an hour; unknown in us-east1-c"""
    prices = price_range(found.slots)
    if prices.least is None:
        return "an unknown price"
    upto = "" if prices.least == prices.most else f" to {dollars(prices.most)}"
    zones = f"; unknown in {', '.join(prices.unknown_in)}" if prices.unknown_in else ""
    return f"{dollars(prices.least)}{upto} an hour{zones}"


def size_prefix(found: Ready) -> str:
    """3 ×, where there are several; 2 slices of, where they work together."""
    return count_copies(found) + count_slices(found.job.slices)


def count_copies(found: Ready) -> str:
    """3 ×, where there are several."""
    return f"{len(found.slots)} × " if len(found.slots) > 1 else ""


def each(found: Ready) -> str:
    """, 2 slices each"""
    return f", {found.job.slices} slices each" if found.job.slices > 1 else ""


async def reported(asked: Asked, made: Made, found: Ready, console: Console) -> None:
    """One line."""
    if asked.json_:
        about = {"job": made.wish.job, "did": made.word, "revision": made.wish.revision}
        await say_json(console, {**about, **summary(found, made.change)})
    elif console.said.loud >= 0:
        best = found.offers[0]
        zones = len({one.zone for one in found.offers})
        where = best.zone if zones == 1 else f"one of {zones} zones"
        trials = f", {many(found.job.sweep)} trials" if found.job.sweep else ""
        what = f"{size_prefix(found)}{best.type} {best.tier} in {where}, {price(found)}{trials}"
        await console.tell(f"{made.wish.job} {WORDS[made.word]}: {what}")
