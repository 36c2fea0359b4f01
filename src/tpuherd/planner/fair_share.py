"""Who may have nodes of a shared quota now: each user's share, then priorities, then turns.

Every slot that needs a node claims a place in one of the quotas that its offers come from.
1. `place_claims` proposes each claim to its quotas, best first; `fill_quota` chooses. The user who
   has the least for their weight chooses next, until nothing that is claimed fits: so shares that
   nobody uses go to others. A user's claims go by priority; of one priority, what has a node keeps
   it, then those that have waited for an hour are served in the order of waiting, then the jobs of
   the user take turns.
2. A slot without a place may ask for nothing, and gives its node back (bidding.py): its attempt is
   stopped and saves, and its next one resumes when it has a place again.
3. A slot with a place asks once the chips are free. What is left may be asked for in advance.
A node stays for KEEP_S at least, so that nobody's work is stopped again and again.
Nothing of this applies to one user whose jobs have one priority, unless shares were agreed on.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from tpuherd.catalogue import accelerators
from tpuherd.jobfile.grants import Grant
from tpuherd.model.lab_shares import LabShares, SharedQuota
from tpuherd.model.slot_history import BidRecord, History, SlotHistory
from tpuherd.model.slots_and_plan import CHEAP_TIERS, DesiredSlots, Goal, Offer, Slot, offer_key
from tpuherd.planner.bid_status import NodeNeed, node_need

KEEP_S = 900.0  #: a granted node is not taken back sooner
AGED_S = 3600.0  #: who waits longer is served in the order of waiting, and room is kept for them
USERS_NAMED = 4

Quota = SharedQuota | None  #: None: offers that no quota limits
QuotasByOffer = dict[tuple[str, str, str], Quota]  #: as found before


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One slot that needs a node."""

    slot: Slot
    slot_history: SlotHistory
    chips: Mapping[Quota, int]  #: what it takes of each quota that its offers come from, best first
    bids: Mapping[Quota, BidRecord]  #: what it has or asks for there
    place: int  #: how many slots of its job come before it
    since: float  #: waiting, or having its node
    aged: bool

    @cached_property
    def home(self) -> Quota:
        """Where it has a node, else where it asks for one."""
        return next(iter(self.bids), None)

    @cached_property
    def granted_at(self) -> float | None:
        """Since when it has its node."""
        return next((bid.granted_at for bid in self.bids.values()), None)

    def choice_order(self, quota: Quota) -> tuple[float, ...]:
        """Its place among the claims of its user; the lowest goes first."""
        urgent = -self.slot.priority
        if quota in self.bids:
            return urgent, 0, self.slot.trials, self.since
        if self.aged:
            return urgent, 1, self.since, 0
        return urgent, 2, self.place, self.since


@dataclass(kw_only=True)
class QuotaPlaces:
    """Who has a place in one quota, in the order of choice."""

    room: float
    claims: list[Claim] = field(default_factory=list)
    used: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    leaving: list[Claim] = field(default_factory=list)  #: they give their nodes there back
    reserved: bool = False  #: a claim that has waited long does not fit yet: room is kept for it

    def add(self, claim: Claim, chips: int) -> None:
        self.claims.append(claim)
        self.used[claim.slot.user] += chips
        self.room -= chips


def assign_turns(desired: DesiredSlots, history: History, now: float) -> tuple[DesiredSlots, float]:
    """Take from each slot the offers that it must leave to others now; and when that may change."""
    shares = desired.shares
    if not needs_turns(desired):
        return desired, inf
    claims = [*find_claims(desired, history, now)]
    others = chips_of_others(claims, history, shares.quotas)
    places = place_claims(claims, shares, others, now)
    free = free_chips(desired, history)
    slots = dict(desired.slots)
    homes = {claim.slot.name: quota for quota, one in places.items() for claim in one.claims}
    allowed: dict[str, set[Quota]] = {claim.slot.name: {None} for claim in claims}
    for quota, one in places.items():
        for claim in one.claims:
            if quota is None or quota in claim.bids or take_chips(free, quota, claim):
                allowed[claim.slot.name].add(quota)
    allow_further_requests(claims, homes, places, free, allowed)
    for claim in claims:
        for quota, bid in claim.bids.items():
            if bid.granted_at is not None and quota not in allowed[claim.slot.name]:
                places[quota].leaving.append(claim)
    for claim in claims:
        name = claim.slot.name
        slots[name] = shut_offers(claim, homes, allowed[name], places, shares)
    return replace(desired, slots=slots), next_change(claims, homes, allowed, now)


