"""Random histories from a seed: jobs, scripts, weather, kills, changes, and a calm end."""

from collections.abc import Callable
from dataclasses import replace

from tests.simulated.engine_faults import (
    CLOCKS,
    LINK_FAULTS,
    LinkFault,
    Moment,
    cut,
    offs,
    points,
    quiet,
    thaws,
)
from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_lifecycles import LIFECYCLES
from tests.simulated.engine_programs import Crash, Script
from tests.simulated.engine_world import ZONES
from tpuherd.model.slots_and_plan import Goal, RequestKind
from tpuherd_sim.model.world_parts import Dice
from tpuherd_sim.weather.storm import storm_steps

NAMES = ("gpt", "gpt2", "bert")  #: one is the begin of another
LIMITS = {"stall_s": 180.0, "first_step_s": 400.0, "stalls": None}
HOURS = 1.5
HASTE = 4.0  #: of the cloud in lifecycles: waiting for it is not what is tested there
PLOTS_S = (60.0, 420.0)  #: between two strokes of mischief


def script(dice: Dice) -> Script:
    """What a job does, by chance; it comes to its end at the third attempt at the latest."""
    crashes = {}
    if dice.random_fraction() < 0.3:
        exit = (1, 2, 137)[int(dice.random_fraction() * 3)]
        crashes[1] = Crash(
            step=1 + int(dice.random_fraction() * 6),
            worker=int(dice.random_fraction() * 2),
            exit=exit,
        )
    if dice.random_fraction() < 0.15:
        crashes[2] = Crash(step=2)
    return Script(
        steps=6 + int(dice.random_fraction() * 60),
        step_s=dice.random_between(4.0, 20.0),
        save_every=2 + int(dice.random_fraction() * 6),
        save_s=dice.random_between(0.5, 6.0),
        setup_s=dice.random_between(1.0, 40.0),
        on_term=("save", "die", "ignore")[int(dice.random_fraction() * 3)],
        crashes=crashes,
        hangs={1: 3} if dice.random_fraction() < 0.15 else {},
        chips_s=dice.random_between(0.0, 25.0) if dice.random_fraction() < 0.3 else 0.0,
        daemons=int(dice.random_fraction() < 0.2),
        says_complete=dice.random_fraction() < 0.6,
        reports=dice.random_fraction() < 0.8,
    )


def random_job(dice: Dice, job: str) -> SimJob:
    """A random job."""
    first = int(dice.random_fraction() * 3)
    return SimJob(
        job=job,
        goal=Goal.RUN if dice.random_fraction() < 0.7 else Goal.IDLE,
        copies=1 + int(dice.random_fraction() * 2.5),
        zones=ZONES[first : first + 1 + int(dice.random_fraction() * 3)],
        kind=RequestKind.QUEUED if dice.random_fraction() < 0.75 else RequestKind.DIRECT,
        outputs=dice.random_fraction() < 0.3,
        limits=LIMITS,
    )


def changed(dice: Dice, known: SimJob) -> SimJob:
    """A second thought."""
    thoughts: tuple[Callable[[], SimJob], ...] = (
        lambda: replace(known, copies=1 + int(dice.random_fraction() * 3)),
        lambda: replace(known, code=f"c{dice.thrown}"),
        lambda: replace(known, zones=ZONES),
        lambda: replace(known, goal=Goal.IDLE if known.goal is Goal.RUN else Goal.RUN),
        lambda: replace(known, node=f"n{dice.thrown}"),
    )
    return thoughts[int(dice.random_fraction() * len(thoughts))]()


