"""Users who share quotas: over random labs, and in a closed loop with a toy cloud."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as some

from tests.unit.toy_cloud import Toy, offer, slot
from tpuherd.catalogue import accelerators
from tpuherd.model.lab_shares import LabShares, SharedQuota
from tpuherd.model.slot_history import BidRecord, History, SlotHistory, Verdict
from tpuherd.model.slots_and_plan import DesiredSlots, Goal, HistoryEvent, Slot, Stop
from tpuherd.planner.fair_share import AGED_S, KEEP_S, assign_turns
from tpuherd.planner.plan import plan

CHIPS = {name: accelerators()[name].chips for name in ("v4-8", "v4-16", "v4-32")}
ROUND_S = 60.0


def quota(chips: int, zone: str = "a", type: str = "v4") -> SharedQuota:
    return SharedQuota(zone=zone, type=type, tier="spot", chips=chips)


def member(job: str, user: str, many: int = 1, *, type: str = "v4-8", zones: str = "a",
           **changes: object) -> list[Slot]:  # fmt: skip
    offers = tuple(offer(zone, type=type, hosts=1) for zone in zones)
    return [slot(f"{job}-{at}", user=user, offers=offers, **changes) for at in range(many)]


# ---- the decision alone, over random labs --------------------------------------------------------


@dataclass
class Lab:
    """Nodes are granted as soon as they may be asked for, and given back as soon as asked."""

    slots: list[Slot]
    shares: LabShares
    now: float = 1_000_000.0
    held: dict[str, BidRecord] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)  #: how often a slot gave its node back
    had: set[str] = field(default_factory=set)

    def history(self) -> History:
        return History(
            slots={name: SlotHistory(bids={bid.name: bid}) for name, bid in self.held.items()}
        )

    def turn(self) -> dict[str, Slot]:
        """One round; returns the slots as the planner sees them."""
        self.now += ROUND_S
        desired = DesiredSlots(
            slots={one.name: one for one in self.slots}, owner="me", shares=self.shares
        )
        found = dict(assign_turns(desired, self.history(), self.now)[0].slots)
        for name, bid in list(self.held.items()):
            if name not in found:
                del self.held[name]
            elif (bid.offer.zone, bid.offer.type, bid.offer.tier) in found[name].shut:
                del self.held[name]
                self.lost[name] += 1
        # What is given back in this round is free in the next one.
        for name, one in found.items():
            if name not in self.held and one.offers:
                self.held[name] = BidRecord(
                    name=f"{name}-g1-me", slot=name, generation=1, offer=one.offers[0],
                    node_digest="n", nodes=one.nodes, asked_at=self.now, granted_at=self.now,
                )  # fmt: skip
                self.had.add(name)
        return found

    def settle(self, rounds: int = 60) -> None:
        for _ in range(rounds):
            self.turn()
            self.check()

    def used(self) -> dict[str, int]:
        """Chips by zone."""
        found: Counter[str] = Counter()
        for bid in self.held.values():
            found[bid.offer.zone] += CHIPS[bid.offer.type]
        return dict(found)

    def chips_of(self, user: str) -> int:
        names = {one.name for one in self.slots if one.user == user}
        return sum(CHIPS[bid.offer.type] for name, bid in self.held.items() if name in names)

    def check(self) -> None:
        """Never over quota."""
        for one in self.shares.quotas:
            assert self.used().get(one.zone, 0) <= one.chips


@some.composite
def labs(draw: some.DrawFn, *, types: tuple[str, ...] = ("v4-8",)) -> Lab:
    users = draw(some.integers(1, 4))
    slots: list[Slot] = []
    for number in range(draw(some.integers(1, 6))):
        slots += member(
            f"job{number}",
            f"user{draw(some.integers(1, users))}",
            draw(some.integers(1, 5)),
            type=draw(some.sampled_from(types)),
            zones=draw(some.sampled_from(("a", "b", "ab", "ba"))),
            priority=draw(some.integers(-1, 1)),
            trials=draw(some.booleans()),
            desired_since=float(draw(some.integers(0, 5000))),
        )
    weights = draw(some.dictionaries(
        some.sampled_from(("user1", "user2")), some.sampled_from((1.0, 2.0, 5.0))
    ))  # fmt: skip
    chips = some.integers(1, 8).map(lambda many: 4 * many)
    quotas = (quota(draw(chips)), quota(draw(chips), "b"))
    return Lab(slots, LabShares(agreed=True, weights=weights, quotas=quotas))


@settings(deadline=None, max_examples=40)
@given(labs(types=("v4-8", "v4-16", "v4-32")))
def test_never_over_quota_and_nobody_is_stopped_again_and_again(lab: Lab) -> None:
    lab.settle(60)
    before = sum(lab.lost.values())
    lab.settle(120)
    assert sum(lab.lost.values()) == before  # nothing has changed: everybody stays


@settings(deadline=None, max_examples=40)
@given(labs())
def test_no_chip_is_free_that_somebody_could_use(lab: Lab) -> None:
    lab.settle()
    for one in lab.shares.quotas:
        if lab.used().get(one.zone, 0) < one.chips:
            waiting = [slot for slot in lab.slots if slot.name not in lab.held]
            assert not [it.name for it in waiting if one.zone in {o.zone for o in it.offers}]


@settings(deadline=None, max_examples=40)
@given(
    some.lists(some.sampled_from((1.0, 2.0, 3.0)), min_size=2, max_size=4),
    some.integers(1, 10),
    some.booleans(),
)
def test_shares_converge_also_from_a_quota_that_one_user_has_filled(
    weights: list[float], many: int, full: bool
) -> None:
    names = [f"user{at}" for at in range(len(weights))]
    first = member("job0", "user0", 10)
    shares = LabShares(
        agreed=True, weights=dict(zip(names, weights, strict=True)), quotas=(quota(4 * many),)
    )
    lab = Lab(first, shares)
    if full:
        lab.settle(3)
        assert lab.chips_of("user0") == 4 * many  # what nobody else wants
    lab.slots = first + [one for name in names[1:] for one in member(f"of-{name}", name, 10)]
    lab.settle(30)
    for name, weight in zip(names, weights, strict=True):
        fair = many * weight / sum(weights)
        assert abs(lab.chips_of(name) / 4 - fair) <= 1.0  # one node


@settings(deadline=None, max_examples=40)
@given(labs(types=("v4-8", "v4-16", "v4-32")))
def test_everybody_has_had_a_node_once_the_others_are_done(lab: Lab) -> None:
    """Work takes an hour; jobs that fit their quota all run, however many others there are."""
    fits = {
        one.name
        for one in lab.slots
        if any(CHIPS[it.type] <= q.chips and it.zone == q.zone
               for it in one.offers for q in lab.shares.quotas)
    }  # fmt: skip
    done: Counter[str] = Counter()
    for _ in range(2000):
        lab.turn()
        lab.check()
        done.update(lab.held.keys())
        ready = {name for name, rounds in done.items() if rounds * ROUND_S >= 3600}
        lab.slots = [one for one in lab.slots if one.name not in ready]
        lab.held = {name: bid for name, bid in lab.held.items() if name not in ready}
        if not fits & {one.name for one in lab.slots}:
            return
    raise AssertionError({one.name for one in lab.slots} & fits)


@settings(deadline=None, max_examples=40)
@given(labs(), some.integers(1, 6), some.integers(0, 40))
def test_nobody_with_less_than_their_share_gives_a_node_to_another_user(
    lab: Lab, many: int, when: int
) -> None:
    """Not even while jobs come and go; a job of theirs with a higher priority may take it."""
    lab.shares = replace(lab.shares, quotas=lab.shares.quotas[:1])
    lab.slots = [replace(one, offers=(offer("a", type="v4-8", hosts=1),)) for one in lab.slots]
    late = member("late", "user1", many, priority=0, desired_since=lab.now + 60 * when)
    whole = lab.shares.quotas[0].chips
    for number in range(when + 60):
        lab.slots += late if number == when else []
        slots = {one.name: one for one in lab.slots}
        weights = {one.user: lab.shares.weights.get(one.user, 1.0) for one in lab.slots}
        before = {user: lab.chips_of(user) for user in weights}
        losses, held = Counter(lab.lost), set(lab.held)
        found = lab.turn()
        for name in lab.lost - losses:
            user, urgency = slots[name].user, slots[name].priority
            taken = any(
                one.user == user and one.priority > urgency and one.name not in held
                for one in found.values()
                if not one.held or "is next" in one.held
            )
            share = whole * weights[user] / sum(weights.values())
            assert before[user] > share or taken, (name, before, share)


def test_a_stream_of_small_jobs_starves_no_large_one() -> None:
    large = member("large", "ana", type="v4-32", desired_since=1_000_000.0)
    lab = Lab([], LabShares(agreed=True, quotas=(quota(16),)))
    age: Counter[str] = Counter()
    for number in range(400):
        if number % 3 == 0:
            lab.slots += member(f"small{number}", "bert", desired_since=lab.now)
        if number == 10:
            lab.slots += large
        lab.turn()
        lab.check()
        age.update(lab.held.keys())
        over = {name for name in lab.held if age[name] >= 20}
        lab.slots = [one for one in lab.slots if one.name not in over]
        lab.held = {name: bid for name, bid in lab.held.items() if name not in over}
        if "large-0" in lab.had:
            break
    assert "large-0" in lab.had
    assert number < 10 + (AGED_S + 40 * ROUND_S) / ROUND_S


def test_the_jobs_of_a_user_take_turns_at_what_is_free() -> None:
    lab = Lab([*member("one", "ana", 8, desired_since=1.0), *member("two", "ana", 8)],
              LabShares(agreed=True, quotas=(quota(16),)))  # fmt: skip
    lab.now = AGED_S / 2  # nobody has waited for long
    lab.settle(3)
    assert Counter(name.partition("-")[0] for name in lab.held) == {"one": 2, "two": 2}


def test_a_production_run_takes_its_place_from_a_sweep_of_the_same_user() -> None:
    sweep = member("sweep", "ana", 4, trials=True)
    lab = Lab(sweep, LabShares(agreed=True, quotas=(quota(16),)))
    for name in (one.name for one in sweep):
        lab.held[name] = replace(granted(name, lab.now - KEEP_S))
    lab.slots = [*sweep, *member("prod", "ana", 2, priority=1)]
    lab.settle(5)
    assert Counter(name.partition("-")[0] for name in lab.held) == {"sweep": 2, "prod": 2}
    lab.slots = sweep
    lab.held = {name: bid for name, bid in lab.held.items() if name.startswith("sweep")}
    lab.settle(5)
    assert set(lab.held) == {one.name for one in sweep}  # and gets it back


def test_no_priority_takes_the_share_of_another_user() -> None:
    slots = [*member("prod", "ana", 8, priority=1), *member("sweep", "bert", 8, trials=True)]
    lab = Lab(slots, LabShares(agreed=True, quotas=(quota(32),)))
    lab.settle()
    assert (lab.chips_of("ana"), lab.chips_of("bert")) == (16, 16)


def test_a_node_stays_for_a_while_before_it_is_taken_back() -> None:
    lab = Lab(member("one", "ana", 4), LabShares(agreed=True, quotas=(quota(16),)))
    lab.turn()
    lab.slots += member("two", "bert", 4)
    begun = lab.now
    while not lab.lost:
        lab.turn()
    assert lab.now >= begun + KEEP_S


def granted(name: str, at: float) -> BidRecord:
    return BidRecord(
        name=f"{name}-g1-me", slot=name, generation=1, offer=offer("a", type="v4-8", hosts=1),
        node_digest="n", nodes=1, asked_at=at, granted_at=at,
    )  # fmt: skip


@given(some.integers(1, 5), some.integers(1, 4))
def test_one_user_plans_as_if_nothing_were_shared(many: int, chips: int) -> None:
    old = member("old", "")  # from before users were kept
    slots = {one.name: one for one in [*member("gpt", "ana", many), *old]}
    alone = DesiredSlots(slots=slots, owner="me")
    shared = replace(alone, shares=LabShares(quotas=(quota(4 * chips),)))
    toy = Toy(*slots.values())
    args = (toy.observed(), History(), toy.now)
    assert plan(shared, *args) == plan(alone, *args)


# ---- in the loop ---------------------------------------------------------------------------------


def lab_toy(*slots: Slot, chips: int, **weights: float) -> Toy:
    """A cloud in which only zone a exists, and refuses nothing."""
    toy = Toy(*slots)
    shares = LabShares(agreed=True, weights=weights, quotas=(quota(chips),))
    toy.desired = replace(toy.desired, shares=shares)
    return toy


def pair(job: str, user: str, many: int = 1, **changes: object) -> list[Slot]:
    """Slots whose nodes have two hosts, as the toy cloud makes them."""
    offers = (offer("a"),)
    return [slot(f"{job}-{at}", user=user, offers=offers, **changes) for at in range(many)]


def alive(toy: Toy) -> Mapping[str, int]:
    """Nodes that are not being deleted, by job."""
    return Counter(
        name.partition("-")[0] for name, one in toy.toy_nodes.items() if one.ends > toy.now + 100
    )


def stops(toy: Toy) -> Iterator[HistoryEvent]:
    return iter(toy.kinds("attempt.stopping"))


def test_the_borrowed_node_is_given_back_saved_and_its_run_goes_on_later() -> None:
    toy = lab_toy(*pair("sweep", "bert", 2), chips=16)
    toy.lasts = 1e9
    toy.run(until=lambda one: len(one.kinds("attempt.started")) == 2)
    for _ in range(int(KEEP_S / 5)):
        toy.tick()
    slots = {**toy.desired.slots, **{one.name: one for one in pair("prod", "ana")}}
    toy.desired = replace(toy.desired, slots=slots)
    toy.tick()
    (stop,) = stops(toy)
    assert stop.facts["grace_s"] == 30.0  # it is asked to save, as at any stop
    assert "prod-0 of ana goes first" in stop.facts["why"]
    victim = stop.slot
    assert toy.last.states["prod-0"] == (
        f"is next on the 16 chips of spot v4 in a: {victim} of bert gives its node back"
        " after saving"
    )
    most = 0
    for _ in range(60):
        toy.tick()
        most = max(most, len(toy.toy_nodes))
    assert most == 2  # never over the quota, not even while the old node is being deleted
    assert alive(toy) == {"sweep": 1, "prod": 1}
    attempt = toy.slot_history(victim).attempt
    assert attempt is not None and attempt.verdict is Verdict.STOPPED
    assert toy.slot_history(victim).failures == 0
    assert "waits for its turn on the 16 chips of spot v4 in a" in toy.last.states[victim]
    slots.pop("prod-0")
    toy.desired = replace(toy.desired, slots=slots)
    toy.note(HistoryEvent(at=toy.now, kind="job.removed", job="prod"))
    toy.run(until=lambda one: len(one.launches) == 4)
    assert toy.launches[-1].startswith(f"{victim}-a2-")
    assert len(toy.kinds("attempt.stopping")) == 2  # and that of the job that was removed


def test_what_waits_is_not_at_rest_and_gives_up_nothing() -> None:
    toy = lab_toy(*pair("one", "ana"), *pair("two", "bert"), chips=8)
    toy.lasts = 600.0
    toy.run()
    assert {name for name in ("one-0", "two-0") if toy.slot_history(name).done_at} == {
        "one-0",
        "two-0",
    }
    assert toy.most == 1
    assert not toy.kinds("attempt.stopping")


def test_idle_nodes_wait_for_their_turn_like_runs() -> None:
    toy = lab_toy(*pair("one", "ana"), *pair("two", "bert", goal=Goal.IDLE), chips=8)
    for _ in range(30):
        toy.tick()
    assert len(toy.toy_nodes) == 1
    assert not any(isinstance(step.action, Stop) for step in toy.last.steps)
