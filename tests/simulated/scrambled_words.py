"""A history twice, the second time with random words for every sentence: nothing else may differ.

Sentences are replaced where they are made: in the values that carry them (SENTENCES), in errors, in
facts of events, and in all that agents send. What the cloud answers stays as it is: Google gives
some refusals as prose only, and `cloud` is the one reader that makes codes of them.
"""

import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from itertools import zip_longest
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulated import engine_agent_effects
from tests.simulated.engine_harness import EngineHarness
from tests.simulated.engine_harness_parts import WITNESSES
from tpuherd.accounting.accounts import build_accounts
from tpuherd.engine import loop
from tpuherd.engine.host_failures import HostFailure
from tpuherd.errors import HerdError
from tpuherd.jobs.job_queries import slot_ending
from tpuherd.model.observed import BidObservation, HostRun, HostStatus
from tpuherd.model.slots_and_plan import EnginePlan, Goal, HistoryEvent, PlannedStep
from tpuherd.model.trouble import TroubleRecord
from tpuherd.notify.choose_notes import read_event
from tpuherd.notify.notes import JobFacts, NotifyMemory
from tpuherd.planner.gang_progress import GangMember, Pending
from tpuherd.planner.plan import plan_round
from tpuherd.planner.retry_limits import ReachedLimit
from tpuherd.planner.verdict import AttemptEnd
from tpuherd.planner.zone_choice import OfferChoice
from tpuherd.views.job_rows import slot_phase
from tpuherd_host.agent import frames
from tpuherd_host.agent.state_machine import messages

#: Values that carry sentences, and in which fields.
SENTENCES: Mapping[type[Any], tuple[str, ...]] = {
    PlannedStep: ("why",),
    EnginePlan: ("states", "frozen"),
    HistoryEvent: ("facts",),
    BidObservation: ("sentence",),
    HostRun: ("why",),
    HostStatus: ("trouble",),
    HostFailure: ("sentence",),
    Pending: ("broken",),
    GangMember: ("lost",),
    AttemptEnd: ("why",),
    ReachedLimit: ("why",),
    OfferChoice: ("why_not", "fatal"),
    TroubleRecord: ("sentence", "hint"),
}
#: Lines of logs, into which agents write, too.
LINES = frozenset({"tail", "lines"})
#: Keys of sentences in facts of events and in messages of agents.
KEYS = frozenset({"why", "hint", "message", "sentence", "trouble"})
WORDS = KEYS | LINES
made: set[str] = set()  #: words that stand for a sentence: they stay when a value is copied


def scramble(text: str) -> str:
    """Random words, the same for the same sentence; none for none."""
    if not text or text in made:
        return text
    dice = Random(text)
    words = ("".join(dice.choices(string.ascii_letters, k=dice.randint(2, 9))) for _ in range(9))
    found = " ".join(words)
    made.add(found)
    return found


def scramble_all(content: Any) -> Any:
    """Every text in a value that holds nothing but sentences."""
    if isinstance(content, str):
        return scramble(content)
    if isinstance(content, Mapping):
        return {key: scramble_all(value) for key, value in content.items()}
    return type(content)(map(scramble_all, content)) if isinstance(content, tuple) else content


def scramble_keys(content: Any) -> Any:
    """The sentences in facts or in a message; the rest as it is."""
    if isinstance(content, Mapping):
        return {
            key: scramble_all(value) if key in KEYS else scramble_keys(value)
            for key, value in content.items()
        }
    if isinstance(content, list | tuple):
        return type(content)(map(scramble_keys, content))
    return content


def is_scrambling() -> bool:
    return HerdError.__init__ is scrambled_error