def needs_turns(desired: DesiredSlots) -> bool:
    """Whether several users, or jobs of several priorities, share a quota."""
    if not desired.shares.quotas:
        return False
    wanted = [one for one in desired.slots.values() if one.goal is not Goal.GONE]
    users = {one.user for one in wanted} - {""}  # who has old jobs beside new ones is one user
    several = len(users) > 1 or len({one.priority for one in wanted}) > 1
    return several or bool(desired.shares.agreed and wanted)


def shared_quotas(grants: Iterable[Grant]) -> tuple[SharedQuota, ...]:
    """Those of the grants that say how many chips there are."""
    return tuple(
        SharedQuota(zone=one.zone, type=one.type, tier=one.tier, chips=one.chips)
        for one in grants
        if one.chips is not None
    )


# ---- claims --------------------------------------------------------------------------------------


def find_claims(desired: DesiredSlots, history: History, now: float) -> Iterator[Claim]:
    """The slots that need a node, with what they hold of each quota."""
    quotas = desired.shares.quotas
    known: QuotasByOffer = {}
    places: dict[str, int] = defaultdict(int)
    for name, slot in desired.slots.items():
        slot_history = history.slots.get(name) or SlotHistory()
        if node_need(slot, slot_history, now) is not NodeNeed.SEEK:
            continue
        bids = claimed_bids(slot_history, quotas, known)
        chips: dict[Quota, int] = {}
        for offer in (*(bid.offer for bid in bids.values()), *slot.offers):
            quota = find_quota(offer, quotas, known)
            chips[quota] = max(chips.get(quota, 0), count_chips(offer) * slot.nodes)
        granted_at = next((bid.granted_at for bid in bids.values()), None)
        since = granted_at or waiting_since(slot, slot_history)
        aged = granted_at is None and now >= since + AGED_S
        yield Claim(
            slot=slot, slot_history=slot_history, chips=chips, bids=bids,
            place=places[slot.job], since=since, aged=aged,
        )  # fmt: skip
        places[slot.job] += 1


def claimed_bids(
    slot_history: SlotHistory,
    quotas: Sequence[SharedQuota],
    known: QuotasByOffer,
) -> dict[Quota, BidRecord]:
    """Its bids that may fill it: those with a node first."""
    there = [
        bid
        for bid in slot_history.bids.values()
        if holds_quota(bid) and bid.withdrawn_at is None and bid.notice_at is None
    ]
    found: dict[Quota, BidRecord] = {}
    for bid in sorted(there, key=lambda one: (one.granted_at is None, one.granted_at or 0.0)):
        found.setdefault(find_quota(bid.offer, quotas, known), bid)
    return found


def waiting_since(slot: Slot, slot_history: SlotHistory) -> float:
    """When it began to wait: with its job, or with the end of its last attempt."""
    attempt = slot_history.attempt
    return max(slot.desired_since, (attempt and attempt.ended_at) or 0.0)


def holds_quota(bid: BidRecord) -> bool:
    """Whether it takes chips, or will as soon as it is granted."""
    return bid.refusal is None and bid.lost_at is None and bid.nodes_deleted_at is None


def find_quota(offer: Offer, quotas: Sequence[SharedQuota], known: QuotasByOffer) -> Quota:
    key = offer_key(offer)
    if key not in known:
        known[key] = next((one for one in quotas if covers_offer(one, offer)), None)
    return known[key]


def covers_offer(quota: SharedQuota, offer: Offer) -> bool:
    same_tier = quota.tier == offer.tier or {quota.tier, offer.tier} <= CHEAP_TIERS
    accelerator = accelerators().get(offer.type)
    if accelerator is None or quota.zone != offer.zone or not same_tier:
        return False
    return quota.type in (accelerator.generation, accelerator.type)


def count_chips(offer: Offer) -> int:
    accelerator = accelerators().get(offer.type)
    return accelerator.chips if accelerator is not None else 0


# ---- places --------------------------------------------------------------------------------------


