"""The books: every second is in one state, whatever happens, and in the right one where we know."""

from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tpuherd.core.goodput import MEANINGS, Account, State, ratio, recoveries
from tpuherd.core.ledger import accounts
from tpuherd.core.model import Event, Offer
from tpuherd.core.trail import Verdict

START = 1_800_000_000.0
SLOT = "gpt-0"
PRICE = 3600.0  #: a dollar a second


class History:
    """Writes the log of one slot, and beside it where its time really went."""

    def __init__(self) -> None:
        self.now = START
        self.events: list[Event] = []
        self.truth: Counter[State] = Counter()
        self.cost = 0.0
        self.lost = 0
        self.number = self.generation = 0
        self.since: float | None = None
        self.tell("wish.made", slot="")

    @property
    def bid(self) -> str:
        return f"{SLOT}-g{self.generation}-7kq"

    @property
    def attempt(self) -> str:
        return f"{SLOT}-a{self.number}-7kq"

    def tell(self, kind: str, *, slot: str = SLOT, **facts: Any) -> None:
        self.events.append(Event(at=self.now, kind=kind, job="gpt", slot=slot, facts=facts))

    def wait(self, seconds: float, state: State) -> None:
        self.now += seconds
        self.truth[state] += seconds  # type: ignore[assignment]
        if self.since is not None:
            self.cost += seconds

    def ask(self, zone: str = "z") -> None:
        self.generation += 1
        offer = asdict(Offer(zone=zone, type="v4-32", runtime="r", tier="spot", price=PRICE))
        self.tell("bid.asked", bid=self.bid, generation=self.generation, offer=offer, nodes=1,
                  node_digest="d")  # fmt: skip

    def get(self, queue: float, provision: float, setup: float) -> None:
        """A node, from the ask to prepared hosts."""
        self.ask()
        first = State.QUEUE_FIRST if self.generation == 1 else State.CAPACITY_WAIT
        self.wait(queue, first)
        self.tell("bid.granted", bid=self.bid)
        self.wait(provision, State.PROVISION)
        self.tell("bid.ready", bid=self.bid)
        self.since = self.now
        self.wait(setup, State.HOST_SETUP)
        self.tell("slot.prepared", bid=self.bid, code_digest="c", on=[])

    def launch(self, starting: float, **facts: Any) -> None:
        """An attempt until its first step."""
        self.number += 1
        self.tell("attempt.launched", attempt=self.attempt, number=self.number, bid=self.bid,
                  code_digest="c")  # fmt: skip
        self.tell("attempt.started", attempt=self.attempt)
        self.wait(starting, State.STARTING)
        self.tell("attempt.stepped", attempt=self.attempt, **facts)

    def end(self, verdict: Verdict, **facts: Any) -> None:
        self.tell("attempt.ended", attempt=self.attempt, verdict=verdict.value, why=str(verdict),
                  **facts)  # fmt: skip

    def lose(self) -> None:
        self.tell("bid.lost", bid=self.bid, how="preempted")
        self.since = None

    def account(self) -> Account:
        return accounts(self.events, self.now)[SLOT]


def check_sums(account: Account) -> None:
    """One state at any time, from the wish until the end."""
    if not account.spans:
        assert account.start == account.end
        return
    assert account.spans[0].start == account.start
    assert account.spans[-1].end == account.end
    for before, after in pairwise(account.spans):
        assert before.end == after.start
        assert before.state is not after.state
    assert all(span.start < span.end for span in account.spans)
    assert sum(account.seconds.values()) == account.end - account.start


def test_every_state_is_explained() -> None:
    assert set(MEANINGS) == set(State)


UNSEEN = {
    Verdict.PREEMPTED: State.DETECT,
    Verdict.FAILURE: State.PROCESS_DOWN,
    Verdict.STALLED: State.HUNG,
}


