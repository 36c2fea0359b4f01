"""Users who share a quota of a world, with the real engine in virtual time."""

import pytest

from tests.simulated.engine_harness import EngineHarness, SimJob, perform
from tests.simulated.engine_programs import Script
from tpuherd.model.lab_shares import LabShares, SharedQuota
from tpuherd.model.slots_and_plan import Goal
from tpuherd.model.sweep_trials import Sweep, TrialEnd
from tpuherd.planner.fair_share import KEEP_S

ZONE = "us-east5-a"
NODE = 8  #: chips of a v5p-16
TRIALS = 8
STEPS = 120
SCRIPTS = {
    # A step and a save fit the 30 s that a stop grants, wherever in a step the stop arrives.
    "sweep": Script(steps=STEPS, step_s=15.0, save_every=40, save_s=10.0, metric="loss"),
    "gpt": Script(steps=20, step_s=15.0),
}
SWEEP = SimJob(
    job="sweep",
    zones=(ZONE,),
    copies=4,
    user="bob",
    sweep={"method": "grid", "parameters": {"lr": [*range(1, TRIALS + 1)]}, "metric": "loss"},
)


def share(play: EngineHarness, nodes: int, **weights: float) -> None:
    """A grant of so many nodes' chips; the cloud refuses more."""
    play.sim.limit_chips(ZONE, nodes * NODE)
    quota = SharedQuota(zone=ZONE, type="v5p", tier="spot", chips=nodes * NODE)
    play.shares = LabShares(agreed=bool(weights), weights=weights, quotas=(quota,))


def running(play: EngineHarness) -> dict[str, int]:
    """Attempts that work, by job."""
    found: dict[str, int] = {}
    for gang in play.sim.fleet.gangs.values():
        if gang.alive:
            job = gang.slot.rpartition("-")[0]
            found[job] = found.get(job, 0) + 1
    return found


def message(play: EngineHarness, slot: str) -> str:
    return play.store.slot_messages().get(slot, "")


def refused(play: EngineHarness) -> list[str]:
    return [str(one.facts["message"]) for one in play.events("bid.refused")]


@pytest.mark.parametrize(("user", "priority"), [("ana", 0), ("bob", 1)])
def test_a_production_run_takes_a_node_from_a_sweep_which_saves_and_goes_on_later(
    user: str, priority: int
) -> None:
    """From another user's sweep by the share, from one's own by the priority."""

    async def plot(play: EngineHarness) -> None:
        share(play, 4)
        play.submit(SWEEP)
        assert await play.until(lambda: running(play) == {"sweep": 4}, 3600.0)
        await play.advance(KEEP_S)
        play.submit(SimJob(job="gpt", zones=(ZONE,), user=user, priority=priority))
        assert await play.until(lambda: bool(play.events("attempt.stopping")), 60.0)
        (stop,) = play.events("attempt.stopping")
        victim = stop.slot
        assert f"gpt-0 of {user} goes first on the 32 chips of spot v5p in {ZONE}" in str(
            stop.facts["why"]
        )
        assert message(play, "gpt-0") == (
            f"is next on the 32 chips of spot v5p in {ZONE}:"
            f" {victim} of bob gives its node back after saving"
        )
        assert await play.until(lambda: running(play) == {"sweep": 3, "gpt": 1}, 900.0)
        assert message(play, victim).startswith("waits for its turn on the 32 chips")
        assert await play.until(lambda: running(play) == {"sweep": 4}, 3600.0)
        assert await play.until(play.met, 4 * 3600.0), play.unmet_jobs()
        assert len(play.events("attempt.stopping")) == 1  # nobody was asked twice
        assert len(refused(play)) <= 2  # one at each handover: a request counts until it is deleted
        check_sweep(play)
        assert not await play.close()

    perform(plot, scripts=SCRIPTS)


def check_sweep(play: EngineHarness) -> None:
    """Each trial has done each of its steps once: what was stopped had saved."""
    sweep, bucket = play.folded_history().sweeps.get("sweep", Sweep()), play.sim.fleet.bucket
    assert {one.how for one in sweep.trials} == {TrialEnd.COMPLETE}
    assert [bucket.saved[one.run] for one in sweep.trials] == [STEPS] * TRIALS
    assert [bucket.worked[one.run] for one in sweep.trials] == [STEPS] * TRIALS


def test_weights_divide_the_chips_and_nobody_is_taken_from_again_and_again() -> None:
    async def plot(play: EngineHarness) -> None:
        share(play, 3, ana=2.0)
        for job, user in (("one", "bob"), ("two", "ana")):
            play.submit(SimJob(job=job, goal=Goal.IDLE, zones=(ZONE,), copies=3, user=user))
            await play.advance(KEEP_S + 600.0)
        held = {job: len([1 for name in play.sim.nodes() if name.startswith(job)])
                for job in ("one", "two")}  # fmt: skip
        assert held == {"one": 1, "two": 2}
        mark = len(play.mutations())
        await play.advance(2 * KEEP_S)
        assert not play.mutations()[mark:]
        assert len(refused(play)) <= 2  # one for each node that changed hands

    perform(plot)


def test_after_a_preemption_the_user_keeps_the_share() -> None:
    async def plot(play: EngineHarness) -> None:
        share(play, 2)
        for job, user in (("one", "bob"), ("two", "ana")):
            play.submit(SimJob(job=job, goal=Goal.IDLE, zones=(ZONE,), copies=2, user=user))
        await play.advance(KEEP_S)
        (name,) = play.sim.nodes("two-0") or play.sim.nodes("two-1")
        play.sim.weather("preempt", target=f"{ZONE}/{name}")
        await play.advance(600.0)
        for job in ("one", "two"):
            nodes = {**play.sim.nodes(f"{job}-0"), **play.sim.nodes(f"{job}-1")}
            assert [*nodes.values()] == ["READY"]
        assert len(refused(play)) <= 1  # the cloud counts the lost node until it is deleted

    perform(plot)
