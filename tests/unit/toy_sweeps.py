"""The toy world of `toy_cloud` with a sweep in it: engine and sweep scheduler take turns."""

from collections.abc import Callable
from dataclasses import replace

from tests.unit.toy_cloud import Toy, slot
from tpuherd.model.observed import (
    HostRun,
    HostStatus,
    NodeState,
    ObservedState,
    RequestState,
    RunState,
)
from tpuherd.model.search import Parameter, Search
from tpuherd.model.slots_and_plan import EnginePlan, Limits
from tpuherd.model.sweep_trials import Sweep, TrialRecord
from tpuherd.sweeps.scheduler import OURS, SweepAdvisor, SweepStep, run_step

ALPHA = {"lr": Parameter(values=(1, 2, 3, 4, 5, 6))}


def search(**changes: object) -> Search:
    base = Search(method="grid", parameters=ALPHA, metric="loss")
    return replace(base, **changes)  # type: ignore[arg-type]


class Sweeper(Toy):
    """This many slots, and one sweep for all of them."""

    def __init__(self, copies: int, search: Search, *, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        super().__init__(*(slot(f"gpt-{at}", trials=True, limits=limits) for at in range(copies)))
        self.search = search
        self.advice: SweepAdvisor = OURS
        self.losses: Callable[[TrialRecord, float], float] = lambda trial, age: 1.0
        self.fails: Callable[[int], bool] = lambda trial: False  #: trials whose command fails
        self.saves: dict[int, int] = {}

    @property
    def sweep(self) -> Sweep:
        return self.history.sweeps.get("gpt", Sweep())

    def observed(self) -> ObservedState:
        seen = super().observed()
        turn = SweepStep(
            job="gpt", search=self.search, slots=tuple(self.desired.slots.values()),
            observed=seen, history=self.history, now=self.now, advice=self.advice,
        )  # fmt: skip
        run_step(turn)
        for event in turn.events:
            self.note(event)
        return seen

    def host(self, name, toy_node, worker) -> HostStatus:  # type: ignore[no-untyped-def]
        host = super().host(name, toy_node, worker)
        return replace(host, works=tuple(map(self.told, host.works)))

    def told(self, work: HostRun) -> HostRun:
        """With what its trial says: a step a second."""
        number = self.trial_of(work.attempt)
        if number is None:
            return work
        if self.fails(number) and work.word is RunState.ENDED and not work.termed:
            work = replace(work, exit=1)
        trial = self.sweep.trials[number]
        age = (work.ended or self.now) - (work.started or self.now)
        return replace(
            work, step=int(age), stepped_at=self.now, metrics={"loss": self.losses(trial, age)}
        )

    def trial_of(self, attempt: str) -> int | None:
        for event in reversed(self.events):
            if event.kind == "attempt.launched" and event.facts["attempt"] == attempt:
                found = event.facts["trial"]
                assert isinstance(found, int)
                return found
        return None

    def check(self) -> None:
        """Never two slots on one trial, nor two trials on a slot."""
        super().check()
        alive = [
            self.trial_of(attempt)
            for toy_node in self.toy_nodes.values()
            for attempt, processes in toy_node.work.items()
            if any(one.ended is None and not one.lost for one in processes.values())
        ]
        assert len(set(alive)) == len(alive), f"twice at {self.now}: {alive}"
        given = [one.slot for one in self.sweep.trials if one.given_at is not None]
        assert len(set(given)) == len(given), given

    def lose(self, name: str) -> bool:
        """The node of a slot is preempted, if it has one."""
        for toy_node in self.toy_nodes.values():
            if toy_node.ask.slot == name and toy_node.node is NodeState.READY:
                toy_node.request, toy_node.node = RequestState.LOST, NodeState.LOST
                toy_node.work.clear()
                return True
        return False

    def ends(self) -> dict[int, list[str]]:
        """How each trial ended, as recorded."""
        found: dict[int, list[str]] = {}
        for event in self.kinds("trial.ended"):
            found.setdefault(event.facts["trial"], []).append(event.facts["outcome"])
        return found


def settled(toy: Sweeper, many: int = 900) -> EnginePlan:
    """Until nothing is left to do."""
    toy.run(many)
    for _ in range(5):  # and stays so
        toy.tick()
        assert toy.last.rest
    return toy.last