def live(story: History, chance: Random, step: int) -> tuple[int, bool]:
    """One attempt of a step a second, with a checkpoint now and then, until something ends it.

    The step that the next one resumes from, and whether the node is still there.
    """
    told = {"resumed": step} if chance.random() < 0.5 else {}
    saved = resumed = step
    story.launch(chance.randrange(1, 100), step=step, **told)
    works_at = story.now
    for _ in range(chance.randrange(1, 5)):
        story.now += (more := chance.randrange(1, 300))
        step += more
        if chance.random() < 0.7:
            saved = step
            story.tell("attempt.saved", attempt=story.attempt, step=step)
    last_at = story.now
    story.now += (unseen := chance.randrange(1, 60))
    verdict = chance.choice(list(UNSEEN))
    story.truth[UNSEEN[verdict]] += unseen
    story.cost += story.now - works_at
    story.end(verdict, last_at=last_at, step=step)
    story.truth[State.PRODUCTIVE] += saved - resumed
    story.truth[State.WASTED] += step - saved
    story.lost += step - saved
    if verdict is not Verdict.PREEMPTED:
        story.wait(chance.randrange(1, 9), State.PROCESS_DOWN)
        return saved, True
    story.lose()
    story.wait(chance.randrange(1, 9), State.CONTROLLER_GAP)
    return saved, False


@pytest.mark.parametrize("seed", range(60))
def test_the_books_are_the_truth(seed: int) -> None:
    chance = Random(seed)
    story = History()
    step, there = 0, False
    for _ in range(chance.randrange(1, 12)):
        if not there:
            story.get(*(chance.randrange(1, 500) for _ in range(3)))
        step, there = live(story, chance, step)
    if not there:
        story.get(1, 1, 1)
    story.launch(5, step=step)  # only now it shows what the last one lost
    story.wait(1, State.PRODUCTIVE)
    account = story.account()
    check_sums(account)
    assert {state: time for state, time in story.truth.items() if time} == account.seconds
    assert account.steps_lost == story.lost
    assert account.cost == pytest.approx(story.cost)
    goodput = story.truth[State.PRODUCTIVE] / (story.now - START)
    assert account.goodput == pytest.approx(goodput)


KINDS: dict[str, dict[str, Any]] = {
    "wish.made": {},
    "wish.changed": {"goal": "idle"},
    "wish.stopped": {},
    "wish.resumed": {"goal": "run"},
    "wish.dropped": {},
    "bid.asked": {"generation": 1, "nodes": 1, "node_digest": "d"},
    "bid.granted": {},
    "bid.ready": {},
    "bid.refused": {"refusal": "stockout", "sentence": "no"},
    "bid.lost": {"how": "preempted"},
    "bid.withdrawn": {},
    "bid.gone": {},
    "bid.from_a_newer_herd": {},
    "slot.prepared": {"code_digest": "c", "on": []},
    "attempt.launched": {"code_digest": "c"},
    "attempt.started": {},
    "attempt.stepped": {},
    "attempt.saved": {},
    "attempt.stopping": {"why": "w", "grace_s": 1},
    "attempt.ended": {},
    "slot.done": {"why": "w"},
    "slot.gave_up": {"why": "w"},
    "engine.started": {},
}


def nonsense(chance: Random, now: float) -> Event:
    """Some event, whether it makes sense or not."""
    kind = chance.choice(sorted(KINDS))
    slot = "" if kind[:4] in ("wish", "engi") else f"gpt-{chance.randrange(2)}"
    number = chance.randrange(1, 5)
    facts: dict[str, Any] = dict(KINDS[kind])
    if kind[:4] in ("bid.", "slot") or kind == "attempt.launched":
        facts["bid"] = f"{slot}-g{number}-7kq"
    if kind == "bid.asked":
        offer = Offer(zone="z", type="t", runtime="r", tier="spot",
                      price=chance.choice([None, 1.0]))  # fmt: skip
        facts |= {"offer": asdict(offer), "generation": number}
    if kind.startswith("attempt."):
        facts |= {"attempt": f"{slot}-a{number}-7kq", "number": number}
        facts["step"] = chance.randrange(1000)
    if kind == "attempt.stepped" and chance.random() < 0.5:
        facts |= {"resumed": chance.randrange(1000), "restore_s": chance.randrange(100)}
    if kind == "attempt.ended":
        facts["verdict"] = chance.choice([verdict.value for verdict in Verdict])
        facts["last_at"] = now - chance.randrange(-100, 2000)
    job = "" if kind[:4] == "engi" else "gpt"
    return Event(at=now, kind=kind, job=job, slot=slot, facts=facts)


