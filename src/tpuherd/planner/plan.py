"""What to do now: the whole judgement, from wishes, what is seen and what was lived through."""

from collections.abc import Collection, Iterator
from math import inf

from tpuherd.history.apply_zone_events import season_key
from tpuherd.model.observed import Observed, Sight
from tpuherd.model.slot_history import Trail, Trails, running
from tpuherd.model.slots_and_plan import Event, Goal, Kind, Plan, Record, Slot, Step, Wishes
from tpuherd.model.sweep_trials import How
from tpuherd.planner import bidding, deletion_guard, gang_actions, retry_limits, slot_messages
from tpuherd.planner.bid_status import Need, mark, need, standing, succeeded
from tpuherd.planner.gang_progress import Open
from tpuherd.planner.observations_to_events import missing, notes, quarantine
from tpuherd.planner.slot_input import Case, World
from tpuherd.planner.step_events import progress
from tpuherd.planner.verdict import Ended, conclude
from tpuherd.planner.zone_choice import Request, admitted
from tpuherd.targets import slot_of

__all__ = ["mark", "plan", "strays"]

DIGITS_MAX = 6  #: of an attempt's number; what a host calls one with more is none of ours
SURVEY_S, QUICK_S, HELD_S = 60.0, 5.0, 3.0


def plan(wishes: Wishes, observed: Observed, trails: Trails, now: float) -> Plan:
    """What to do now to bring the world nearer to the wishes."""
    world = overview(wishes, observed, trails, now)
    steps = list(freeze(world))
    requests: list[Request] = []
    told: dict[str, str] = {}
    wake, survey, rest = inf, SURVEY_S, True
    for slot in wanted(wishes, trails, world.unknown):
        case = Case(world=world, slot=slot, trail=trails.slots.get(slot.name) or Trail(), now=now)
        judge(case)
        steps += case.steps
        requests += case.requests
        told[slot.name] = case.state
        wake, survey = min(wake, case.wake_at), min(survey, case.survey_s)
        rest = rest and at_rest(case)
    now_asked, later, room_at = admitted(requests, trails.asks, wishes.creates_per_min, now)
    steps += (Step(action=one.ask, why=one.why) for one in now_asked)
    for one in later:
        told[one.ask.slot] = f"waits for its turn: {wishes.creates_per_min} creates a minute"
    if world.frozen:
        wake, survey = min(wake, now + deletion_guard.BELIEVED_S), min(survey, QUICK_S)
    return Plan(
        steps=tuple(steps),
        wake_at=min(wake, room_at),
        survey_s=survey,
        states=told,
        frozen=world.frozen,
        rest=rest and not steps,
    )


def overview(wishes: Wishes, observed: Observed, trails: Trails, now: float) -> World:
    """What all slots share, looked up once."""
    known: set[str] = set()
    probed: set[object] = set()
    for trail in trails.slots.values():
        for name, bid in trail.bids.items():
            known.add(name)
            waits = bid.granted_at is None and bid.refusal is None and bid.withdrawn_at is None
            if waits and bid.answered_at is None:
                probed.add(bid.offer.zone)
            if waits and bid.offer.kind is Kind.DIRECT:
                probed.add(season_key(bid.offer))
    unknown: dict[str, list[Sight]] = {}
    for name, sight in observed.sights.items():
        named = slot_of(name) if name not in known else None
        if named is not None and named.owner in {wishes.owner, *wishes.adopted}:
            unknown.setdefault(named.slot, []).append(sight)
    return World(
        wishes=wishes,
        observed=observed,
        trails=trails,
        now=now,
        sure=deletion_guard.believed(observed, trails, now),
        frozen=deletion_guard.suspicion(observed, trails),
        unknown=unknown,
        probed=probed,
    )


def freeze(world: World) -> Iterator[Step]:
    """Says when deletions stop and when they go on."""
    if bool(world.frozen) == (world.trails.frozen_at is not None):
        return
    kind, why = "engine.frozen", world.frozen
    if not world.frozen:
        kind, why = "engine.thawed", "what was missed is heard and seen again, or is believed"
    yield Step(action=Record(event=Event(at=world.now, kind=kind, facts={"why": why})), why=why)


def wanted(wishes: Wishes, trails: Trails, unknown: Collection[str]) -> Iterator[Slot]:
    """Every wished slot, then those that were taken back, or that their job has no more of."""
    yield from wishes.slots.values()
    jobs = {slot.job for slot in wishes.slots.values()}
    for name, trail in trails.slots.items():
        if name in wishes.slots or not (trail.bids or running(trail) or name in unknown):
            continue
        job = name.rpartition("-")[0]
        if trail.dropped or job in jobs or withdrawn(trail):
            yield Slot(
                name=name,
                job=job,
                goal=Goal.GONE,
                offers=(),
                node_digest="",
                code_digest="",
                wished_at=0.0,
            )


def withdrawn(trail: Trail) -> bool:
    """All that is known of it was taken back, be it ever wished or not."""
    return all(bid.withdrawn_at is not None for bid in trail.bids.values())


def judge(case: Case) -> None:
    """One slot, from what is new to what is to be done."""
    look(case)
    conclude_attempt(case)
    finish(case)
    case.need = need(case.slot, case.trail, case.now)
    bidding.assign(case)
    idle = gang_actions.idle_for_too_long(case)
    if idle:
        case.give_up(idle)
    for due in retry_limits.dues(case.slot, case.trail, case.now):
        case.wake(due)
    if case.need is Need.HOLD:
        keeps = case.slot.limits
        case.wake((case.trail.done_at or inf) + keeps.done_keep_s)
        case.wake((case.trail.gave_up_at or inf) + keeps.failed_keep_s)
    shape = gang_actions.act(case)
    bidding.move(case)
    bidding.seek(case)
    case.state = slot_messages.told(case, shape)


