"""Storms over a lab: two users on one store share quotas, and try commands on each other's jobs."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.simulated.engine_harness import EngineHarness, perform
from tests.simulated.engine_jobs import SimJob
from tests.simulated.engine_storms import LIMITS, PLOTS_S, script, stroke
from tests.simulated.engine_world import ZONES
from tpuherd.async_api import PresetAnswers
from tpuherd.errors import InvalidInput, NotFound
from tpuherd.jobs import submit
from tpuherd.jobs.open_project import Session
from tpuherd.model.lab_shares import LabShares, SharedQuota
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.stored_job import StoredJob
from tpuherd.planner.fair_share import KEEP_S
from tpuherd_sim.model.world_parts import Dice
from tpuherd_sim.weather.storm import storm_steps

JOBS = {"ana": ("gpt", "gpt2"), "bob": ("sweep", "vit")}
WEIGHTS = {"ana": 2.0}
CHIPS = 8  #: of one node
NODES = {ZONES[0]: 3, ZONES[1]: 2}  #: of each quota
HOURS = 1.0
SWEEP = {"method": "grid", "metric": "loss", "parameters": {"lr": [1, 2, 3, 4, 5, 6]}}
REST_S = 3600.0


@dataclass(kw_only=True)
class Lab:
    """The users' commands, which are refused or not by the code that real ones go through."""

    play: EngineHarness
    dice: Dice
    sessions: dict[str, Session] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for user in JOBS:
            self.sessions[user] = self.open_session(user, self.play.folder / user)

    def open_session(self, user: str, config: Path) -> Session:
        config.mkdir()
        (config / "user").write_text(user)
        place: Any = SimpleNamespace(folders=SimpleNamespace(config=config))
        return Session(
            place=place,
            store=self.play.store,
            clock=self.play.clock,
            prompter=PresetAnswers({}, yes=True),
            cloud=lambda: NotImplemented,
        )

    def new_job(self, user: str, job: str) -> SimJob:
        dice = self.dice
        return SimJob(
            job=job,
            user=user,
            copies=1 + int(dice.random_fraction() * 4),
            zones=tuple(NODES)[: 1 + int(dice.random_fraction() * 2)],
            priority=int(dice.random_fraction() * 3) - 1,
            sweep=SWEEP if job == "sweep" else None,
            limits=LIMITS,
        )

    def submit(self, user: str, job: str, here: Session) -> None:
        submit.check_name(job, here)
        self.play.submit(self.new_job(user, job))

    def scale(self, user: str, job: str, here: Session) -> None:
        stored = here.get_own_job(job)
        known = self.play.said.get(job)
        if known is not None:
            wanted = replace(known, copies=1 + int(self.dice.random_fraction() * 4))
            self.play.submit(replace(wanted, goal=stored.goal))

    def stop(self, user: str, job: str, here: Session) -> None:
        submit.stop_job(here.get_job(job), here)

    def resume(self, user: str, job: str, here: Session) -> None:
        submit.resume_job(here.get_job(job), here)

    def remove(self, user: str, job: str, here: Session) -> None:
        here.get_own_job(job)
        self.play.down(job)

    def give_command(self) -> None:
        """One command of one user, on a job of theirs or of the other."""
        dice = self.dice
        user = (*JOBS,)[int(dice.random_fraction() * 2)]
        others = next(one for one in JOBS if one != user)
        owner = others if dice.random_fraction() < 0.35 else user
        job = JOBS[owner][int(dice.random_fraction() * 2)]
        verbs = self.verbs()
        self.attempt(verbs[int(dice.random_fraction() * len(verbs))], user, job)

    def verbs(self) -> tuple[Callable[[str, str, Session], None], ...]:
        """Some are given more often than others."""
        often = (self.submit, self.resume)
        return (*often, self.submit, self.resume, self.scale, self.stop, self.remove)

    def try_others_jobs(self) -> None:
        """Every command of each user on a job of the other."""
        for verb in self.verbs():
            self.attempt(verb, "bob", "gpt")
            self.attempt(verb, "ana", "sweep")

    def attempt(self, verb: Callable[[str, str, Session], None], user: str, job: str) -> None:
        """A command, which must be refused if the job is the other's."""
        others = next(one for one in JOBS if one != user)
        before = self.jobs_of(others)
        if job in JOBS[others] and job not in before:
            return  # the name is free
        try:
            verb(user, job, self.sessions[user])
        except (InvalidInput, NotFound):
            pass
        else:
            if job in JOBS[others]:
                self.say(f"{verb.__name__} of {job} by {user} was not refused")
        if self.jobs_of(others) != before:
            self.say(f"{verb.__name__} of {job} by {user} changed jobs of {others}")
        self.play.update_wanted_slots()

    def jobs_of(self, user: str) -> dict[str, StoredJob]:
        rows = self.play.store.stored_jobs()
        return {name: stored for name, stored in rows.items() if stored.user == user}

    def say(self, fault: str) -> None:
        self.faults.append(f"{self.play.sim.now():.1f} s: {fault}")

    async def check_rest(self) -> None:
        """Once everybody wants everything and nothing stirs, each has their part of each quota."""
        for job in self.play.store.stored_jobs():
            self.play.down(job)
        for user in JOBS:
            many = sum(NODES.values())
            self.play.submit(
                SimJob(job=f"of-{user}", user=user, goal=Goal.IDLE, copies=many, zones=(*NODES,))
            )
            await self.play.advance(60.0)
        await self.play.advance(KEEP_S + REST_S)
        for zone, nodes in NODES.items():
            for user in JOBS:
                part = nodes * WEIGHTS.get(user, 1.0) / sum(WEIGHTS.get(one, 1.0) for one in JOBS)
                held = self.count_nodes(f"of-{user}", zone)
                if abs(held - part) >= 1.0:
                    self.say(f"{user} has {held} of the {nodes} nodes in {zone}")
        for user in JOBS:
            self.play.down(f"of-{user}")

    def count_nodes(self, job: str, zone: str) -> int:
        nodes = self.play.sim.world.nodes.values()
        return sum(one.id.startswith(f"{job}-") and one.state == "READY" and one.zone == zone
                   for one in nodes)  # fmt: skip


