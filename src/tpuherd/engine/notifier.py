"""Tells people what happened to their jobs, beside the engine's loop and without holding it up.

1. `wake` says that the log has grown; `_choose` reads the new events and chooses notes for each
   receiver (notify/choose_notes.py, timed_notes.py), hides secrets in them, and saves them with the
   number of the last event read (store/notify_state.py).
2. `_start_due` starts a task for each receiver whose outbox is due (notify/outbox.py).
3. `_deliver` sends one message (senders/deliver.py) and saves what became of it.

A crash between 2 and 3 sends a message again; none is lost: its events are read again, or its notes
are saved. All work here is short but for the sending, which has tasks of its own and a limit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from tpuherd.clock import Clock
from tpuherd.engine.dependencies import EngineView, LogFunction, SecretSource
from tpuherd.errors import HerdError
from tpuherd.model.slot_history import SlotHistory
from tpuherd.model.stored_job import StoredJob
from tpuherd.model.trouble import NOTIFY
from tpuherd.notify.choose_notes import READ_KINDS, read_event
from tpuherd.notify.compose import Message, compose_message
from tpuherd.notify.notes import JobFacts, Note, wants_note
from tpuherd.notify.outbox import (
    Outbox,
    SendProblem,
    add_notes,
    due_at,
    mark_failed,
    mark_sent,
)
from tpuherd.notify.payloads import hide_values
from tpuherd.notify.ready_receivers import ReadyReceiver
from tpuherd.notify.timed_notes import timed_notes
from tpuherd.planner.retry_limits import total_cost
from tpuherd.ports import Store
from tpuherd.store.notify_secrets import job_receivers, project_receivers
from tpuherd.store.notify_state import NotifyState, load_notify_state, save_notify_state

WITHHELD = "notify.withheld"
PAGE = 500  #: events at a time
REREAD_S = 30.0  #: the receivers are read again after this time, or when a job changes
SAVE_S = 60.0  #: what only changes the memory is saved so often
AGAIN_S = 5.0  #: after a problem with the store
SENDS_MAX = 8  #: at the same time
FAILING = 3  #: tries in a row until a failing receiver is a problem that commands show

SendMessage = Callable[[ReadyReceiver, Message], Awaitable[SendProblem | None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotifierDeps:
    """What the notifier receives from outside."""

    store: Store
    secrets: SecretSource
    folder: Path
    clock: Clock
    send: SendMessage
    origin: str  #: whose jobs: for people
    who: str  #: whose engine it is
    tells_others: Callable[[], bool]  #: of jobs that other accounts have submitted
    log: LogFunction


class Notifier:
    """The messages of one engine."""

    def __init__(self, parts: NotifierDeps) -> None:
        self._parts = parts
        self._state = NotifyState()
        self._woken = asyncio.Event()
        self._grown_to = 0  #: the number of the last event in the log
        self._flying: set[str] = set()  #: receivers that a message is on its way to
        self._receivers: dict[str, tuple[ReadyReceiver, ...]] = {}  #: by job; "": the project's
        self._withheld: dict[str, Mapping[str, Any]] | None = None  #: by job, as recorded
        self._known: dict[str, ReadyReceiver] = {}  #: by key; also of jobs just removed
        self._rows: Mapping[str, StoredJob] | None = None
        self._reread_at = -inf
        self._saved_at = -inf
        self._unsaved = False
        self._troubled = True  #: maybe, since an earlier engine
        self._begun = False
        self._slots_free = asyncio.Semaphore(SENDS_MAX)

    def begin(self) -> None:
        """Go on where the engine before stopped; the first one tells only what is new."""
        store = self._parts.store
        last = max((seq for seq, _ in store.read_events(limit=1, newest=True)), default=0)
        found = load_notify_state(self._parts.folder)
        if found is None:
            found = NotifyState(cursor=last)
            for seq, event in store.read_events(kinds=READ_KINDS):
                read_event(found.memory, seq, event, {})
        found.cursor = min(found.cursor, last)  # a higher one is of a store that was lost
        self._state, self._grown_to, self._begun = found, last, True

    def wake(self, last: int) -> None:
        """The log has grown to this number, or jobs have changed."""
        if last != self._grown_to:
            self._grown_to = last
            self._woken.set()

    def is_idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return not any(box.pending for box in self._state.boxes.values()) and (
            self._state.cursor >= self._grown_to
        )

    async def run(self, engine: EngineView) -> None:
        """Tell people until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                now = self._parts.clock.now()
                try:
                    if not self._begun:
                        self.begin()
                    self._read_receivers(engine, now)
                    look_at = min(self._choose(engine, now), self._reread_at)
                    look_at = min(look_at, self._start_due(engine, group, now))
                except HerdError as error:
                    self._parts.log("notify.unread", {"why": error.sentence})
                    look_at = now + AGAIN_S
                await self._wait_until(look_at)

    async def _wait_until(self, at: float) -> None:
        left = max(0.0, at - self._parts.clock.now())
        try:
            async with asyncio.timeout(None if left == inf else left):
                await self._woken.wait()
        except TimeoutError:
            return

    # ---- whom ------------------------------------------------------------------------------------

    def _read_receivers(self, engine: EngineView, now: float) -> None:
        rows = engine.stored_jobs()
        if rows is self._rows and now < self._reread_at:
            return
        secrets = self._parts.secrets
        general = project_receivers(secrets)
        others = self._parts.tells_others()
        found = {
            name: job_receivers(stored_job, secrets, general, others=others)
            for name, stored_job in rows.items()
        }
        self._record_withheld(engine, found)
        self._receivers = {"": general} | {
            name: tuple(one for one in many if not one.withheld) for name, many in found.items()
        }
        self._rows, self._reread_at = rows, now + REREAD_S
        current = {one.key: one for many in self._receivers.values() for one in many}
        waiting = {key for key, box in self._state.boxes.items() if box.pending}
        kept = {key: one for key, one in self._known.items() if key in waiting | self._flying}
        self._known = kept | current
        for key in [key for key in self._state.boxes if key not in self._known]:
            self._drop_box(engine, key)

    def _record_withheld(
        self, engine: EngineView, found: Mapping[str, Sequence[ReadyReceiver]]
    ) -> None:
        """Let `herd why` say which receivers of a job are not used; only changes are recorded."""
        if self._withheld is None:
            events = self._parts.store.read_events(kinds=(WITHHELD,))
            self._withheld = {event.job: event.facts for _, event in events}
        for job, many in found.items():
            held = [{"receiver": one.title, "code": one.withheld} for one in many if one.withheld]
            facts = {"receivers": held, "engine": self._parts.who}
            before = self._withheld.get(job, {"receivers": []})
            if facts != before and (held or before["receivers"]):
                self._withheld[job] = facts
                engine.record_event(WITHHELD, {**facts, "job": job})

    def _drop_box(self, engine: EngineView, key: str) -> None:
        """Forget a receiver that is no longer configured."""
        box = self._state.boxes.pop(key)
        self._unsaved = True
        if box.pending:
            why = "it is no longer configured"
            self._record_loss(engine, box.title, len(box.pending) + box.dropped, why)
        self._show_trouble(engine)

    def _receivers_of(self, job: str) -> Sequence[ReadyReceiver]:
        """Of what concerns no job, all are told: it concerns the jobs of each."""
        if job:
            return self._receivers.get(job, self._receivers.get("", ()))
        every = {one.key: one for many in self._receivers.values() for one in many}
        return tuple(every.values())

    # ---- what ------------------------------------------------------------------------------------

    def _choose(self, engine: EngineView, now: float) -> float:
        """Read the new events and the clock; return when to look again."""
        state, last = self._state, self._grown_to
        many = added = 0
        for seq, event in self._parts.store.read_events(
            after=state.cursor, kinds=READ_KINDS, limit=PAGE
        ):
            many += 1
            facts = self._job_facts(engine, (event.job,), now)
            for note in read_event(state.memory, seq, event, facts):
                added += self._put_note(note, now)
            state.cursor = seq
        if many < PAGE:
            state.cursor = max(state.cursor, last)
        timed, look_at = self._add_timed(engine, now)
        self._unsaved |= many > 0
        if added or timed or now >= self._saved_at + SAVE_S:
            self._save(now)
        return now if many == PAGE else look_at

    def _job_facts(
        self, engine: EngineView, names: Sequence[str], now: float
    ) -> dict[str, JobFacts]:
        rows, slots = engine.stored_jobs(), engine.slot_history().slots
        found = {}
        for name in names:
            row = rows.get(name)
            if row is None:
                continue
            sweep, most = row.document.get("sweep"), row.document.get("max_cost")
            costs = (total_cost(slots.get(one, SlotHistory()), now) for one in row.slot_names)
            found[name] = JobFacts(
                job=name,
                slots=row.slot_names,
                sweep=bool(sweep),
                items=isinstance(sweep, Mapping) and bool(sweep.get("items")),
                made_at=row.made_at,
                cost=sum(costs),
                max_cost=float(most) if isinstance(most, int | float) else None,
            )
        return found

    def _put_note(self, note: Note, now: float) -> bool:
        """Add a note to the outboxes of those who want it, without secrets."""
        takers = [one for one in self._receivers_of(note.job) if wants_note(one.spec, note)]
        if takers:
            clean = self._without_secrets(note)
            for one in takers:
                add_notes(self._box(one), [clean], now)
        return bool(takers)

    def _without_secrets(self, note: Note) -> Note:
        hidden = [value for one in self._known.values() for value in one.secrets]
        if note.job:
            hidden += self._parts.secrets.get(note.job).values()
        title, text = hide_values(note.title, hidden), hide_values(note.text, hidden)
        return replace(note, title=title, text=text)

    def _box(self, receiver: ReadyReceiver) -> Outbox:
        return self._state.boxes.setdefault(receiver.key, Outbox(title=receiver.title))

    def _add_timed(self, engine: EngineView, now: float) -> tuple[bool, float]:
        """Add what time has led to; return whether there was any, and when to look again."""
        rows = engine.stored_jobs()
        watched = [
            name
            for name, row in rows.items()
            if "max_cost" in row.document
            or (name in self._state.memory.jobs and self._state.memory.jobs[name].waits)
        ]
        facts = self._job_facts(engine, watched, now)
        of_receiver: dict[str, dict[str, JobFacts]] = {}
        for name in watched:
            for one in self._receivers_of(name):
                of_receiver.setdefault(one.key, {})[name] = facts[name]
        any_new, look_at = False, inf
        for key, jobs in of_receiver.items():
            receiver = self._known[key]
            box = self._box(receiver)
            notes, at = timed_notes(self._state.memory, jobs, receiver.spec, box.told, now)
            add_notes(box, map(self._without_secrets, notes), now)
            any_new, look_at = any_new or bool(notes), min(look_at, at)
        return any_new, look_at

    def _save(self, now: float) -> None:
        """Save the state where somebody may be told; a full disk is only noted."""
        self._saved_at = now
        if not self._unsaved and not self._state.boxes:
            return
        if not self._known and not self._state.boxes:
            return
        try:
            save_notify_state(self._parts.folder, self._state)
            self._unsaved = False
        except OSError as error:
            self._parts.log("notify.unsaved", {"why": str(error)})

    # ---- sending ---------------------------------------------------------------------------------

    def _start_due(self, engine: EngineView, group: asyncio.TaskGroup, now: float) -> float:
        """Start what is due; return when the next message is."""
        next_at = inf
        for key, box in self._state.boxes.items():
            if key in self._flying or key not in self._known:
                continue
            receiver = self._known[key]
            at = due_at(box, receiver.spec.digest, now)
            if at <= now:
                self._flying.add(key)
                group.create_task(self._deliver(engine, receiver, box))
            else:
                next_at = min(next_at, at)
        return next_at

    async def _deliver(self, engine: EngineView, receiver: ReadyReceiver, box: Outbox) -> None:
        """Send what waits for one receiver, and record what became of it."""
        try:
            async with self._slots_free:
                now = self._parts.clock.now()
                message = compose_message(box, self._parts.origin, now)
                problem = await self._parts.send(receiver, message)
        finally:
            self._flying.discard(receiver.key)
        now, facts = self._parts.clock.now(), {"receiver": receiver.title, "id": message.id}
        if problem is None:
            mark_sent(box, len(message.notes), message.more, now)
            self._parts.log("notify.sent", facts)
        else:
            self._parts.log("notify.failed", {**facts, "why": problem.sentence})
            if lost := mark_failed(box, problem, now):
                self._record_loss(engine, receiver.title, lost, problem.sentence)
        self._save(now)
        self._show_trouble(engine)
        self._woken.set()
        engine.stir()

    def _record_loss(self, engine: EngineView, title: str, many: int, why: str) -> None:
        engine.record_event("notify.gave_up", {"receiver": title, "notes": many, "why": why})

    def _show_trouble(self, engine: EngineView) -> None:
        """Let commands show the receivers that fail again and again."""
        bad = [box for box in self._state.boxes.values() if box.tries >= FAILING]
        if bad:
            said = "; ".join(f"{box.title}: {box.error}" for box in bad[:3])
            engine.note_trouble(NOTIFY, said, "herd notify list")
        elif self._troubled:
            engine.end_trouble(NOTIFY)
        self._troubled = bool(bad)
