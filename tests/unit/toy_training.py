"""A toy of a job in stormy weather, step by step: the event log that it leaves.

It knows nothing of accounts and replays, so that it can check them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from tests.unit.event_stories import SLOT, START
from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.goodput import SlotAccount
from tpuherd.model.slots_and_plan import HistoryEvent, Offer

RECORD_S = 60.0  #: checkpoints are recorded no more often
LIFE_S = 3600.0
APART_S = 2000.0  #: between two strikes: none comes while another is dealt with, or a hang


@dataclass(frozen=True, kw_only=True)
class ToyProgram:
    """What the command does."""

    step_s: float = 7.0
    save_every: int = 130
    block_s: float = 4.0
    took_s: float = 11.0
    setup_s: float = 240.0
    early_s: float = 0.0  #: of the set-up, before READY
    boot_s: float = 35.0
    compile_s: float = 60.0
    compile_again_s: float = 60.0  #: from the second attempt on
    stall_s: float = 900.0
    saves_at_term: bool = False
    crashes: Mapping[int, int] = field(default_factory=dict)  #: attempt to steps until then
    hangs: Mapping[int, int] = field(default_factory=dict)  #: attempt to steps until then
    steps: int = 10**9


@dataclass(frozen=True, kw_only=True)
class Strike:
    """The node is taken."""

    at: float
    notice: bool
    queue_s: float  #: until the next is granted
    create_s: float


def draw_strikes(seed: int, hours: float) -> list[Strike]:
    chance, at, strikes = Random(seed), START, []
    while at < START + hours * 3600.0:
        at += APART_S + chance.expovariate(1 / (LIFE_S - APART_S))
        strikes.append(
            Strike(
                at=at,
                notice=chance.random() < 0.5,
                queue_s=chance.uniform(1.0, 120.0),
                create_s=chance.uniform(40.0, 100.0),
            )
        )
    return strikes


class ToyJob:
    """One slot, from its submission to its end."""

    def __init__(self, program: ToyProgram, strikes: Sequence[Strike]) -> None:
        self.program = program
        self.strikes = list(strikes)
        self.events: list[HistoryEvent] = []
        self.now = START
        self.number = self.generation = 0
        self.saved = 0
        self.over = False

    def tell(self, kind: str, at: float | None = None, **facts: Any) -> None:
        when = self.now if at is None else at
        self.events.append(HistoryEvent(at=when, kind=kind, job="gpt", slot=SLOT, facts=facts))

    @property
    def bid(self) -> str:
        return f"{SLOT}-g{self.generation}-7kq"

    @property
    def attempt(self) -> str:
        return f"{SLOT}-a{self.number}-7kq"

    def live(self, until: float) -> SlotAccount:
        """Run until then, or to the last step."""
        self.events.append(HistoryEvent(at=START, kind="job.submitted", job="gpt", facts={}))
        self.get_node(20.0, 60.0)
        while self.now < until and not self.over:
            self.run_attempt(until)
        end = self.now if self.over else until
        known = sorted((one for one in self.events if one.at <= end), key=lambda one: one.at)
        return build_accounts(known, end)[SLOT]

    def get_node(self, queue_s: float, create_s: float) -> None:
        self.generation += 1
        offer = asdict(Offer(zone="z", type="v4-32", runtime="r", tier="spot", price=8.0))
        self.tell("bid.requested", bid=self.bid, generation=self.generation, offer=offer, nodes=1,
                  node_digest="d")  # fmt: skip
        self.now += queue_s
        self.tell("bid.granted", bid=self.bid)
        self.now += create_s
        self.tell("bid.ready", bid=self.bid)
        took_s = self.program.setup_s
        self.now += max(0.0, took_s - self.program.early_s)
        self.tell("slot.prepared", bid=self.bid, code_digest="c", hosts=[], took_s=took_s)

    def run_attempt(self, until: float) -> None:
        """One attempt, to whatever ends it."""
        program = self.program
        self.number += 1
        facts: dict[str, Any] = {"number": self.number, "bid": self.bid, "code_digest": "c"}
        self.tell("attempt.launched", attempt=self.attempt, **facts)
        self.tell("attempt.started", attempt=self.attempt)
        compile_s = program.compile_s if self.number == 1 else program.compile_again_s
        self.now += program.boot_s + compile_s + program.step_s
        step = resumed = self.saved
        step += 1
        startup = {"python_s": 1.0, "import_s": program.boot_s - 1.0, "compile_s": compile_s,
                   "first_step_s": program.step_s}  # fmt: skip
        self.tell("attempt.first_step", attempt=self.attempt, step=step, resumed=resumed,
                  startup=startup)  # fmt: skip
        saves: list[tuple[float, int]] = []  #: when durable, and the step
        while True:
            if step % program.save_every == 0 and step > resumed:
                saves.append((self.now + program.took_s, step))
                self.now += program.block_s
            if step >= program.steps:
                return self.end("success", step, step, saves, last_at=self.now)
            if program.crashes.get(self.number) == step - resumed:
                return self.fail("failure", step, saves, 12.0)
            if program.hangs.get(self.number) == step - resumed:
                return self.fail("stalled", step, saves, program.stall_s)
            if self.strikes and self.strikes[0].at <= self.now + program.step_s:
                return self.strike(step, saves)
            if self.now > until:
                return self.record_saves(saves, self.now)
            self.now += program.step_s
            step += 1

    def strike(self, step: int, saves: list[tuple[float, int]]) -> None:
        """The node goes away before the next step is over."""
        strike, last_at = self.strikes.pop(0), self.now
        self.now = max(self.now, strike.at)
        if strike.notice:
            self.tell("attempt.stopping", attempt=self.attempt, why="notice", grace_s=25.0)
        if strike.notice and self.program.saves_at_term:
            last_at = self.now = last_at + self.program.step_s
            self.now += self.program.took_s
            step += 1
            saves.append((self.now, step))
        kept = max((at_step for at, at_step in saves if at <= self.now), default=self.saved)
        self.end("preempted", step, kept, saves, last_at=last_at)
        self.now += 2.0
        self.tell("bid.lost", bid=self.bid, cause="preempted")
        self.now = max(last_at, strike.at) + 2.0 if not strike.notice else strike.at
        self.get_node(strike.queue_s, strike.create_s)

    def fail(self, verdict: str, step: int, saves: list[tuple[float, int]], pause_s: float) -> None:
        """The attempt ends on a node that stays."""
        last_at = self.now
        self.now += 0.0 if verdict == "failure" else pause_s
        kept = max((at_step for at, at_step in saves if at <= self.now), default=self.saved)
        self.end(verdict, step, kept, saves, last_at=last_at)
        self.now += 12.0

    def end(
        self, verdict: str, step: int, kept: int, saves: list[tuple[float, int]], last_at: float
    ) -> None:
        self.record_saves(saves, self.now)
        self.saved = kept
        self.tell("attempt.ended", attempt=self.attempt, verdict=verdict, why=verdict, step=step,
                  saved=kept, last_at=last_at, **self.save_facts(saves, self.now))  # fmt: skip
        if verdict == "success":
            self.over = True
            self.tell("slot.done", why="it succeeded")

    def record_saves(self, saves: Sequence[tuple[float, int]], until: float) -> None:
        """As the engine does, at most once a minute."""
        last, known = float("-inf"), 0
        for at, step in saves:
            due = max(at, last + RECORD_S)
            durable = [one for when, one in saves if when <= due]
            if due > until or at > until or durable[-1] <= known:
                continue
            last, known = due, durable[-1]
            self.tell("attempt.saved", at=due, attempt=self.attempt, step=known,
                      **self.save_facts(saves, due))  # fmt: skip
            del step

    def save_facts(self, saves: Sequence[tuple[float, int]], at: float) -> dict[str, float]:
        many = sum(when <= at for when, _ in saves)
        program = self.program
        return {
            "saves": many,
            "save_blocked_s": many * program.block_s,
            "save_took_s": program.took_s,
        }
