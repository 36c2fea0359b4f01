"""What `herd down` does: says what is lost, drops it, and waits until nothing is left."""

from collections.abc import Sequence
from dataclasses import dataclass

from tpuherd.cli.job_session import open_job_session, print_json, print_lines
from tpuherd.commands.console import Console
from tpuherd.commands.host_access import HostAccess
from tpuherd.exit_status import ABORTED, TIMED_OUT
from tpuherd.jobs import engine_control
from tpuherd.jobs.cloud_inventory import CloudInventory, survey_cloud
from tpuherd.jobs.open_project import Session
from tpuherd.jobs.remove import removal_preview, remove_jobs, wait_until_gone
from tpuherd.targets import fold_names

NAME = "herd down"
FIRST_S, TELL_S = 20.0, 60.0  #: what is waited for is said after so long, then so often


@dataclass(frozen=True, kw_only=True, slots=True)
class DownOptions:
    """What is wanted."""

    names: tuple[str, ...]  #: none: all
    yes: bool
    waits: bool
    json_: bool
    timeout_s: float | None = None


async def run_down(asked: DownOptions, console: Console, home: HostAccess) -> int:
    """Ask, record, wait."""
    async with open_job_session(console, home, NAME, yes=asked.yes) as here:
        seen = await survey_cloud(here)
        found = removal_preview(asked.names, seen, here)
        if found.jobs:
            details = "\n".join(f"  {line}" for line in found.losses)
            if not await here.talk.ask_confirmation(found.question, details):
                return ABORTED
            await remove_jobs(found, seen, here)
            engine_control.ensure_engine(here.place, console.environ)
        end = WaitResult()
        if asked.waits:
            end = await wait_and_report(found.jobs, asked.timeout_s, here, console)
    await print_down_result(asked, found.jobs, end, console)
    return TIMED_OUT if end.waits_for else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitResult:
    """How the waiting ended: with a proof, with what was waited for in vain, or not begun."""

    proof: CloudInventory | None = None
    waits_for: str = ""


async def wait_and_report(
    jobs: Sequence[str], timeout_s: float | None, here: Session, console: Console
) -> WaitResult:
    """Look until nothing of them is listed, in zones that all answered, or for so long."""
    begun, due = here.clock.now(), here.clock.now() + FIRST_S
    async for what, seen in wait_until_gone(jobs, here):
        if not what:
            return WaitResult(proof=seen)
        now = here.clock.now()
        if timeout_s is not None and now >= begun + timeout_s:
            return WaitResult(waits_for=what)
        if now >= due and console.said.loud >= 0:
            await here.talk.show_message(what)
            due = now + TELL_S
        engine_control.ensure_engine(here.place, console.environ)
    raise AssertionError("it looks until it is so")


async def print_down_result(
    asked: DownOptions, jobs: Sequence[str], end: WaitResult, console: Console
) -> None:
    """What is proved."""
    proof = end.proof
    if asked.json_:
        zones = None if proof is None else sorted(proof.survey.zones)
        content = {"down": list(jobs), "gone": proof is not None, "zones": zones}
        await print_json(console, {**content, "waits_for": end.waits_for})
    elif not jobs:
        await print_lines(console, "there is nothing to take down")
    elif end.waits_for:
        sentence = f"{NAME}: {end.waits_for}; the engine goes on, and `herd down` waits again"
        await console.print_notice(sentence)
    elif proof is None:
        await print_lines(
            console, f"{fold_names(jobs)}: dropped; the engine gives back what is there"
        )
    else:
        many = len(proof.survey.zones)
        await print_lines(console, f"{fold_names(jobs)}: nothing is left; {many} zones were listed")