async def stroke(play: EngineHarness, dice: Dice, jobs: dict[str, SimJob]) -> None:
    """One thing that goes wrong besides the weather, or somebody's second thought."""
    what = dice.random_fraction()
    machines = play.sim.machines()
    machine = machines[int(dice.random_fraction() * len(machines))] if machines else None
    if what < 0.25:
        play.kill()
    elif what < 0.3:
        play.clock.set(tuple(CLOCKS.values())[int(dice.random_fraction() * len(CLOCKS))])
    elif what < 0.4 and machine is not None:
        machine.kill_agent()
    elif what < 0.47 and machine is not None and machine.lines:
        line = next(iter(machine.lines.values()))
        hows = ("forgets", "reboot-forgets", "stuck", "freeze", "lies")
        LINK_FAULTS[hows[int(dice.random_fraction() * len(hows))]](play, line)
    elif what < 0.65 and machine is not None:
        for line in list(machine.lines.values()):
            cut(play, line)
    elif what < 0.75 and jobs:
        job = sorted(jobs)[int(dice.random_fraction() * len(jobs))]
        jobs[job] = changed(dice, jobs[job])
        play.submit(jobs[job])
    elif what < 0.8 and len(jobs) > 1:
        job = sorted(jobs)[int(dice.random_fraction() * len(jobs))]
        del jobs[job]
        play.down(job)
    elif what < 0.85:
        play.wanted = False
        play.kill()
        await play.advance(dice.random_between(60.0, 1200.0))
        play.wanted = True
    elif machine is not None:
        kind = ("reboot", "preempt", "crash")[int(dice.random_fraction() * 3)]
        place = f"{machine.view.zone}/{machine.view.node}"
        play.sim.weather(kind, target=place if kind == "preempt" else f"{place}/*")


def stormy(seed: int, hours: float = HOURS) -> list[str]:
    """What was wrong in the history of a seed."""
    dice = Dice(seed=seed)
    names = NAMES[: 1 + int(dice.random_fraction() * 3)]
    scripts = {job: script(dice) for job in names}
    strength = dice.random_between(2.0, 16.0)

    async def plot(play: EngineHarness) -> list[str]:
        play.watch.spare_s = 3600.0  # zones that don't answer for long can't be cleared
        jobs = {job: random_job(dice, job) for job in names}
        steps = storm_steps(seed, ZONES, hours, strength, nodes=4)
        play.sim.scenario(steps)
        for one in jobs.values():
            play.submit(one)
            await play.advance(dice.random_between(0.0, 120.0))
        end = play.sim.now() + hours * 3600.0
        while play.sim.now() < end:
            await play.advance(dice.random_between(*PLOTS_S))
            await stroke(play, dice, jobs)
        return await play.close(4 * 3600.0)

    found: list[str] = perform(plot, seed=seed, scripts=scripts)
    return found


def seen(lifecycle: str) -> LinkFault:
    """What is there to be struck in a lifecycle."""
    mischief, found = struck(lifecycle, frozenset())
    assert not found, f"{lifecycle} fails without any fault: {found}"
    return mischief


def struck(lifecycle: str, moments: frozenset[Moment]) -> tuple[LinkFault, list[str]]:
    """A lifecycle with faults at these moments: what was counted, and what was wrong."""
    chosen = LIFECYCLES[lifecycle]
    kept: list[LinkFault] = []

    async def plot(play: EngineHarness) -> list[str]:
        mischief = LinkFault(play=play, moments=moments)
        kept.append(mischief)
        await chosen.plot(play)
        mischief.plan = {}
        quiet(play.sim)
        return await play.close()

    found = perform(plot, scripts=chosen.scripts, haste=HASTE)
    return kept[0], found


def singles(lifecycle: str, each: int | None = None) -> list[Moment]:
    """All single faults of a lifecycle; with `each`, this many kinds at one moment, in turn."""
    history = seen(lifecycle)
    frozen = offs(history) + thaws(history) if LIFECYCLES[lifecycle].freezes else []
    return points(history, each) + frozen


def pairs(lifecycle: str, many: int, seed: int) -> list[frozenset[Moment]]:
    """This many pairs of them, by a seed; all if there are fewer."""
    dice = Dice(seed=seed)
    every = singles(lifecycle)
    return [
        frozenset(
            {
                every[int(dice.random_fraction() * len(every))],
                every[int(dice.random_fraction() * len(every))],
            }
        )
        for _ in range(many)
    ]
