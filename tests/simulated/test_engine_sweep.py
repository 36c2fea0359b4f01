"""Sweeps with the real engine in virtual time: nodes are preempted, engines are killed."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.simulated import engine_agent_effects, engine_hosts
from tests.simulated.engine_faults import lose_store
from tests.simulated.engine_fleet import Fleet
from tests.simulated.engine_harness import EngineHarness, SimJob, perform
from tests.simulated.engine_programs import Crash, Process, Script
from tests.simulated.virtual_loop import run
from tpuherd.clock import LoopClock
from tpuherd.model.slots_and_plan import Goal, HistoryEvent
from tpuherd.model.sweep_trials import Sweep, TrialEnd
from tpuherd.sweeps import optuna_sampler
from tpuherd_host.agent.threaded_methods import THREADED
from tpuherd_sim.model.world_parts import Dice

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]

STEPS = 12
SCRIPT = Script(steps=STEPS, step_s=5.0, metric="loss")
SWEEP = {"method": "grid", "parameters": {"lr": [1, 2, 3, 4, 5, 6]}, "metric": "loss"}
TRIALS = 6


def sweep_of(play: EngineHarness) -> Sweep:
    return play.folded_history().sweeps.get("gpt", Sweep())


def over(play: EngineHarness) -> bool:
    """All trials have ended, and everything is given back."""
    sweep = sweep_of(play)
    return len(sweep.trials) == TRIALS and not sweep.unfinished and not play.sim.remains()


def runs(events: list[HistoryEvent]) -> dict[int, str]:
    """The run id of each trial, as it was made."""
    return {event.facts["trial"]: event.facts["run_id"] for event in events}


async def ended(play: EngineHarness, patience_s: float = 4 * 3600.0) -> Sweep:
    """The sweep comes to its end, and every law was kept on the way."""
    assert await play.until(lambda: over(play), patience_s), (sweep_of(play), play.verdict())
    await play.advance(120.0)
    told = [event.facts["trial"] for event in play.events("trial.ended")]
    assert sorted(told) == list(range(TRIALS)), told
    assert not play.verdict()
    return sweep_of(play)


def complete(play: EngineHarness, sweep: Sweep) -> None:
    """Every trial ran to its last step under its one run id, and is known by its last loss."""
    bucket = play.sim.fleet.bucket
    assert {one.how for one in sweep.trials} == {TrialEnd.COMPLETE}
    assert runs(play.events("trial.created")) == {one.number: one.run for one in sweep.trials}
    assert bucket.saved == {one.run: STEPS for one in sweep.trials}
    assert [one.value for one in sweep.trials] == pytest.approx(
        [lr + 1 / (1 + STEPS) for lr in range(1, TRIALS + 1)]
    )


def test_trials_share_two_nodes_without_another_setup() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(copies=2, sweep=SWEEP))
        complete(play, await ended(play))
        assert len({event.facts["bid"] for event in play.events("attempt.launched")}) == 2
        assert len(play.events("slot.prepared")) == 2
        free, taken = play.events("trial.ended")[:-2], play.events("trial.assigned")[2:]
        assert max(b.at - a.at for a, b in zip(free, taken, strict=True)) < 1.0

    perform(plot, scripts={"*": SCRIPT})


@pytest.mark.parametrize("after_s", [5.0, 60.0, 110.0])
@pytest.mark.parametrize("notice_s", [0, 30])
def test_a_node_is_preempted_during_a_sweep(after_s: float, notice_s: int) -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(copies=2, sweep=SWEEP))
        assert await play.until(lambda: bool(play.events("attempt.started")), 3600.0)
        await play.advance(after_s)
        play.sim.weather("preempt", target="gpt-1-*", notice_s=notice_s)
        complete(play, await ended(play))

    perform(plot, scripts={"*": SCRIPT})


def test_a_preempted_trial_goes_first_where_a_slot_is_free() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(copies=2, sweep=SWEEP, zones=("us-east5-a",)))
        assert await play.until(lambda: len(play.events("trial.reported")) > 2, 3600.0)
        lost = next(one for one in sweep_of(play).unfinished if one.slot == "gpt-1")
        play.sim.weather("capacity", zone="us-east5-a", nodes=1)  # there is no other node
        play.sim.weather("preempt", target="gpt-1-*", notice_s=30)
        sweep = await ended(play)
        complete(play, sweep)
        slots = [
            event.slot
            for event in play.events("trial.assigned")
            if event.facts["trial"] == lost.number
        ]
        assert slots == ["gpt-1", "gpt-0"]
        order = [event.facts["trial"] for event in play.events("trial.assigned")]
        assert order == [0, 1, lost.number, 2, 3, 4, 5]
        assert play.sim.fleet.bucket.worked[lost.run] <= STEPS + SCRIPT.save_every

    perform(plot, scripts={"*": SCRIPT})


@pytest.mark.parametrize("seed", range(3))
def test_engines_are_killed_and_nodes_preempted_at_random(seed: int) -> None:
    async def plot(play: EngineHarness) -> None:
        dice = Dice(seed=seed)
        play.submit(SimJob(copies=2 + seed % 2, sweep=SWEEP))
        for _ in range(8):
            await play.advance(dice.random_between(20.0, 120.0))
            if dice.random_fraction() < 0.5:
                play.kill()
            elif play.sim.nodes():
                slot = f"gpt-{int(dice.random_fraction() * 2)}"
                play.sim.weather("preempt", target=f"{slot}-*", notice_s=30)
        complete(play, await ended(play))

    perform(plot, scripts={"*": SCRIPT}, haste=2.0)


def test_only_the_trial_that_crashes_is_retried() -> None:
    crashing = Script(
        steps=STEPS, step_s=5.0, metric="loss", crashes={1: Crash(step=2)}
    )  # of each trial the first attempt

    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(copies=2, sweep=SWEEP))
        sweep = await ended(play)
        complete(play, sweep)
        assert [one.attempts for one in sweep.trials] == [2] * TRIALS

    perform(plot, scripts={"*": crashing})


def test_hopeless_trials_make_room() -> None:
    pruned = {**SWEEP, "prune": {"rule": "median", "warm_up": 2, "after": 1}}

    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(copies=2, sweep=pruned))
        sweep = await ended(play)
        hows = [one.how for one in sweep.trials]
        assert hows[0] is TrialEnd.COMPLETE and hows.count(TrialEnd.PRUNED) >= 3, hows
        assert sweep.best_first()[0].number == 0
        nodes = {event.facts["bid"] for event in play.events("attempt.launched")}
        assert len(nodes) == 2

    perform(plot, scripts={"*": Script(steps=40, step_s=5.0, metric="loss")})


def test_a_stopped_sweep_resumes() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(copies=2, sweep=SWEEP))
        assert await play.until(lambda: len(play.events("trial.ended")) >= 2, 3600.0)
        play.submit(SimJob(copies=2, sweep=SWEEP, goal=Goal.GONE))
        assert await play.until(lambda: not play.sim.remains(), 3600.0)
        many = len(play.events("trial.assigned"))
        await play.advance(600.0)
        assert len(play.events("trial.assigned")) == many
        play.submit(SimJob(copies=2, sweep=SWEEP))
        complete(play, await ended(play))

    perform(plot, scripts={"*": SCRIPT})


def test_after_a_lost_store_the_sweep_restarts_without_running_twice() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(copies=2, sweep=SWEEP))
        assert await play.until(lambda: len(play.events("trial.ended")) >= 2, 3600.0)
        await lose_store(play)
        play.wanted = True
        sweep = await ended(play)  # what had ended runs again, from the last of its checkpoints
        assert {one.how for one in sweep.trials} == {TrialEnd.COMPLETE}
        assert {one.run for one in sweep.trials} == set(play.sim.fleet.bucket.saved)

    perform(plot, scripts={"*": SCRIPT})


@pytest.mark.parametrize("slices", [1, 2])
def test_outputs_of_a_trial_are_collected_before_the_next_one_starts(slices: int) -> None:
    async def plot(play: EngineHarness) -> None:
        copies = 2 if slices == 1 else 1
        play.submit(SimJob(copies=copies, nodes=slices, outputs=True, sweep=SWEEP))
        complete(play, await ended(play))
        order = [
            (event.slot, event.kind)
            for event in play.events("slot.collected", "trial.ended", "attempt.launched")
        ]
        for slot in {slot for slot, _ in order}:
            kinds = [kind for name, kind in order if name == slot]
            assert kinds == ["attempt.launched", "slot.collected", "trial.ended"] * (
                len(kinds) // 3
            )

    perform(plot, scripts={"*": SCRIPT})


def test_a_missing_sampler_is_reported_and_other_jobs_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optuna_sampler, "find_spec", lambda name: None)
    bayes = {"method": "bayes", "trials": 2, "metric": "loss", "parameters": {"lr": [1, 2]}}

    async def plot(play: EngineHarness) -> None:
        play.advice = optuna_sampler.ADVICE
        play.submit(SimJob(sweep=bayes))
        play.submit(SimJob(job="bert"))

        def done() -> list[str]:
            return [event.job for event in play.events("slot.done")]

        assert await play.until(lambda: done() == ["bert"], 3600.0)
        said = [event.facts["message"] for event in play.events("engine.problem")]
        assert len(said) == 1 and said[0].startswith("gpt: method bayes needs Optuna"), said
        assert not play.events("trial.created")
        monkeypatch.undo()
        assert await play.until(lambda: "gpt" in done(), 3600.0)
        assert not play.verdict()

    perform(plot, scripts={"*": SCRIPT})


def listen(monkeypatch: pytest.MonkeyPatch, verb: str, answer: Answer) -> None:
    monkeypatch.setitem(
        engine_agent_effects.ANSWERS, verb, lambda machine, content: answer(content)
    )


def test_a_trial_s_files_go_once_its_outputs_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def begin(content: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append((content["trial"], content.get("safe", "")))
        return {}

    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(sweep=SWEEP, outputs=True))
        sweep = await ended(play)
        runs = [one.run for one in sweep.trials]
        begun = list(dict.fromkeys(asked))  # a host each
        assert begun[0] == ("", ""), "the folder is as the setup needs it"
        assert begun[1:] == list(zip(runs, ["", *runs[:-1]], strict=True))

    listen(monkeypatch, "trial.begin", begin)
    perform(plot, scripts={"*": SCRIPT})


def test_without_outputs_no_file_of_a_trial_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    safe: list[str] = []

    def begin(content: Mapping[str, Any]) -> Mapping[str, Any]:
        safe.append(content["safe"])
        return {}

    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(sweep=SWEEP))
        await ended(play)
        assert len(safe) > TRIALS and set(safe) == {""}

    listen(monkeypatch, "trial.begin", begin)
    perform(plot, scripts={"*": SCRIPT})


def test_a_folder_that_does_not_fit_twice_ends_the_sweep_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(sweep=SWEEP))
        assert await play.until(lambda: bool(play.events("slot.gave_up")), 3600.0)
        (event,) = play.events("slot.gave_up")
        assert (event.facts["code"], "12 GB" in event.facts["why"]) == ("unfit", True)
        assert not play.events("attempt.launched")

    listen(monkeypatch, "trial.keep", lambda content: {"refused": "12 GB do not fit"})
    perform(plot, scripts={"*": SCRIPT})


def test_with_an_agent_of_before_a_sweep_runs_as_before_and_says_so() -> None:
    async def plot(play: EngineHarness) -> None:
        play.submit(SimJob(sweep=SWEEP))
        complete(play, await ended(play))
        (event,) = play.events("slot.prepared")
        assert "trials share what the setup made" in event.facts["why"]

    known = {verb: method for verb, method in THREADED.items() if verb != "trial.keep"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_hosts, "THREADED", known)
        perform(plot, scripts={"*": SCRIPT})


def test_a_number_that_a_lost_store_gives_again_is_another_attempt() -> None:
    class Host:
        name, runs = "gpt-0-g1/w0", True

        def told(self, process: Process, text: str) -> None: ...

        def report(self, content: dict[str, Any]) -> None: ...

        def over(self, process: Process, exit: int | None, signal: int | None) -> None: ...

    async def begin_both() -> None:
        fleet, env = Fleet(clock=LoopClock(0.0)), {"HERD_WORK": "gpt-0-a1", "HERD_WORKERS": "1"}
        first, second = (
            Process(host=Host(), work="gpt-0-a1", pid=pid, env=env, script=SCRIPT)
            for pid in (1, 2)
        )  # fmt: skip
        gangs = []
        for process in (first, second):
            gangs.append(fleet.gang(process))
            assert fleet.gang(process) is gangs[-1]
            gangs[-1].join(process)
            process.alive = False
        assert gangs[0] is not gangs[1] and fleet.gangs_called("gpt-0-a1") == gangs
        assert fleet.gangs_called("gpt-0-a2") == [] == fleet.bucket.faults

    run(begin_both())