def share_quotas(play: EngineHarness) -> None:
    for zone, nodes in NODES.items():
        play.sim.limit_chips(zone, nodes * CHIPS)
    quotas = (SharedQuota(zone=zone, type="v5p", tier="spot", chips=nodes * CHIPS)
              for zone, nodes in NODES.items())  # fmt: skip
    play.shares = LabShares(agreed=True, weights=WEIGHTS, quotas=tuple(quotas))


def stormy_lab(seed: int, hours: float = HOURS) -> list[str]:
    """What was wrong in the history of a seed."""
    dice = Dice(seed=seed)
    scripts = {job: script(dice) for jobs in JOBS.values() for job in jobs}
    scripts["sweep"] = replace(scripts["sweep"], metric="loss")
    strength = dice.random_between(1.0, 8.0)

    async def plot(play: EngineHarness) -> list[str]:
        play.watch.spare_s = 3600.0  # zones that don't answer for long can't be cleared
        share_quotas(play)
        lab = Lab(play=play, dice=dice)
        play.sim.scenario(storm_steps(seed, (*NODES,), hours, strength, nodes=3))
        for user, jobs in JOBS.items():
            for job in jobs:
                play.submit(lab.new_job(user, job))
        lab.try_others_jobs()
        end = play.sim.now() + hours * 3600.0
        while play.sim.now() < end:
            await play.advance(dice.random_between(*PLOTS_S))
            if dice.random_fraction() < 0.6:
                lab.give_command()
            else:
                await stroke(play, dice, {})
        play.sim.calm()
        share_quotas(play)
        found = await play.close(6 * 3600.0)
        await lab.check_rest()
        await play.advance(1800.0)
        left = [f"in the end there is {play.sim.remains()}"] if play.sim.remains() else []
        return [*found, *left, *play.watch.faults, *lab.faults]

    found: list[str] = perform(plot, seed=seed, scripts=scripts)
    return found
