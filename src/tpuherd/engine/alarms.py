"""Report an engine's problems to people: as events, and at the top of what they read."""

from math import inf

from tpuherd.engine.dependencies import EngineDeps
from tpuherd.engine.event_log import EventLog
from tpuherd.errors import HerdError
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.trouble import STORE

AGAIN_S = 3600.0  #: after this time the same problem is an event again


class Alarms:
    """The alarms of one engine."""

    def __init__(self, parts: EngineDeps, past: EventLog) -> None:
        self._parts = parts
        self._past = past
        self._raised_at: dict[str, float] = {}
        self.unrenewed = False  #: the lease could not be renewed; only a renewal ends this

    def raise_alarm(self, sentence: str, *, hint: str = "", code: str = "") -> None:
        """Report a problem to people, with its source if that is known; work continues."""
        now = self._parts.clock.now()
        if now < self._raised_at.get(sentence, -inf) + AGAIN_S:
            return
        self._raised_at = {one: at for one, at in self._raised_at.items() if now < at + AGAIN_S}
        self._raised_at[sentence] = now
        text = f"{sentence} ({hint})" if hint else sentence
        self._parts.note("engine.problem", {"message": text})
        facts = {"message": text, "why": text, **({"code": code} if code else {})}
        self._past.pending.append(HistoryEvent(at=now, kind="engine.problem", facts=facts))

    def note_trouble(self, source: str, sentence: str, hint: str = "") -> None:
        """Store a problem that commands show first, until `end_trouble`."""
        try:
            now = self._parts.clock.now()
            self._parts.troubles.record_trouble(source, sentence, hint=hint, now=now)
        except OSError as error:
            self._parts.note("trouble.unwritten", {"source": source, "why": str(error)})

    def note_store_trouble(self, error: HerdError, *, renewing: bool = False) -> None:
        """Report that the store cannot be read or written."""
        self.unrenewed |= renewing
        self.raise_alarm(error.sentence, hint=error.hint, code=STORE)
        self.note_trouble(STORE, error.sentence, error.hint)

    def end_store_trouble(self) -> None:
        """Clear the store's problem after a complete round, unless the lease is not renewed."""
        if not self.unrenewed:
            self.end_trouble(STORE)

    def end_trouble(self, source: str) -> None:
        """Clear the problem of a source that works again."""
        try:
            self._parts.troubles.end_trouble(source)
        except OSError as error:
            self._parts.note("trouble.unwritten", {"source": source, "why": str(error)})