def chips_of_others(
    claims: Sequence[Claim], history: History, quotas: Sequence[SharedQuota]
) -> Mapping[Quota, int]:
    """What slots have that claim nothing: they are done, and keep their nodes for a while."""
    claiming = {claim.slot.name for claim in claims}
    return count_bids(
        (
            bid
            for name, one in history.slots.items()
            if name not in claiming
            for bid in one.bids.values()
            if bid.withdrawn_at is None
        ),
        quotas,
    )


def count_bids(bids: Iterable[BidRecord], quotas: Sequence[SharedQuota]) -> dict[Quota, int]:
    """The chips that these bids take of each quota."""
    known: QuotasByOffer = {}
    found: dict[Quota, int] = defaultdict(int)
    for bid in bids:
        if holds_quota(bid):
            found[find_quota(bid.offer, quotas, known)] += count_chips(bid.offer) * bid.nodes
    return found


def place_claims(
    claims: Sequence[Claim], shares: LabShares, others: Mapping[Quota, int], now: float
) -> dict[Quota, QuotaPlaces]:
    """Propose each claim to its quotas, best first, until every quota has its choice."""
    tried = dict.fromkeys((claim.slot.name for claim in claims), 0)
    reserved: set[Quota] = set()
    while True:
        proposed: dict[Quota, list[Claim]] = {quota: [] for quota in (None, *shares.quotas)}
        for claim in claims:
            choices = [*claim.chips]
            if tried[claim.slot.name] < len(choices):
                proposed[choices[tried[claim.slot.name]]].append(claim)
        places = {
            quota: fill_quota(quota, there, shares.weights, others.get(quota, 0), now)
            for quota, there in proposed.items()
        }
        reserved |= {quota for quota, one in places.items() if one.reserved}
        placed = {claim.slot.name for one in places.values() for claim in one.claims}
        refused = [
            claim.slot.name
            for there in proposed.values()
            for claim in there
            if claim.slot.name not in placed
        ]
        if not refused:
            break
        for name in refused:
            tried[name] += 1
    for quota in reserved:
        places[quota].reserved = True
    for claim in sorted(claims, key=lambda one: (-one.slot.priority, one.since, one.slot.name)):
        if claim.slot.name not in placed:
            place_in_rest(claim, places)
    return places


def place_in_rest(claim: Claim, places: Mapping[Quota, QuotaPlaces]) -> None:
    """Give it what is left of a quota that refused it before others went elsewhere."""
    for quota, chips in claim.chips.items():
        there = places[quota]
        if chips <= there.room and (quota in claim.bids or not there.reserved):
            there.add(claim, chips)
            return


def fill_quota(
    quota: Quota,
    claims: Sequence[Claim],
    weights: Mapping[str, float],
    others: int,
    now: float,
) -> QuotaPlaces:
    """Let the user with the least for their weight choose next, until nothing fits."""
    if quota is None:
        return QuotaPlaces(room=inf, claims=[*claims])
    found = QuotaPlaces(room=quota.chips - others)
    queues: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        if keeps_node(claim, quota, now):
            found.add(claim, claim.chips[quota])
        else:
            queues[claim.slot.user].append(claim)
    for queue in queues.values():
        queue.sort(key=lambda one: (*one.choice_order(quota), one.slot.name), reverse=True)

    half = min((claim.chips[quota] for claim in claims), default=0) / 2

    def next_turn(user: str) -> tuple[float, int, bool, float, str]:
        first = queues[user][-1]
        holds = quota in first.bids
        # Half of the smallest node rounds shares; where two are equal, who has a node keeps it.
        share = (found.used[user] + half) / weights.get(user, 1.0)
        return share, -first.slot.priority, not holds, first.since, user

    while queues:
        user = min(queues, key=next_turn)
        claim = queues[user].pop()
        if not queues[user]:
            del queues[user]
        chips, holds = claim.chips[quota], quota in claim.bids
        if chips <= found.room and (holds or not found.reserved):
            found.add(claim, chips)
        elif claim.aged and chips <= quota.chips:
            found.reserved = True
    return found


def keeps_node(claim: Claim, quota: Quota, now: float) -> bool:
    """Whether its node there was granted too recently to be taken back."""
    if claim.granted_at is None or quota not in claim.bids or quota is not claim.home:
        return False
    return now < claim.granted_at + KEEP_S


# ---- what that means for each slot ---------------------------------------------------------------


