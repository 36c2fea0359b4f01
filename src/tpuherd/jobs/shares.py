"""The weights of a lab's users: who has which, what they have of each quota, and a new weight."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tpuherd.errors import InvalidInput
from tpuherd.jobs.load_history import load_history
from tpuherd.jobs.open_project import Session, user_at_machine
from tpuherd.model.lab_shares import (
    SHARES,
    WEIGHT_MAX,
    WEIGHT_MIN,
    LabShares,
    SharedQuota,
    is_weight,
    parse_shares,
    set_weight,
)
from tpuherd.model.slot_history import BidRecord, History
from tpuherd.model.slots_and_plan import HistoryEvent
from tpuherd.model.stored_job import StoredJob
from tpuherd.planner.fair_share import count_bids, shared_quotas
from tpuherd.settings import project_settings

NAME_MAX = 200


def list_shares(here: Session) -> dict[str, Any]:
    """Return what `herd quota` shows of shares."""
    place = here.place
    grants = project_settings.load_allowance(
        place.folders.config, world=place.world, project=place.project
    ).grants
    jobs = here.store.stored_jobs().values()
    shares = parse_shares(here.store.load_setting(SHARES))
    return {
        "users": user_rows(jobs, shares),
        "quotas": quota_rows(shared_quotas(grants), jobs, load_history(here.store)),
    }


def user_rows(jobs: Iterable[StoredJob], shares: LabShares) -> list[dict[str, Any]]:
    """Everybody with jobs or a weight; the parts are of those who have jobs."""
    counts = Counter(one.user for one in jobs if one.user)
    users = sorted({*counts, *shares.weights})
    weights = {user: shares.weights.get(user, 1.0) for user in users}
    total = sum(weights[user] for user in counts)
    return [
        {
            "user": user,
            "weight": weights[user],
            "jobs": counts[user],
            "part": round(weights[user] / total, 4) if counts[user] else 0.0,
        }
        for user in users
    ]


def quota_rows(
    quotas: tuple[SharedQuota, ...], jobs: Iterable[StoredJob], history: History
) -> list[dict[str, Any]]:
    """Each quota with the chips that each user has or asks for."""
    held: dict[str, list[BidRecord]] = {}
    for stored in jobs:
        for slot in stored.slot_names:
            if slot in history.slots:
                held.setdefault(stored.user, []).extend(history.slots[slot].bids.values())
    used = {user: count_bids(bids, quotas) for user, bids in sorted(held.items())}
    return [
        {
            "zone": one.zone,
            "type": one.type,
            "tier": one.tier,
            "chips": one.chips,
            "used": {user: chips[one] for user, chips in used.items() if chips.get(one)},
        }
        for one in quotas
    ]


def change_weight(user: str, weight: float, here: Session) -> bool:
    """Give a user this weight, for all engines of the lab; False if they had it."""
    if not is_weight(weight):
        raise InvalidInput(f"a weight is a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}")
    if not user.strip() or not user.isprintable() or len(user) > NAME_MAX:
        raise InvalidInput("a user's name is one line of printable characters")
    known = parse_shares(here.store.load_setting(SHARES)).weights
    if known.get(user, 1.0) == weight:
        return False
    why = f"{user_at_machine()} gave {user} the weight {weight:g}"
    facts = {"who": user_at_machine(), "user": user, "weight": weight, "why": why}
    event = HistoryEvent(at=here.clock.now(), kind="shares.changed", facts=facts)
    here.store.change_setting(SHARES, lambda now: set_weight(now, user, weight), [event])
    return True
