"""A job with a deadline in the real engine: spot dries up and returns, and it is done in time."""

from typing import Any

from tests.simulated.engine_harness import EngineHarness, SimJob, perform
from tests.simulated.engine_programs import Script
from tests.simulated.engine_world import ZONES
from tpuherd.model.slot_history import SlotHistory

DEADLINE_S = 5400.0
SPOT, FIRM = ZONES[:2], ZONES[2]
#: 40 minutes of work, which the script reports.
SCRIPTS = {
    "gpt": Script(
        steps=40, step_s=60.0, save_every=5, save_s=5.0, setup_s=20.0, init_s=20.0,
        tells_total=True,
    )
}  # fmt: skip


def dry_up(play: EngineHarness) -> None:
    """No spot is to be had any more, and what there is is taken away."""
    for zone in SPOT:
        play.sim.weather("capacity", zone=zone, nodes=0)
    for node in node_zones(play):
        play.sim.weather("preempt", target=node, notice_s=0)


def node_zones(play: EngineHarness) -> dict[str, str]:
    """Where each node of the job is."""
    return {
        node.id: node.zone for node in play.sim.world.nodes.values() if node.state != "DELETING"
    }


def runs_on(play: EngineHarness) -> str:
    """The tier of the running attempt's node."""
    found = play.folded_history().slots.get("gpt-0", SlotHistory())
    attempt = found.attempt
    if attempt is None or attempt.ended_at is not None or attempt.started_at is None:
        return ""
    return found.bids[attempt.bid].offer.tier


def test_the_deadline_is_met_when_spot_dries_up_and_on_demand_is_given_back() -> None:
    async def plot(play: EngineHarness) -> Any:
        job = SimJob(zones=ZONES, firm_zones=(FIRM,), deadline_s=DEADLINE_S)
        play.submit(job)
        begun = play.sim.clock.now()
        assert await play.until(lambda: runs_on(play) == "spot", 900.0)
        await play.advance(300.0)
        dry_up(play)
        assert await play.until(lambda: runs_on(play) == "on-demand", 1800.0)
        await play.advance(300.0)
        said = play.store.slot_messages()["gpt-0"]
        assert "until there is spot" in said, said
        for zone in SPOT:
            play.sim.weather("capacity", zone=zone, nodes="unlimited")
        assert await play.until(lambda: runs_on(play) == "spot", 1800.0)
        await play.advance(120.0)
        assert FIRM not in node_zones(play).values()
        done = lambda: play.folded_history().slots["gpt-0"].done_at is not None  # noqa: E731
        assert await play.until(done, DEADLINE_S)
        took = play.sim.clock.now() - begun
        missed = play.events("slot.deadline_missed")
        worked = play.sim.fleet.bucket.worked
        return took, missed, worked, await play.close()

    took, missed, worked, wrong = perform(plot, scripts=SCRIPTS)
    assert (took <= DEADLINE_S, missed, wrong) == (True, [], []), (took, missed, wrong)
    assert sum(worked.values()) <= 40 + 10  # of each loss at most what was not saved