def free_chips(desired: DesiredSlots, history: History) -> dict[SharedQuota, int]:
    """The chips of each quota that no bid takes, whoever may have them next."""
    quotas = desired.shares.quotas
    bids = (bid for one in history.slots.values() for bid in one.bids.values())
    used = count_bids(bids, quotas)
    return {quota: quota.chips - used.get(quota, 0) for quota in quotas}


def take_chips(free: dict[SharedQuota, int], quota: SharedQuota, claim: Claim) -> bool:
    """Take what it needs, if it is there."""
    if claim.chips[quota] > free[quota]:
        return False
    free[quota] -= claim.chips[quota]
    return True


def allow_further_requests(
    claims: Iterable[Claim],
    homes: Mapping[str, Quota],
    places: Mapping[Quota, QuotaPlaces],
    free: dict[SharedQuota, int],
    allowed: Mapping[str, set[Quota]],
) -> None:
    """Let those who wait for their node ask for it in other quotas, too, where nobody needs it."""
    waiting = [one for one in claims if one.granted_at is None and one.slot.name in homes]
    for claim in sorted(waiting, key=lambda one: (not one.bids, one.since, one.slot.name)):
        for quota, chips in claim.chips.items():
            if quota is None or quota == homes[claim.slot.name] or chips > places[quota].room:
                continue
            if places[quota].reserved or not (
                quota in claim.bids or take_chips(free, quota, claim)
            ):
                continue
            places[quota].room -= chips
            allowed[claim.slot.name].add(quota)


def shut_offers(
    claim: Claim,
    homes: Mapping[str, Quota],
    allowed: set[Quota],
    places: Mapping[Quota, QuotaPlaces],
    shares: LabShares,
) -> Slot:
    """The slot with the offers that it may ask for, and why it must leave the others."""
    slot, known = claim.slot, QuotasByOffer()
    offers = (*slot.offers, *(bid.offer for bid in claim.bids.values()))
    shut = frozenset(
        offer_key(one) for one in offers if find_quota(one, shares.quotas, known) not in allowed
    )
    if not shut:
        return slot
    left = tuple(one for one in slot.offers if offer_key(one) not in shut)
    return replace(slot, offers=left, shut=shut, held=turn_message(claim, homes, places))


def turn_message(
    claim: Claim, homes: Mapping[str, Quota], places: Mapping[Quota, QuotaPlaces]
) -> str:
    """Why it waits, or gives its node back."""
    name = claim.slot.name
    quota = homes.get(name) if name in homes else next((one for one in claim.chips if one), None)
    assert quota is not None, "an offer is shut only where a quota limits it"
    chips = f"the {quota.chips} chips of {quota.title}"
    there = places[quota]
    if name in homes:
        if not there.leaving:
            return f"is next on {chips}, as soon as they are given back"
        givers = [name_claim(one) for one in there.leaving[:USERS_NAMED]]
        verb = "gives its node" if len(there.leaving) == 1 else "give their nodes"
        more = f" and {rest} more" if (rest := len(there.leaving) - len(givers)) else ""
        return f"is next on {chips}: {', '.join(givers)}{more} {verb} back after saving"
    if claim.chips[quota] > quota.chips:
        return f"needs {claim.chips[quota]} chips, and {quota.title} has {quota.chips}"
    if claim.granted_at is not None:
        new = next((one for one in there.claims if quota not in one.bids), None)
        winner = name_claim(new) if new is not None else "another"
        return f"gives its node back, since {winner} goes first on {chips}"
    most = sorted(there.used.items(), key=lambda one: (-one[1], one[0]))[:USERS_NAMED]
    used = ", ".join(f"{user or 'others'} {chips:.0f}" for user, chips in most if chips)
    return f"waits for its turn on {chips}" + (f" ({used})" if used else "")


def name_claim(claim: Claim) -> str:
    return f"{claim.slot.name} of {claim.slot.user or 'another user'}"


def next_change(
    claims: Iterable[Claim],
    homes: Mapping[str, Quota],
    allowed: Mapping[str, set[Quota]],
    now: float,
) -> float:
    """When somebody who waits may get a place although nothing else has happened."""
    waiting = [one for one in claims if one.slot.name not in homes]
    if not waiting:
        return inf
    kept = (one.granted_at + KEEP_S for one in claims if one.granted_at is not None)
    aging = (one.since + AGED_S for one in waiting)
    return min((at for at in (*kept, *aging) if at > now), default=inf)
