"""What events teach beyond their slot: how each zone answers, what was asked, what is frozen."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean

from tpuherd.model.slot_history import Bid, Season, Trails
from tpuherd.model.slots_and_plan import Event, Offer, Refusal

KEPT = 20  #: so many of the latest waits and lives are remembered a season
PAUSE_S_MIN, PAUSE_S_MAX = 15.0, 600.0
PAUSE_LESS_S = 60.0  #: a grant takes so much from the pause
#: Refusals that are no lack of capacity: how long until it is tried again.
WAITS_S: Mapping[Refusal, float] = {
    Refusal.QUOTA: 300.0,
    Refusal.RESERVATION: 300.0,
    Refusal.PERMISSION: 300.0,
}

Learn = Callable[[Trails, Event], Trails]


def season_key(offer: Offer) -> tuple[str, str, str]:
    """By what capacity is learnt."""
    return offer.zone, offer.type, offer.tier


def find(trails: Trails, event: Event) -> Bid | None:
    """The bid that the event names."""
    trail = trails.slots.get(event.slot)
    return trail.bids.get(event.facts["bid"]) if trail else None


def with_season(trails: Trails, key: tuple[str, str, str], season: Season) -> Trails:
    return replace(trails, seasons={**trails.seasons, key: season})


def asked(trails: Trails, event: Event) -> Trails:
    kept = tuple(at for at in trails.asks if at > event.at - 60)
    return replace(trails, asks=(*kept, event.at))


def refused(trails: Trails, event: Event) -> Trails:
    bid = find(trails, event)
    refusal = Refusal(event.facts["refusal"])
    if bid is None or refusal in {Refusal.TAKEN, Refusal.CONFIGURATION}:
        return trails
    key = season_key(bid.offer)
    season = trails.seasons.get(key, Season())
    if bid.refusal is not None:
        return trails  # told twice
    season = replace(
        season,
        refusals=season.refusals + (refusal is Refusal.STOCKOUT),
        refused_at=event.at,
        refusal=refusal,
        sentence=event.facts["sentence"],
        hint=str(event.facts.get("hint") or ""),
        pause_s=WAITS_S.get(refusal, longer(season, bid)),
    )
    return with_season(trails, key, season)


def longer(season: Season, bid: Bid) -> float:
    """The next pause: twice the last, but once only for all that was asked before it was over."""
    last = 0.0 if season.refusal in WAITS_S else season.pause_s
    if last and bid.sent_at < season.refused_at:
        return last
    return min(PAUSE_S_MAX, max(PAUSE_S_MIN, last * 2))


def granted(trails: Trails, event: Event) -> Trails:
    bid = find(trails, event)
    if bid is None or bid.granted_at is not None:
        return trails
    key = season_key(bid.offer)
    season = trails.seasons.get(key, Season())
    season = replace(
        season,
        refusals=0,
        refusal=None,
        sentence="",
        hint="",
        grants=season.grants + 1,
        pause_s=max(0.0, min(season.pause_s, PAUSE_S_MAX) - PAUSE_LESS_S),
    )
    return with_season(trails, key, season)


def ready(trails: Trails, event: Event) -> Trails:
    bid = find(trails, event)
    if bid is None or bid.ready_at is not None:
        return trails
    key = season_key(bid.offer)
    season = trails.seasons.get(key, Season())
    waits = (*season.waits_s, event.at - bid.asked_at)[-KEPT:]
    return with_season(trails, key, replace(season, waits_s=waits))


def over(trails: Trails, event: Event) -> Trails:
    """The end of a life: what is told to go may be given back before anybody sees it lost."""
    bid = find(trails, event)
    if bid is None or bid.ready_at is None:
        return trails
    if bid.noticed_at is not None or bid.lost_at is not None:
        return trails
    key = season_key(bid.offer)
    season = trails.seasons.get(key, Season())
    lives = (*season.lives_s, event.at - bid.ready_at)[-KEPT:]
    return with_season(trails, key, replace(season, lives_s=lives))


def lived(trails: Trails, slot: str, bid: str) -> Mapping[str, str]:
    """How long nodes like this one last there, for scripts that save: as a variable, if known."""
    trail = trails.slots.get(slot)
    mine = trail.bids.get(bid) if trail else None
    season = trails.seasons.get(season_key(mine.offer)) if mine else None
    return {"HERD_LIFE_S": f"{fmean(season.lives_s):.0f}"} if season and season.lives_s else {}


def forgive(trails: Trails, event: Event) -> Trails:
    """The user has seen to it: what was not allowed may be by now."""
    seasons = {
        key: replace(season, refusal=None, pause_s=0.0, sentence="", hint="")
        if season.refusal in WAITS_S
        else season
        for key, season in trails.seasons.items()
    }
    return replace(trails, seasons=seasons)


def quarantined(trails: Trails, event: Event) -> Trails:
    return replace(trails, bad_nodes={**trails.bad_nodes, event.facts["node"]: event.at})


def gone(trails: Trails, event: Event) -> Trails:
    if event.facts["bid"] not in trails.bad_nodes:
        return trails
    left = {name: at for name, at in trails.bad_nodes.items() if name != event.facts["bid"]}
    return replace(trails, bad_nodes=left)


#: Told before the slot's own trail changes, so that the bid is seen as it was.
LEARNS: Mapping[str, Learn] = {
    "wish.made": forgive,
    "wish.changed": forgive,
    "wish.resumed": forgive,
    "bid.asked": asked,
    "bid.refused": refused,
    "bid.granted": granted,
    "bid.ready": ready,
    "bid.noticed": over,
    "bid.lost": over,
    "bid.gone": gone,
    "node.quarantined": quarantined,
    "engine.started": lambda trails, event: replace(trails, started_at=event.at),
    "engine.frozen": lambda trails, event: replace(
        trails, frozen_at=event.at, frozen_why=str(event.facts["why"])
    ),
    "engine.thawed": lambda trails, event: replace(trails, frozen_at=None, frozen_why=""),
}
