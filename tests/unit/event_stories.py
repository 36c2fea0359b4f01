"""Event logs of one slot with known truth, and random ones."""

from collections import Counter
from dataclasses import asdict
from random import Random
from typing import Any

from tpuherd.accounting.accounts import build_accounts
from tpuherd.accounting.goodput import GoodputState, SlotAccount
from tpuherd.model.slot_history import Verdict
from tpuherd.model.slots_and_plan import HistoryEvent, Offer

START = 1_800_000_000.0
SLOT = "gpt-0"
PRICE = 3600.0  #: a dollar a second


class StoryLog:
    """Writes the log of one slot, and beside it where its time really went."""

    def __init__(self, start: float = START) -> None:
        self.now = start
        self.events: list[HistoryEvent] = []
        self.truth: Counter[GoodputState] = Counter()
        self.cost = 0.0
        self.lost = 0
        self.number = self.generation = 0
        self.since: float | None = None
        self.tell("job.submitted", slot="")

    @property
    def bid(self) -> str:
        return f"{SLOT}-g{self.generation}-7kq"

    @property
    def attempt(self) -> str:
        return f"{SLOT}-a{self.number}-7kq"

    def tell(self, kind: str, *, slot: str = SLOT, **facts: Any) -> None:
        self.events.append(HistoryEvent(at=self.now, kind=kind, job="gpt", slot=slot, facts=facts))

    def wait(self, seconds: float, state: GoodputState) -> None:
        self.now += seconds
        self.truth[state] += seconds  # type: ignore[assignment]
        if self.since is not None:
            self.cost += seconds

    def ask(self, zone: str = "z") -> None:
        self.generation += 1
        offer = asdict(Offer(zone=zone, type="v4-32", runtime="r", tier="spot", price=PRICE))
        self.tell("bid.requested", bid=self.bid, generation=self.generation, offer=offer, nodes=1,
                  node_digest="d")  # fmt: skip

    def get(self, queue: float, provision: float, setup: float) -> None:
        """A node, from the ask to prepared hosts."""
        self.ask()
        first = GoodputState.QUEUE_FIRST if self.generation == 1 else GoodputState.CAPACITY_WAIT
        self.wait(queue, first)
        self.tell("bid.granted", bid=self.bid)
        self.wait(provision, GoodputState.PROVISION)
        self.tell("bid.ready", bid=self.bid)
        self.since = self.now
        self.wait(setup, GoodputState.HOST_SETUP)
        self.tell("slot.prepared", bid=self.bid, code_digest="c", hosts=[])

    def launch(self, starting: float, **facts: Any) -> None:
        """An attempt until its first step."""
        self.number += 1
        self.tell("attempt.launched", attempt=self.attempt, number=self.number, bid=self.bid,
                  code_digest="c")  # fmt: skip
        self.tell("attempt.started", attempt=self.attempt)
        self.wait(starting, GoodputState.STARTING)
        self.tell("attempt.first_step", attempt=self.attempt, **facts)

    def end(self, verdict: Verdict, **facts: Any) -> None:
        self.tell("attempt.ended", attempt=self.attempt, verdict=verdict.value, why=str(verdict),
                  **facts)  # fmt: skip

    def lose(self) -> None:
        self.tell("bid.lost", bid=self.bid, cause="preempted")
        self.since = None

    def account(self) -> SlotAccount:
        return build_accounts(self.events, self.now)[SLOT]


def started() -> StoryLog:
    """A command that has started without reporting a step."""
    story = StoryLog()
    story.get(10, 20, 30)
    story.number = 1
    story.tell("attempt.launched", attempt=story.attempt, number=1, bid=story.bid, code_digest="c")
    story.wait(2, GoodputState.STARTING)
    story.tell("attempt.started", attempt=story.attempt)
    return story


def struck(**facts: Any) -> StoryLog:
    """A job that saved at its step 100, worked on, and lost its node at its step 140."""
    story = StoryLog()
    story.get(10, 20, 30)
    story.launch(5, step=0)
    story.wait(100, GoodputState.PRODUCTIVE)
    story.tell("attempt.saved", attempt=story.attempt, step=100)
    story.wait(40, GoodputState.WASTED)
    last_at = story.now
    story.wait(3, GoodputState.DETECT)
    story.end(Verdict.PREEMPTED, last_at=last_at, step=140, **facts)
    story.lose()
    return story


KINDS: dict[str, dict[str, Any]] = {
    "job.submitted": {},
    "job.changed": {"goal": "idle"},
    "job.stopped": {},
    "job.resumed": {"goal": "run"},
    "job.removed": {},
    "bid.requested": {"generation": 1, "nodes": 1, "node_digest": "d"},
    "bid.granted": {},
    "bid.ready": {},
    "bid.refused": {"refusal": "stockout", "message": "no"},
    "bid.unhealthy": {"state": "silent", "code": "silent", "since": START},
    "bid.healthy": {"code": "silent", "paused_s": 9.0},
    "bid.lost": {"cause": "preempted"},
    "bid.withdrawn": {},
    "bid.deleted": {},
    "bid.from_a_newer_herd": {},
    "slot.prepared": {"code_digest": "c", "hosts": []},
    "attempt.launched": {"code_digest": "c"},
    "attempt.started": {},
    "attempt.first_step": {},
    "attempt.saved": {},
    "attempt.stopping": {"why": "w", "grace_s": 1},
    "attempt.ended": {},
    "slot.done": {"why": "w"},
    "slot.gave_up": {"why": "w"},
    "engine.started": {},
}


def nonsense(chance: Random, now: float) -> HistoryEvent:
    """Some event, whether it makes sense or not."""
    kind = chance.choice(sorted(KINDS))
    slot = "" if kind[:4] in ("job.", "engi") else f"gpt-{chance.randrange(2)}"
    number = chance.randrange(1, 5)
    facts: dict[str, Any] = dict(KINDS[kind])
    if kind[:4] in ("bid.", "slot") or kind == "attempt.launched":
        facts["bid"] = f"{slot}-g{number}-7kq"
    if kind == "bid.requested":
        offer = Offer(zone="z", type="t", runtime="r", tier="spot",
                      price=chance.choice([None, 1.0]))  # fmt: skip
        facts |= {"offer": asdict(offer), "generation": number}
    if kind.startswith("attempt."):
        facts |= {"attempt": f"{slot}-a{number}-7kq", "number": number}
        facts["step"] = chance.randrange(1000)
    if kind == "attempt.first_step" and chance.random() < 0.5:
        facts |= {"resumed": chance.randrange(1000), "restore_s": chance.randrange(100)}
    if kind == "attempt.ended":
        facts["verdict"] = chance.choice([verdict.value for verdict in Verdict])
        facts["last_at"] = now - chance.randrange(-100, 2000)
    job = "" if kind[:4] == "engi" else "gpt"
    return HistoryEvent(at=now, kind=kind, job=job, slot=slot, facts=facts)
