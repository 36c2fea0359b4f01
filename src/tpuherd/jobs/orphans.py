"""Finds cloud resources that herd created but no job uses, and deletes the named ones."""

from collections.abc import Mapping, Sequence

from tpuherd.errors import NotFound
from tpuherd.jobs.cloud_inventory import (
    hourly_price,
    parse_bid_name,
    state_text,
    survey_cloud,
    withdraw_bids,
    withdrawal_event,
)
from tpuherd.jobs.load_history import load_history
from tpuherd.jobs.open_project import Session, user_at_machine
from tpuherd.model.observed import BidObservation
from tpuherd.model.slot_history import BidRecord, History
from tpuherd.results import Leftovers, Orphan
from tpuherd.targets import fold_names


async def collect_orphans(names: Sequence[str], here: Session) -> Leftovers | None:
    """Carry out recorded withdrawals and delete what is named; None if the user says no."""
    inventory = await survey_cloud(here)
    history = load_history(here.store)
    held = known_bids(history)
    again = {bid: observation for bid, observation in inventory.own_bids.items()
             if bid in held and held[bid].withdrawn_at is not None}  # fmt: skip
    orphans = inventory.find_orphans(history)
    for name in names:
        if name not in orphans:
            raise NotFound(unknown_orphan_message(name, orphans, held))
    await withdraw_bids(inventory, again.values())
    taken = {name: orphans[name] for name in names}
    if taken:
        question = f"this deletes {fold_names(taken)} with all data on them"
        if not await here.prompter.ask_confirmation(question):
            return None
        now, why = here.clock.now(), f"{user_at_machine()} deleted it"
        here.store.append_events(
            [withdrawal_event(observation, now, why) for observation in taken.values()]
        )
        await withdraw_bids(inventory, taken.values())
    return Leftovers(
        orphans=tuple(orphan_row(one) for bid, one in sorted(orphans.items()) if bid not in taken),
        withdrawn=tuple(sorted({**taken, **again})),
        unanswered_zones=tuple(sorted(inventory.silent_zones)),
    )


def orphan_row(observation: BidObservation) -> Orphan:
    return Orphan(
        name=observation.bid,
        zone=observation.zone,
        state=state_text(observation),
        nodes=len(observation.nodes),
        per_hour=hourly_price(observation),
        command=f"herd gc {observation.bid}",
    )


def known_bids(histories: History) -> Mapping[str, BidRecord]:
    return {name: bid for history in histories.slots.values() for name, bid in history.bids.items()}


def unknown_orphan_message(
    name: str, orphans: Mapping[str, BidObservation], held: Mapping[str, BidRecord]
) -> str:
    """Return why something of this name can't be deleted."""
    if name in held:
        return f"{name} is in use: `herd down {parse_bid_name(name).job}` removes its job"
    there = f"; orphans are {fold_names(orphans)}" if orphans else ""
    return f"no orphan is named {name}{there}"