@pytest.mark.parametrize("seed", range(300))
def test_whatever_the_log_says_every_second_has_one_state(seed: int) -> None:
    chance = Random(seed)
    now, events = START, []
    for _ in range(chance.randrange(1, 200)):
        now += chance.choice([0, 1, 7, 500, -3])  # also a clock that is set back
        events.append(nonsense(chance, now))
    for account in accounts(events, now + 10).values():
        check_sums(account)
        goodput = account.goodput
        assert goodput is None or 0 <= goodput <= 1
        for recovery in recoveries(account):
            assert sum(recovery.seconds.values()) == max(0, recovery.until - recovery.at)


def test_a_command_that_tells_of_no_steps_works_from_its_start() -> None:
    story = History()
    story.get(10, 20, 30)
    story.number = 1
    story.tell("attempt.launched", attempt=story.attempt, number=1, bid=story.bid, code_digest="c")
    story.wait(2, State.STARTING)
    story.tell("attempt.started", attempt=story.attempt)
    story.wait(100, State.PRODUCTIVE)
    story.end(Verdict.SUCCESS)
    story.tell("slot.done", why="it succeeded")
    story.wait(50, State.DONE)
    account = story.account()
    assert account.seconds == story.truth
    assert account.wanted_s == 162
    assert account.goodput == 100 / 162
    assert (account.state, account.over_why) == (State.DONE, "it succeeded")


def test_a_recovery_is_told_in_its_parts() -> None:
    story = History()
    story.get(10, 20, 30)
    story.launch(5, step=0)
    story.wait(100, State.PRODUCTIVE)
    story.tell("attempt.saved", attempt=story.attempt, step=100)
    story.wait(40, State.WASTED)
    last_at = story.now
    story.wait(3, State.DETECT)
    story.end(Verdict.PREEMPTED, last_at=last_at, step=140)
    story.lose()
    story.wait(1, State.CONTROLLER_GAP)
    story.get(50, 20, 30)
    story.wait(0, State.CONTROLLER_GAP)
    story.launch(10, step=101, resumed=100, restore_s=4)
    story.truth[State.STARTING] -= 4
    story.truth[State.RESTORE] += 4
    story.wait(10, State.PRODUCTIVE)
    account = story.account()
    assert account.seconds == story.truth
    (recovery,) = recoveries(account)
    assert recovery.over
    assert recovery.steps_lost == 40
    assert recovery.until - recovery.at == 3 + 1 + 50 + 20 + 30 + 10
    assert recovery.parts == {
        "detect": 3, "queue": 50, "provision": 20, "setup": 30, "restore": 10, "gap": 1,
    }  # fmt: skip


def test_the_first_refusals_are_a_first_queue_and_a_pause_is_waiting_too() -> None:
    story = History()
    story.wait(1, State.CONTROLLER_GAP)
    story.ask()
    story.wait(5, State.QUEUE_FIRST)
    story.tell("bid.refused", bid=story.bid, refusal="stockout", sentence="none left")
    story.wait(60, State.QUEUE_FIRST)
    account = story.account()
    assert account.seconds == story.truth
    assert account.goodput is None


def test_stopped_time_does_not_count_and_a_new_life_begins_at_nothing() -> None:
    story = History()
    story.get(1, 1, 1)
    story.launch(1, step=0)
    story.wait(10, State.PRODUCTIVE)
    story.tell("wish.stopped", slot="")
    story.wait(1000, State.STOPPED)
    account = story.account()
    assert account.seconds == story.truth
    assert account.wanted_s == 14
    story.tell("wish.made", slot="")
    made_at = story.now
    story.now += 5
    story.ask()
    again = story.account()
    assert (again.start, again.runs) == (made_at, ())


def test_a_slot_that_joins_later_is_counted_from_the_change() -> None:
    story = History()
    story.ask()
    story.now += 100
    story.tell("wish.changed", slot="")
    story.now += 2
    story.events.append(
        Event(at=story.now, kind="slot.done", job="gpt", slot="gpt-1", facts={"why": ""})
    )
    both = accounts(story.events, story.now)
    assert (both["gpt-0"].start, both["gpt-1"].start) == (START, START + 100)


def test_a_node_without_a_command_is_idle_and_has_no_goodput() -> None:
    story = History()
    story.events[0] = Event(at=START, kind="wish.made", job="gpt", facts={"goal": "idle"})
    story.get(1, 2, 3)
    story.wait(100, State.IDLE)
    account = story.account()
    assert account.seconds == story.truth
    assert account.goodput is None
    assert (account.per_hour, account.cost) == (PRICE, 103)
    assert ratio([account]) is None