def scrambled_init(real: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
    """The constructor of a value, with random words in these fields."""

    def construct(self: Any, **given: Any) -> None:
        for name in names:
            if name in given:
                change = scramble_keys if name == "facts" else scramble_all
                given[name] = change(given[name])
        real(self, **given)

    return construct


real_error = HerdError.__init__


def scrambled_error(self: HerdError, sentence: str, *, hint: str = "") -> None:
    real_error(self, scramble(sentence), hint=scramble(hint))


def send_scrambled(machine: Any, effect: messages.SendFrame, real: Callable[..., None]) -> None:
    """A frame of an agent."""
    (frame,) = frames.FrameReader().feed(effect.frame)
    if frame.kind in (frames.HELLO, frames.REPLY, frames.FAIL, frames.EVENT):
        content = scramble_keys(frame.content)
        effect = effect._replace(frame=frames.pack_json(frame.kind, frame.id, content))
    real(machine, effect)


def note_scrambled(machine: Any, effect: messages.AppendNote, real: Callable[..., None]) -> None:
    """What an agent itself writes into a log."""
    real(machine, effect._replace(sentence=scramble(effect.sentence)))


CHANGES: Mapping[type[Any], Callable[..., None]] = {
    messages.SendFrame: send_scrambled,
    messages.AppendNote: note_scrambled,
}


@contextmanager
def scrambling() -> Iterator[None]:
    """All sentences are random words meanwhile."""
    effects: Any = engine_agent_effects.EFFECTS
    with pytest.MonkeyPatch.context() as patch:
        for kind, names in SENTENCES.items():
            patch.setattr(kind, "__init__", scrambled_init(kind.__init__, names))
        patch.setattr(HerdError, "__init__", scrambled_error)
        for kind, change in CHANGES.items():
            patch.setitem(effects, kind, partial(change, real=effects[kind]))
        yield


# ---- what is compared ----------------------------------------------------------------------------


def without_words(value: Any) -> Any:
    """A value without its sentences, to be compared and shown."""
    if is_dataclass(value) and not isinstance(value, type):
        words = {*SENTENCES.get(type(value), ())} - {"facts"}
        left = [one.name for one in fields(value) if one.name not in words]
        return type(value).__name__, {name: without_words(getattr(value, name)) for name in left}
    if isinstance(value, Mapping):
        return {str(key): without_words(one) for key, one in value.items() if key not in WORDS}
    if isinstance(value, list | tuple):
        return [without_words(one) for one in value]
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else value


def job_of(goal: Goal) -> Any:
    """A job as far as the exit status of `herd wait` needs it."""
    return SimpleNamespace(goal=goal)


@dataclass(kw_only=True)
class Account:
    """What a history came to, besides its sentences."""

    plans: list[str] = field(default_factory=list)  #: as they were decided
    events: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)  #: to the cloud
    alarms: list[str] = field(default_factory=list)  #: who would be told what
    states: list[str] = field(default_factory=list)  #: phases and exit statuses of slots
    faults: list[str] = field(default_factory=list)  #: what was wrong

    def read_end(self, play: EngineHarness) -> None:
        """At the end of a history."""
        events = play.history()
        folder = str(play.folder)  # another one each time
        self.events += [str(without_words(event)).replace(folder, "") for event in events]
        self.requests += [f"{one.at} {one.method} {one.name}" for one in play.sim.asked]
        memory = NotifyMemory()
        jobs: dict[str, tuple[str, ...]] = {}
        for event in events:
            slots = tuple(sorted({*jobs.get(event.job, ()), event.slot} - {""}))
            jobs[event.job] = slots
            known = {event.job: JobFacts(job=event.job, slots=slots)}
            for note in read_event(memory, 0, event, known):
                self.alarms.append(f"{note.at} {note.topics} {note.job} {note.slot} {note.count}")
        for many in range(0, len(events) + 1, max(1, len(events) // 20)):
            now = events[many - 1].at if many else play.clock.now()
            for name, account in build_accounts(events[:many], now).items():
                endings = [slot_ending(job_of(goal), account) for goal in (Goal.RUN, Goal.IDLE)]
                exits = [ending and ending[0] for ending in endings]
                self.states.append(f"{many} {name} {slot_phase(account)} {exits}")

    def plan(self, *given: Any) -> Any:
        """Plan, and note what was decided."""
        found, settled = plan_round(*given)
        self.plans.append(str(without_words(found)))
        return found, settled


def accounted(act: Callable[[], list[str]]) -> Account:
    """A history with its account."""
    account = Account()
    WITNESSES.append(account.read_end)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "plan_round", account.plan)
            account.faults = act()
    finally:
        WITNESSES.remove(account.read_end)
    return account


def differences(act: Callable[[], list[str]]) -> list[str]:
    """What is wrong in a history, or is otherwise once its sentences are random words."""
    plain = accounted(act)
    with scrambling():
        scrambled = accounted(act)
    found = list(plain.faults)
    for one in fields(Account):
        before, after = getattr(plain, one.name), getattr(scrambled, one.name)
        pairs = zip_longest(before, after, fillvalue="nothing")
        other = next(((a, b) for a, b in pairs if a != b), None)
        if other is not None:
            found.append(f"with random words other {one.name}: {other[0]} became {other[1]}")
    return found if plain.plans else [*found, "nothing was planned"]
