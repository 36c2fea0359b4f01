"""What `herd set` and `herd scale` do: other words in a job's document."""

from dataclasses import dataclass

from tpuherd.cli.job_options import put, setting
from tpuherd.cli.job_session import desk, say, say_json
from tpuherd.cli.submit_job import mistaken
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import Home
from tpuherd.exit_status import ABORTED
from tpuherd.jobfile.yaml_with_lines import Page
from tpuherd.jobs.submit import Made, changed


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is wanted."""

    name: str
    words: tuple[str, ...]
    yes: bool
    json_: bool


async def change(asked: Setting, said_by: str, console: Console, home: Home) -> int:
    """Read, judge, show, ask, write."""
    async with desk(console, home, said_by, yes=asked.yes) as here:
        page = Page(value=dict(here.wish(asked.name).document))
        for word in asked.words:
            where, value = setting(word)
            put(page, where, [value])
        made = await changed(asked.name, page, here)
        if page.mistakes:
            return await mistaken(page, "", said_by, console)
        if made is None:
            return ABORTED
    await told(asked, made, console)
    return 0


async def told(asked: Setting, made: Made, console: Console) -> None:
    """What became of it."""
    change, wish = made.change, made.wish
    if asked.json_:
        about = {"job": wish.job, "revision": wish.revision, "difference": list(change.lines)}
        await say_json(console, {**about, "needs": change.needs, "document": wish.document})
    elif not change.lines:
        await console.tell(f"{wish.job} is so already")
    else:
        await say(console, "\n".join((*change.lines, change.sentence)))
