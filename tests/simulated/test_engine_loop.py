"""The engine's loop: it yields to another engine, executes nothing unrecorded, and ends at rest."""

from functools import reduce
from typing import Any

import httpx2
import pytest

from tests.simulated.engine_harness import EngineHarness, SimJob, perform
from tests.simulated.engine_ports import EngineLife
from tests.simulated.engine_programs import Script
from tpuherd.engine.create_engine import GONE_S
from tpuherd.engine.event_log import KEEP_S, EventLog
from tpuherd.engine.loop import EndReason
from tpuherd.errors import OperationFailed
from tpuherd.history.apply_event import apply_event
from tpuherd.history.event_kinds import FREQUENT_KINDS
from tpuherd.model.slot_history import History, SlotHistory
from tpuherd.model.slots_and_plan import HistoryEvent, RequestKind
from tpuherd.ports import LeaseHolder, RpcRequest
from tpuherd_host.agent.frames import PROTOCOL
from tpuherd_sim.model.http_types import Request

QUICK = {"*": Script(steps=4, step_s=2.0, init_s=1.0, setup_s=1.0)}
LONG = {"*": Script(steps=10_000, step_s=5.0)}


def test_an_engine_that_lost_its_lease_ends_and_changes_nothing() -> None:
    async def plot(play: EngineHarness) -> tuple[Any, list[str], list[str]]:
        play.submit(SimJob())
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        life = play.life
        assert life is not None and life.task is not None and play.engine is not None
        before = sorted(play.sim.nodes())
        play.wanted = False
        play.store.release_lease(play.engine.epoch)
        other = LeaseHolder(pid=1, host="elsewhere", who="you@elsewhere")
        assert play.store.take_lease(other, play.sim.clock.now(), 3600.0) is not None
        await play.advance(60.0)
        return life.task.result(), before, sorted(play.sim.nodes())

    ended, before, after = perform(plot, scripts=LONG)
    assert ended is EndReason.OUTDATED
    assert before == after


@pytest.mark.parametrize("kind", ["bid.requested", "attempt.launched", "bid.withdrawn"])
def test_unrecorded_steps_are_not_executed(kind: str) -> None:
    async def plot(play: EngineHarness) -> tuple[list[str], list[str]]:
        full = True

        def at(life: EngineLife, place: str) -> None:
            if full and place.startswith("before") and kind in place:
                raise OperationFailed("the disk is full")

        play.at = at
        play.submit(SimJob())
        await play.advance(1200.0)
        did = [f"{asked.method} {asked.name}" for asked in play.mutations()]
        said = [event.facts["message"] for event in play.events("engine.problem")]
        assert said == ["the disk is full"]
        full = False
        assert await play.until(play.met, 3600.0), play.unmet_jobs()
        return did, [event.kind for event in play.events(kind)]

    did, after = perform(plot, scripts=QUICK)
    before = {"bid.requested": "POST", "bid.withdrawn": "DELETE"}.get(kind)
    assert before is None or not [one for one in did if one.startswith(before)]
    assert after


@pytest.mark.parametrize("kind", ["bid.requested", "attempt.launched"])
def test_a_plan_is_dropped_if_its_job_was_removed_meanwhile(kind: str) -> None:
    """Else `herd down` would see no request, say that all is gone, and one would come."""

    async def plot(play: EngineHarness) -> tuple[int, int, list[str]]:
        removed_after = 0

        def at(life: EngineLife, place: str) -> None:
            nonlocal removed_after
            if place.startswith("before") and kind in place:
                play.at = lambda life, place: None
                removed_after = len(play.mutations())
                play.down("gpt")

        play.at = at
        play.submit(SimJob())
        assert await play.until(lambda: bool(play.events("job.removed")), 3600.0)
        await play.advance(600.0)
        created = [one for one in play.mutations()[removed_after:] if one.method == "POST"]
        return len(play.events(kind)), len(created), sorted(play.sim.nodes())

    assert perform(plot, scripts=LONG) == (0, 0, [])


def test_an_engine_at_rest_ends_by_itself() -> None:
    async def plot(play: EngineHarness) -> tuple[Any, float, str]:
        play.submit(SimJob())
        assert await play.until(lambda: bool(play.events("slot.done")), 3600.0)
        play.wanted = False
        life = play.life
        assert life is not None and life.task is not None
        done = play.events("slot.done")[0].at
        await play.advance(1500.0)
        stopped = play.events("engine.stopped")[-1]
        return life.task.result(), stopped.at - done, stopped.facts["why"]

    ended, seconds, why = perform(plot, scripts=QUICK)
    assert (ended, why) == (EndReason.REST, "rest")
    assert 600.0 <= seconds <= 900.0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_job_that_comes_while_the_engine_ends_is_run(when: str) -> None:
    """Its command saw an engine that runs, so it started none."""

    async def plot(play: EngineHarness) -> bool:
        play.submit(SimJob())
        assert await play.until(lambda: bool(play.events("slot.done")), 3600.0)

        def at(life: EngineLife, place: str) -> None:
            if place.startswith(when) and "engine.stopped" in place:
                play.at = lambda life, place: None
                play.submit(SimJob(job="late"))

        play.at = at
        return await play.until(lambda: len(play.events("slot.done")) == 2, 3600.0)

    assert perform(plot, scripts=QUICK)


