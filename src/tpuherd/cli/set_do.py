"""What `herd set` and `herd scale` do: other words in a job's document."""

from dataclasses import dataclass

from tpuherd.cli.job_options import parse_setting, set_field
from tpuherd.cli.job_session import open_job_session, print_json, print_lines
from tpuherd.cli.submit_job import print_mistakes
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.exit_status import ABORTED
from tpuherd.jobfile.yaml_with_lines import YamlDocument
from tpuherd.jobs.submit import SubmitResult, change_job


@dataclass(frozen=True, kw_only=True, slots=True)
class SetOptions:
    """What is wanted."""

    name: str
    words: tuple[str, ...]
    yes: bool
    json_: bool


async def run_set(asked: SetOptions, said_by: str, console: Console, home: HostAccess) -> int:
    """Read, judge, show, ask, write."""
    async with open_job_session(console, home, said_by, yes=asked.yes) as here:
        page = YamlDocument(value=dict(here.get_job(asked.name).document))
        for word in asked.words:
            where, value = parse_setting(word)
            set_field(page, where, [value])
        made = await change_job(asked.name, page, here)
        if page.mistakes:
            return await print_mistakes(page, "", said_by, console)
        if made is None:
            return ABORTED
    await print_change(asked, made, console)
    return 0


async def print_change(asked: SetOptions, made: SubmitResult, console: Console) -> None:
    """What became of it."""
    change, wish = made.change, made.wish
    if asked.json_:
        about = {"job": wish.job, "revision": wish.revision, "difference": list(change.lines)}
        await print_json(console, {**about, "needs": change.needs, "document": wish.document})
    elif not change.lines:
        await console.print_notice(f"{wish.job} is so already")
    else:
        await print_lines(console, "\n".join((*change.lines, change.sentence)))