def look(case: Case) -> None:
    """Notes what is new about the slot's bids."""
    world, observed = case.world, case.world.observed
    for bid in tuple(case.trail.bids.values()):
        one = standing(bid, observed, case.now)
        case.standings.append(one)
        for note in notes(bid, one.stage, one.sight, one.hosts):
            case.record(note.kind, note.why, note.facts)
        for note in missing(bid, one.hosts, observed, sure=world.sure):
            case.record(note.kind, note.why, note.facts)
    take_up(case)
    if case.steps:
        renew(case)


def take_up(case: Case) -> None:
    """An attempt that nobody remembers, on a host of ours: the store was lost, its work was not."""
    known = case.trail.attempt.id if case.trail.attempt is not None else ""
    for one in case.standings:
        for host in one.hosts:
            for work in host.works:
                if work.attempt == known:
                    continue
                number = attempt_number(work.attempt, case.slot.name)
                if number <= case.trail.attempts or one.bid.withdrawn_at is not None:
                    continue
                facts = {
                    "attempt": work.attempt,
                    "number": number,
                    "bid": one.bid.name,
                    "code_digest": case.slot.code_digest,
                    "boots": [each.boot for each in one.hosts] if one.whole else [],
                }
                why = f"{work.attempt} was found on {host.name}"
                case.record("attempt.launched", why, facts)


def attempt_number(attempt: str, slot: str) -> int:
    """3 of gpt-0-a3-7kq"""
    head, _, _ = attempt.removeprefix(f"{slot}-a").partition("-")
    named = attempt.startswith(f"{slot}-a") and head.isdecimal() and len(head) <= DIGITS_MAX
    return int(head) if named else 0


def renew(case: Case) -> None:
    """The bids as they are remembered now."""
    bids, observed = case.trail.bids, case.world.observed
    case.standings = [standing(bid, observed, case.now) for bid in bids.values()]


def conclude_attempt(case: Case) -> None:
    """The verdict on the latest attempt, if it can be given."""
    attempt = case.trail.attempt
    if attempt is None or attempt.ended_at is not None:
        return
    progress(case)
    bid = case.trail.bids.get(attempt.bid)
    found = conclude(case.slot, case.trail, bid, case.world.observed, case.now)
    if isinstance(found, Open):
        case.open = found
        if found.begun:
            case.record("attempt.started", "every host knows of it", {"attempt": attempt.id})
        case.wake(found.wake_at)
        # Links may hang in silence: who runs is looked after by the cloud's lists as well.
        case.survey(HELD_S if found.held else QUICK_S)
        return
    assert isinstance(found, Ended)
    case.record("attempt.ended", found.why, found.facts(attempt))
    bid = case.trail.bids.get(attempt.bid)
    for note in quarantine(bid, case.world.trails) if bid is not None else ():
        case.record(note.kind, note.why, note.facts)
    renew(case)


def finish(case: Case) -> None:
    """Done, or the end of a budget."""
    slot, trail = case.slot, case.trail
    if trail.gave_up_at is not None or slot.goal is Goal.GONE:
        return
    over = trail.attempt is not None and trail.attempt.ended_at is not None
    if slot.goal is Goal.RUN and trail.done_at is None and over and succeeded(slot, trail):
        finished(case)
        return
    if slot.goal is Goal.RUN and trail.done_at is not None:
        return
    case.limit = retry_limits.reached(slot, trail, case.now)
    if not case.limit or running(trail):
        return
    if not any(bidding.to_collect(case, one) for one in case.standings):
        if trail.trial is not None and retry_limits.tried(slot, trail, case.now):
            case.end_trial(How.FAILED, case.limit)
        else:
            case.give_up(case.limit)
        case.limit = ""


def finished(case: Case) -> None:
    """It has succeeded: done when all is here that should be, or can't be had any more."""
    attempt = case.trail.attempt
    assert attempt is not None
    bid = case.trail.bids.get(attempt.bid)
    why = f"attempt {attempt.number} has succeeded"
    if bid is None or bid.lost_at is not None or bid.withdrawn_at is not None:
        if case.slot.outputs and (bid is None or not bid.collected):
            why = f"{why}; its node was lost before its outputs were brought back"
        case.done(why)
        return
    case.need = need(case.slot, case.trail, case.now)
    one = next(one for one in case.standings if one.bid.name == bid.name)
    if not bidding.to_collect(case, one):
        case.done(why)


def at_rest(case: Case) -> bool:
    """Nothing is to come of this slot."""
    trail = case.trail
    if trail.bids or running(trail):
        return False
    over = trail.gave_up_at is not None or (
        case.slot.goal is Goal.RUN and trail.done_at is not None
    )
    return case.slot.goal is Goal.GONE or over


def strays(wishes: Wishes, observed: Observed, trails: Trails) -> tuple[Sight, ...]:
    """What bears our name and was neither asked for nor withdrawn as far as is remembered."""
    world = overview(wishes, observed, trails, 0.0)
    named = {slot.name for slot in wanted(wishes, trails, ())}
    loose = [
        sight
        for slot, sights in world.unknown.items()
        for sight in sights
        if not withdrawn_before(trails, slot, sight)
    ]
    held = [
        observed.sights[name]
        for slot, trail in trails.slots.items()
        if slot not in named
        for name in trail.bids
        if name in observed.sights
    ]
    return (*loose, *held)


def withdrawn_before(trails: Trails, slot: str, sight: Sight) -> bool:
    """Its withdrawal is recorded: it will be withdrawn again."""
    found, trail = slot_of(sight.bid), trails.slots.get(slot)
    return found is not None and trail is not None and found.generation in trail.gone