@pytest.mark.parametrize("kind", [httpx2.ConnectError, httpx2.ReadError])
def test_an_engine_ends_when_its_world_is_gone(kind: type[httpx2.TransportError]) -> None:
    """Nothing listens ⇔ the world is gone: a cut or late world may still exist."""

    def refuse(_: Request) -> None:
        raise kind("no")

    async def plot(play: EngineHarness) -> tuple[bool, Any]:
        play.submit(SimJob())
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        life = play.life
        assert life is not None and life.task is not None
        play.wanted = False
        play.before = refuse
        await play.advance(0.9 * GONE_S)
        early = life.task.done()
        await play.advance(0.3 * GONE_S)
        return early, life.task.result() if life.task.done() else None

    early, ended = perform(plot, scripts=LONG)
    assert not early
    assert ended is (EndReason.GONE if kind is httpx2.ConnectError else None)


def test_only_routine_events_of_long_removed_jobs_are_pruned() -> None:
    """Generations, attempts and what was learnt of zones outlast it; a saved step need not."""

    def log(play: EngineHarness) -> list[HistoryEvent]:
        return [event for _, event in play.store.read_events(job="gpt")]

    async def plot(play: EngineHarness) -> tuple[list[HistoryEvent], list[HistoryEvent]]:
        play.submit(SimJob())
        assert await play.until(lambda: len(play.events("attempt.saved")) > 2, 3600.0)
        play.down("gpt")
        assert await play.until(lambda: not play.folded_history().slots["gpt-0"].bids, 3600.0)
        play.wanted = False
        play.kill()
        before = log(play)
        for late_s, gone in ((KEEP_S - 3600.0, set()), (KEEP_S + 3600.0, {"gpt"})):
            assert log(play) == before
            past = EventLog(play.store, 0, lambda name, facts: None)
            assert past.save(play.sim.clock.now() + late_s) == gone
        play.submit(SimJob())
        assert past.save(play.sim.clock.now() + 2 * KEEP_S) == set()
        return before, log(play)[:-1]

    before, after = perform(plot, scripts=LONG)
    assert before != after == [event for event in before if event.kind not in FREQUENT_KINDS]
    whole, pruned = (reduce(apply_event, events, History()) for events in (before, after))
    assert whole.zone_stats == pruned.zone_stats
    assert names(whole.slots["gpt-0"]) == names(pruned.slots["gpt-0"])


def names(slot_history: SlotHistory) -> tuple[object, ...]:
    """What must never be used again."""
    return (
        slot_history.generation,
        slot_history.attempts,
        slot_history.gone,
        slot_history.dropped,
        slot_history.bids,
    )


def test_foreign_attempts_on_a_host_are_stopped_before_ours_starts() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(zones=("us-east5-a",)))
        assert await play.until(lambda: len(play.sim.machines()) >= 2, 3600.0)
        machine = max(play.sim.machines(), key=lambda one: one.view.worker)
        line = machine.open()
        line.multiplexer.send_hello(
            {"protocol": PROTOCOL, "who": "you", "owner": "zzz", "epoch": 1}
        )
        theirs = {"attempt": "theirs", "slot": "gpt-0", "number": 0, "shell": "sleep 9999"}
        async with line.multiplexer.open_stream(RpcRequest(name="start", arguments=theirs)) as call:
            await call.reply()
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        assert machine.state is not None
        left = machine.state.works["theirs"]
        assert left.phase == "ended"
        assert left.ended is not None
        assert left.ended < play.events("attempt.launched")[0].at

    perform(plot, scripts=LONG)


def test_a_direct_create_without_capacity_is_noticed_in_its_operation() -> None:
    async def plot(play: EngineHarness) -> str:
        play.sim.weather("drought", zone="us-east5-a")
        play.submit(SimJob(kind=RequestKind.DIRECT, zones=("us-east5-a",)))
        assert await play.until(lambda: bool(play.events("bid.refused")), 600.0)
        play.sim.calm()
        assert await play.until(lambda: bool(play.events("slot.done")), 7200.0)
        return str(play.events("bid.refused")[0].facts["refusal"])

    assert perform(plot, scripts=QUICK) == "stockout"
