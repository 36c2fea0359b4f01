"""The engine's loop: observe, plan, record, act, and wait for news.

It is the only loop that decides. `Engine.run` holds the lease and its helpers; `_plan_once` is one
round:
1. read jobs and new events from the store (desired_slots.py, event_log.py),
2. join the cloud's survey and the hosts' reports (informer.py, host_watcher.py, observe.py),
3. let every sweep assign its trials (sweep_step.py), and call planner/plan.py,
4. write the planned steps to the event log, then start them (running_actions.py, actions.py),
5. wait for news or for the time that the plan names.
The outcome of an action is an event, which the next round reads. Nothing is retried here: the plan
decides again. engine_process.py is the process around it; start reading at planner/plan.py.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

from tpuherd.engine import observe, sweep_step
from tpuherd.engine.actions import ActionContext
from tpuherd.engine.alarms import Alarms
from tpuherd.engine.dependencies import EndReason, EngineDeps, EngineView, LogFunction
from tpuherd.engine.desired import DesiredState
from tpuherd.engine.environments import snapshots_of_jobs
from tpuherd.engine.event_log import INCOMPLETE, EventLog
from tpuherd.engine.gang_client import GangClient
from tpuherd.engine.host_samples import SampleCollector
from tpuherd.engine.host_watcher import WatcherDeps
from tpuherd.engine.informer import Informer
from tpuherd.engine.orphan_watch import OrphanWatch
from tpuherd.engine.recover_store import EVERYWHERE, recover_store
from tpuherd.engine.running_actions import RunningActions
from tpuherd.errors import HerdError, NotAllowed, OutcomeUnknown, StoreDamaged, Superseded
from tpuherd.history.apply_event import events_before_step
from tpuherd.model.observed import ObservedState
from tpuherd.model.slots_and_plan import DesiredSlots, EnginePlan, HistoryEvent, PlannedStep
from tpuherd.model.trouble import CLOUD, STORE
from tpuherd.planner.plan import plan_round
from tpuherd.planner.settled_slots import NONE_SETTLED
from tpuherd.ports import Survey
from tpuherd.store.log_store import ATTEMPTS_KEEP_S
from tpuherd.store.set_aside import HELD, awaits_acknowledgement
from tpuherd.sweeps.scheduler import slots_with_work

__all__ = ["EndReason", "Engine", "EngineDeps", "LogFunction"]

POLL_S = 0.5  #: how soon another process's change is seen
ASLEEP_S = 30.0  #: a poll this late means that the machine has slept
RENEW_S = 10.0  #: our lease in the store
GATHER_S, GATHER_S_MAX = 0.05, 0.5  #: news comes in bursts
GATHERED = 4  #: wait for so many times as long as a round takes
SOON_S = 0.05  #: shortest pause between rounds without news
AGAIN_S = 5.0  #: after a problem with the store
EXPAND_S, PATIENCE_S = 30.0, 2.0  #: to reread the configuration; to finish actions at the end
KEEP_S = 10.0  #: whether all code is here
SAVE_S = 300.0  #: how often the history is saved
LOGS_S = 86_400.0  #: how often old logs are looked for


class Engine:
    """One run of the engine, under one lease."""

    def __init__(self, parts: EngineDeps, *, epoch: int) -> None:
        self.parts = parts
        self.epoch = epoch
        self.plan = EnginePlan()
        self._settled = NONE_SETTLED
        self.past = EventLog(parts.store, epoch, parts.note)
        self._alarms = Alarms(parts, self.past)
        self._shout = self._alarms.raise_alarm
        self._samples = SampleCollector(parts.samples, parts.clock, self._shout)
        self._orphans = OrphanWatch(parts.store)
        self._items = sweep_step.ItemTexts(parts.store)
        self._version: int | None = None
        self._desired = DesiredState(
            desired_slots=DesiredSlots(slots={}, owner=parts.owner),
            order=lambda slot: NotImplemented,
            launch=lambda slot: NotImplemented,
            rows={},
        )
        self._expand_at = 0.0
        self._informer = Informer(
            parts.cloud,
            parts.clock,
            zones=self._zones_to_survey,
            bids=lambda: observe.bids_by_name(self.past.history),
            seen=self._handle_survey,
            failed=self._handle_survey_failure,
        )
        self._running = RunningActions(
            self._spawn_task, self._handle_outcome, self._shout, parts.note
        )
        self._logs_due_at = 0.0
        self._thought_s = 0.0  #: duration of the last round
        self._held: tuple[Survey, Mapping[str, str]] | None = None
        self._blank = False
        self._held_back = False  #: the store is a backup, not acknowledged yet
        self._states: Mapping[str, str] = {}
        self._resting_at = inf
        self._awake_at = self._wake_at = 0.0
        self._stopping = self._outdated = self._cloud_moved = False
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """End soon; attempts on hosts keep running."""
        self._stopping = True
        self._news.set()

    async def run(self) -> EndReason:
        """Run until asked to stop, another engine leads, or nothing is left to do."""
        parts = self.parts
        async with asyncio.TaskGroup() as group:
            self._group = group
            hosts, shelf, clock, stir = parts.hosts, parts.shelf, parts.clock, self._news.set
            means = WatcherDeps(
                hosts=hosts, shelf=shelf, clock=clock, samples=self._samples, stir=stir,
                tell=self._record_host_event, probes=not parts.alone,
            )  # fmt: skip
            self._gang_client = GangClient(means, self._spawn_task)
            self._awake_at = parts.clock.now()
            parts.note("engine.begun", {"epoch": self.epoch})
            self.past.pending += [
                self._new_event("engine.started", **parts.process, epoch=self.epoch)
            ]
            self._spawn_task(self._informer.poll_cloud())
            for work in () if parts.alone else self._upkeep():
                self._spawn_task(work())
            self._start_notifier()
            ended = await self._run_planning()
            await self._running.finish(PATIENCE_S)
            for task in self._tasks:
                task.cancel()
        if ended not in (EndReason.OUTDATED, EndReason.DAMAGED, EndReason.UNSURE):
            try:
                facts: Any = {"code": ended, "why": ended, "read": self.past.last_read}
                self.past.write([self._new_event("engine.stopped", **facts)])
                self._save_history()
            except HerdError as error:
                parts.note("engine.unwritten", {"why": error.sentence})
        return ended

    # ---- planning --------------------------------------------------------------------------------

    async def _run_planning(self) -> EndReason:
        while True:
            self._news.clear()
            try:
                self._plan_once()
            except OutcomeUnknown:
                return EndReason.UNSURE
            except Superseded:
                return EndReason.OUTDATED
            except StoreDamaged:  # a later engine finds the started work in the cloud
                return EndReason.DAMAGED
            except HerdError as error:  # nothing unrecorded was done
                self._alarms.note_store_trouble(error)
                self._wake_at = self.parts.clock.now() + AGAIN_S
            if self._stopping:
                return EndReason.STOPPED
            if self._outdated:
                return EndReason.OUTDATED
            if self._cloud_moved:
                return EndReason.MOVED
            now = self.parts.clock.now()
            if now >= self._abandon_world_at():
                return EndReason.GONE
            if now >= self._rest_until() and not self._has_news_in_store():
                return EndReason.REST
            await self._wait_for_news()

    def _has_news_in_store(self) -> bool:
        """Whether another process has written something since the last plan."""
        return self.parts.store.change_counter() != self._version

    def _abandon_world_at(self) -> float:
        """When a missing simulated world counts as gone."""
        return max(self._informer.absent_at, self._awake_at) + self.parts.gone_s

    def _rest_until(self) -> float:
        """When the engine ends if nothing happens; not while somebody is still to be told."""
        notifier = self.parts.notifier
        idle = notifier is None or notifier.is_idle()
        return self._resting_at + self.parts.rest_s if idle else inf

    async def _wait_for_news(self) -> None:
        wake_at = min(self._wake_at, self._rest_until(), self._abandon_world_at())
        left = max(0.0, wake_at - self.parts.clock.now())
        try:
            async with asyncio.timeout(None if left == inf else left):
                await self._news.wait()
        except TimeoutError:
            return
        gather_s = max(GATHER_S, GATHERED * self._thought_s)
        await self.parts.clock.sleep(min(gather_s, GATHER_S_MAX))

    def _plan_once(self) -> None:
        """Observe, plan, record, act: one round."""
        now = self.parts.clock.now()
        if self._version is None:
            self._blank = self.past.is_incomplete()
        if self._version is None or self._held_back:
            self._held_back = awaits_acknowledgement(self.parts.store)
        self.past.write(())
        self._read_store(now)
        self._running.cancel_outdated(self._desired.desired_slots)
        if self._blank and self._desired.rows:
            self._wait_with_message(INCOMPLETE)  # a request now might be a duplicate
            return
        self._watch_hosts()
        if self._held_back:
            self._wait_with_message(HELD)
            return
        observed = self._build_observed_state()
        turn_at = sweep_step.run_sweep_steps(
            self.parts, self._desired, self.past, observed, self._items, self._shout
        )
        desired, alone = observe.leave_refused_jobs(self._desired, self._gang_client.refused)
        # where nodes of `herd up` have an item, their goal is to run
        desired = replace(desired, slots=slots_with_work(desired.slots, self.past.history))
        self.plan, self._settled = plan_round(
            desired, observed, self.past.history, now, self._settled
        )
        self._start_steps(self.plan.steps, now)
        self._wake_at = max(min(self.plan.wake_at, turn_at), now + SOON_S)
        if not self.plan.rest:
            self._resting_at = inf
        elif self._resting_at == inf:
            self._resting_at = now
        look_s = self.parts.look_s if observe.has_granted_node(self.past.history) else inf
        self._informer.set_period(min(self.plan.survey_s, look_s))
        if (states := {**self.plan.states, **alone}) != self._states:
            self.parts.store.put_slot_messages(states)
            self._states = states
        self._alarms.end_store_trouble()
        if self.parts.notifier is not None:
            self.parts.notifier.wake(self.past.last_read)
        self._thought_s = self.parts.clock.now() - now

    def _wait_with_message(self, sentence: str) -> None:
        """Plan nothing, and say why in each slot; wake the notifier."""
        self._wake_at, self._resting_at = inf, inf
        self._states = dict.fromkeys(self._desired.desired_slots.slots, sentence)
        self.parts.store.put_slot_messages(self._states)
        if self.parts.notifier is not None:
            self.parts.notifier.wake(self.past.last_read)

    def _build_observed_state(self) -> ObservedState:
        return ObservedState(
            observations=self._informer.survey.observations,
            zones=self._informer.survey.zones,
            surveyed_at=self._informer.survey.begun_at,
            awake_at=self._awake_at,
            hosts=self._gang_client.host_statuses(),
            calling=self._running.calling,
            working=self._running.working,
        )

    def _watch_hosts(self) -> None:
        survey, held = self._informer.survey, observe.slots_by_bid(self.past.history)
        if self._held is None or self._held[0] is not survey or self._held[1] != held:
            self._held = survey, held
            ahead = observe.bids_ahead(self._desired.desired_slots, self.past.history)
            self._gang_client.watch_bids(
                held, observe.reachable_hosts(self.parts.cloud, survey, held, ahead)
            )

    def _read_store(self, now: float) -> None:
        """Read jobs and events that other processes wrote."""
        version = self.parts.store.change_counter()
        if version == self._version and now < self._expand_at:
            return
        rows = self.parts.store.stored_jobs()
        self.past.read()
        try:
            self._desired = self.parts.desire(rows)
        except HerdError as error:
            if self._version is None:
                raise  # the jobs are unknown: nothing may be done
            self._shout(error.sentence, hint=error.hint)
        self._version = version
        self._expand_at = now + EXPAND_S

    # ---- acting ----------------------------------------------------------------------------------

    def _start_steps(self, steps: Sequence[PlannedStep], now: float) -> None:
        """Record all steps in one transaction, then start them; none if a user has changed a job
        meanwhile. So nothing is requested any more for a job once `herd down` has removed it.
        """
        events = [event for step in steps for event in events_before_step(step, now)]
        if not self.past.write_plan(events):
            self._news.set()
            return
        bench = self._action_context()
        for step in steps:
            self._running.start_step(bench, step)

    def _action_context(self) -> ActionContext:
        parts = self.parts
        return ActionContext(
            cloud=parts.cloud,
            gang_client=self._gang_client,
            shelf=parts.shelf,
            clock=parts.clock,
            desired=self._desired,
            survey=self._informer.survey,
            secrets=parts.secrets.get,
            owner=parts.owner,
            outputs=parts.outputs,
            account=parts.account,
            history=self.past.history,
        )

    def _handle_outcome(self, events: Sequence[HistoryEvent]) -> None:
        self.past.pending += events
        self._news.set()

    def _start_notifier(self) -> None:
        notifier = self.parts.notifier
        if notifier is None:
            return
        with suppress(HerdError):  # it tries again
            notifier.begin()
        view = EngineView(
            stored_jobs=lambda: self._desired.rows,
            slot_history=lambda: self.past.history,
            record_event=lambda kind, facts: self._record_host_event(kind, "", facts),
            note_trouble=self._alarms.note_trouble,
            end_trouble=self._alarms.end_trouble,
            stir=self._news.set,
        )
        self._spawn_task(notifier.run(view))

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- background tasks ------------------------------------------------------------------------

    def _upkeep(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """What must be done in time because others share the store, the hosts and this machine."""
        ours = (self._poll_store, self._renew_lease, self._save_periodically, self._retain_code)
        return (self._gang_client.keep_leases_alive, self._samples.write_periodically, *ours)

    def _handle_survey_failure(self, error: HerdError) -> None:
        self._alarms.note_trouble(CLOUD, error.sentence, error.hint)
        if isinstance(error, NotAllowed):
            self._shout(error.sentence, hint=error.hint)
        self.parts.note("survey.failed", {"why": error.sentence})
        self._cloud_moved = self.parts.cloud_has_moved()
        self._news.set()

    def _handle_survey(self) -> None:
        if senseless := self._informer.survey.trouble:
            self._alarms.note_trouble(CLOUD, senseless)
        else:
            self._alarms.end_trouble(CLOUD)
        if self._blank:
            survey, since = self._informer.survey, self._awake_at
            self._blank = not recover_store(self.parts, self.past, survey, since, self._shout)
        else:
            self.past.pending += self._orphans.find_changes(
                self._desired.desired_slots,
                self._build_observed_state(),
                self.past.history,
                self.parts.clock.now(),
            )
        for bid in observe.unlisted_creations(self._informer.survey, self.past.history):
            self._running.start_creation_check(self._action_context(), bid)
        self._news.set()

    def _zones_to_survey(self) -> frozenset[str]:
        """The zones that must answer; after a lost store, all of them."""
        desired, history = self._desired.desired_slots, self.past.history
        return EVERYWHERE if self._blank else observe.zones_to_survey(desired, history)

    async def _poll_store(self) -> None:
        """Notice what other processes write, and whether the machine has slept."""
        clock = self.parts.clock
        while True:
            before = clock.now()
            await clock.sleep(POLL_S)
            now = clock.now()
            if now - before > POLL_S + ASLEEP_S or now < before:
                self._awake_at = now
                self.parts.note("engine.awake", {"slept_s": now - before})
                self._news.set()
            try:
                changed = self._has_news_in_store()
            except HerdError:
                changed = True  # the next round fails and reports it
            if changed or now >= self._wake_at:
                self._news.set()

    async def _renew_lease(self) -> None:
        while True:
            await self.parts.clock.sleep(RENEW_S)
            try:
                self.parts.store.renew_lease(self.epoch, self.parts.lease_clock.now())
                self._alarms.unrenewed = False
            except Superseded as error:
                self._outdated = not isinstance(error, OutcomeUnknown)  # a round finds out
                self._news.set()
            except HerdError as error:
                self._alarms.note_store_trouble(error, renewing=True)
                self._news.set()  # so that a round writes it

    async def _save_periodically(self) -> None:
        """Save the history from time to time, so that the next start is quick."""
        while True:
            await self.parts.clock.sleep(SAVE_S)
            try:
                self._save_history()
            except HerdError as error:
                self._shout(error.sentence, hint=error.hint, code=STORE)

    def _save_history(self) -> None:
        """Save the history, and delete data that is no longer needed."""
        now = self.parts.clock.now()
        gone = self.past.save(now)
        self.parts.shelf.remove_jobs(gone)
        self._samples.forget_jobs(gone)
        if now >= self._logs_due_at:
            latest = {one.attempt.id for one in self.past.history.slots.values() if one.attempt}
            if not self.parts.shelf.prune_attempts(now - ATTEMPTS_KEEP_S, latest):
                self._logs_due_at = now + LOGS_S

    async def _retain_code(self) -> None:
        """Keep the code of all jobs on this machine, or fetch it back."""
        while True:
            await self.parts.clock.sleep(KEEP_S)
            try:
                if self._version is not None:
                    wanted = snapshots_of_jobs(self._desired, self.parts.hosts)
                    await self._gang_client.retain_code(wanted)
            except OSError as error:
                self._shout(f"the code of jobs cannot be stored ({error})")

    def _record_host_event(self, kind: str, slot: str, facts: Mapping[str, Any]) -> None:
        self.past.pending.append(self._new_event(kind, slot, **facts))
        self._news.set()

    def _new_event(self, kind: str, slot: str = "", job: str = "", **facts: Any) -> HistoryEvent:
        job = job or slot.rpartition("-")[0]
        return HistoryEvent(at=self.parts.clock.now(), kind=kind, job=job, slot=slot, facts=facts)
