"""Runs the actions of a plan as tasks, and knows which bids and slots they keep busy."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from typing import Any, Protocol

from tpuherd.engine import actions, observe
from tpuherd.engine.actions import ACTION_FUNCTIONS, ActionContext
from tpuherd.engine.dependencies import LogFunction
from tpuherd.errors import HerdError, NotAllowed
from tpuherd.model.slot_history import BidRecord
from tpuherd.model.slots_and_plan import (
    Ask,
    Collect,
    DesiredSlots,
    HistoryEvent,
    Launch,
    PlannedStep,
    Prepare,
    RecordEvent,
    Stop,
    Withdraw,
)

SpawnTask = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class RaiseAlarm(Protocol):
    def __call__(self, sentence: str, *, hint: str = "") -> None: ...


class RunningActions:
    """Each action is a task; until it ends, its bid is being called or its slot worked on."""

    def __init__(
        self,
        spawn: SpawnTask,
        ended: Callable[[Sequence[HistoryEvent]], None],
        raise_alarm: RaiseAlarm,
        note: LogFunction,
    ) -> None:
        self._spawn = spawn
        self._ended = ended  #: called with the outcome of each action
        self._raise_alarm = raise_alarm
        self._note = note
        self._calling: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._preparing: dict[asyncio.Task[None], Prepare] = {}
        self._launching: dict[asyncio.Task[None], Launch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def calling(self) -> frozenset[str]:
        """The bids about which the cloud is being asked."""
        return frozenset(self._calling)

    @property
    def working(self) -> frozenset[str]:
        """The slots on whose hosts something is being done."""
        return frozenset(self._working)

    def start_step(self, bench: ActionContext, step: PlannedStep) -> None:
        """Start one action as a task."""
        action = step.action
        if isinstance(action, RecordEvent):
            actions.record_attempt(bench, action)
            return
        work = ACTION_FUNCTIONS[type(action)](bench, action, step.why)
        if isinstance(action, Stop):
            work = self._stop_instead(action.attempt, work)
        leaving = isinstance(action, Collect) and action.within_s is not None
        if isinstance(action, Ask | Withdraw) or leaving:  # the slot's next node does not wait
            self._start_action(work, self._calling, action.bid)
            return
        task = self._start_action(work, self._working, action.slot)
        if isinstance(action, Prepare):
            self._preparing[task] = action
            task.add_done_callback(lambda task: self._preparing.pop(task, None))
        if isinstance(action, Launch):
            self._launching[task] = action
            task.add_done_callback(lambda task: self._launching.pop(task, None))

    async def _stop_instead(
        self, attempt: str, stop: Coroutine[Any, Any, list[HistoryEvent]]
    ) -> list[HistoryEvent]:
        """Cancel a launch of it whose answer may never come. Nothing of that launch is sent after
        the stop, which ends what a host has begun."""
        with closing(stop):
            launches = [task for task, one in self._launching.items() if one.attempt == attempt]
            for task in launches:
                task.cancel()
                await asyncio.wait([task])
            return await stop

    def start_creation_check(self, bench: ActionContext, bid: BidRecord) -> None:
        """Look for the refusal of a creation that no list shows."""
        if not self._calling[bid.name]:
            self._start_action(actions.check_creation(bench, bid), self._calling, bid.name)

    def cancel_outdated(self, desired: DesiredSlots) -> None:
        """Cancel preparations for code or jobs that have changed."""
        for task in observe.outdated_preparations(desired, self._preparing):
            task.cancel()
            del self._preparing[task]

    async def finish(self, patience_s: float) -> None:
        """Wait until all have ended, or the time is over."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience_s)

    def _start_action(
        self, work: Coroutine[Any, Any, list[HistoryEvent]], under_way: Counter[str], name: str
    ) -> "asyncio.Task[None]":
        under_way[name] += 1

        async def run_action() -> None:
            outcome: Sequence[HistoryEvent] = ()
            try:
                outcome = await work
            except NotAllowed as error:
                self._raise_alarm(error.sentence, hint=error.hint)
            except HerdError as error:
                self._note("engine.undone", {"name": name, "why": error.sentence})
            except OSError as error:
                self._raise_alarm(f"a file cannot be written ({error})")
            finally:
                under_way[name] -= 1
                if not under_way[name]:
                    del under_way[name]
                self._ended(outcome)

        task = self._spawn(run_action())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
