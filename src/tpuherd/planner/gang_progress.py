"""A running gang: what each host reports of the attempt, and what is still pending."""

from dataclasses import dataclass, replace
from math import inf

from tpuherd.model.observed import HostRun, HostStatus, ObservedState, RunState
from tpuherd.model.slot_history import AttemptRecord, BidRecord
from tpuherd.model.slots_and_plan import Slot
from tpuherd.planner.bid_status import expected_hosts

HOLD_S = 20.0  #: how long to wait for the others after the first end
STOP_S = 45.0  #: beyond the grace: KILL, and until the chips are free
NOTICE_S = 5.0  #: the same when the node is about to go
LAUNCH_S = 10.0  #: then a launch that a host has missed is sent again
LAUNCHES_MAX = 5
STOPS_MAX = 5  #: then its time is up: a host that says for ever that it runs must not keep its node

LIVE = {RunState.SETUP, RunState.RUNNING, RunState.ENDING}
OVER = {RunState.ENDED, RunState.LOST}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pending:
    """The attempt continues, or more reports are needed."""

    wake_at: float = inf
    broken: str = ""  #: a part of the gang is over: why the rest is to be stopped
    held: bool = False  #: it is nearly over: look at the cloud soon
    absent: str = ""  #: the host that did not receive it
    begun: bool = False  #: every host has started it, but no event says so
    deaf: bool = False  #: a host did not receive the stop


@dataclass(frozen=True, kw_only=True, slots=True)
class GangMember:
    host: HostStatus
    work: HostRun | None
    over: bool
    lost: str  #: why its end was not its own
    absent: bool  #: it does not know the attempt

    @property
    def was_sent_term(self) -> bool:
        return self.work is not None and self.work.termed

    @property
    def has_failed(self) -> bool:
        """Whether it ended by itself with a failure."""
        work = self.work
        if work is None or not self.over or self.lost or work.termed:
            return False
        return bool(work.signal) or work.exit != 0


def build_member(host: HostStatus, attempt: AttemptRecord) -> GangMember:
    work = next((one for one in host.works if one.attempt == attempt.id), None)
    rebooted = bool(host.boot and attempt.boots) and host.boot not in attempt.boots
    absent = host.reached and not rebooted and (work is None or work.word is RunState.ABSENT)
    lost = ""
    if rebooted:
        lost = f"{host.name} was rebooted"
    elif work is not None and work.word is RunState.LOST:
        lost = work.why or f"its end was not recorded on {host.name}"
    elif work is not None and work.deadman and work.word in OVER:
        lost = "no engine contacted its host for too long"
    elif absent and attempt.started_at is not None:
        lost = f"{host.name} has no record of it any longer"
    over = bool(lost) or (work is not None and work.word in OVER)
    return GangMember(host=host, work=work, over=over, lost=lost, absent=absent)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gang:
    """An attempt with all that is reported of it."""

    slot: Slot
    attempt: AttemptRecord
    bid: BidRecord
    members: tuple[GangMember, ...]
    hosts: int  #: expected number of hosts
    whole: bool  #: all expected hosts have reported its end
    working: bool  #: it is being launched or stopped just now
    surveyed_at: float  #: start of the last survey that covers its zone
    awake_at: float  #: what was launched before was launched by another, who may not have sent it

    @property
    def has_live_runs(self) -> bool:
        return any(not one.absent for one in self.live_members)

    @property
    def leaving_host(self) -> HostStatus | None:
        """A host that shuts down."""
        return next((one.host for one in self.members if one.host.is_leaving), None)

    @property
    def live_members(self) -> list[GangMember]:
        return [one for one in self.members if one.host.reached and not one.over]


def build_gang(slot: Slot, attempt: AttemptRecord, bid: BidRecord, observed: ObservedState) -> Gang:
    members = tuple(build_member(host, attempt) for host in observed.hosts.get(bid.name, ()))
    hosts = expected_hosts(bid, observed.observations.get(bid.name))
    return Gang(
        slot=slot,
        attempt=attempt,
        bid=bid,
        members=members,
        hosts=hosts,
        whole=len(members) >= hosts and all(one.over for one in members),
        working=slot.name in observed.working,
        surveyed_at=observed.surveyed_at if bid.offer.zone in observed.zones else 0.0,
        awake_at=observed.awake_at,
    )


def pending_state(gang: Gang, now: float) -> Pending | None:
    """What is pending; None: all hosts have reported, or time is up."""
    bid, attempt = gang.bid, gang.attempt
    if attempt.stopping_at is not None:
        return pending_stop(gang, attempt.stopping_at, now)
    if bid.lost_at is not None:
        return Pending(broken=f"{bid.name} was {bid.lost_how}") if gang.live_members else None
    leaving = gang.leaving_host
    if bid.notice_at is not None:
        return pending_notice(gang, "its node received a preemption notice", bid.notice_at, now)
    if leaving is not None:
        return pending_notice(gang, f"{leaving.name} shuts down", leaving.notice_at or 0.0, now)
    if attempt.started_at is None:
        return pending_start(gang, now)
    return pending_run(gang, now)


def pending_notice(gang: Gang, why: str, since: float, now: float) -> Pending | None:
    """What is pending after a notice; None: all have ended, or time is up.

    The agents that received it stop it by themselves; we send the stop too while a host responds.
    """
    until = since + gang.slot.limits.notice_grace_s + NOTICE_S
    if gang.whole or (now >= until and not gang.live_members):
        return None
    return Pending(broken=why if gang.live_members else "", wake_at=until, held=True)


def pending_stop(gang: Gang, since: float, now: float) -> Pending | None:
    """What is pending after TERM was sent; None: all have ended, or time is up."""
    doomed = gang.bid.lost_at is not None or gang.bid.notice_at is not None
    brief = doomed or gang.leaving_host is not None
    until = since + gang.attempt.stopping_s + (NOTICE_S if brief else STOP_S)
    unreachable = gang.bid.lost_at is not None and not gang.live_members
    if gang.whole or now >= until or unreachable or none_runs(gang, since):
        return None
    return Pending(wake_at=until, held=True, deaf=has_missed_stop(gang, since))


def none_runs(gang: Gang, since: float) -> bool:
    """Whether each host has ended it, or says after the stop that it has never begun it."""
    return (
        not gang.working
        and len(gang.members) >= gang.hosts
        and all(
            one.over or (one.absent and one.host.heard_at > since + NOTICE_S)
            for one in gang.members
        )
    )


def has_missed_stop(gang: Gang, since: float) -> bool:
    """Whether a host that reported after the stop was sent still runs on."""
    awaited = not gang.working and gang.attempt.stops < STOPS_MAX
    return awaited and any(
        one.work is not None
        and one.work.word in {RunState.RUNNING, RunState.SETUP}
        and one.host.heard_at > since + NOTICE_S
        for one in gang.live_members
    )


def pending_start(gang: Gang, now: float) -> Pending | None:
    """What is pending while not every host has confirmed the launch."""
    if gang.working:
        return Pending(held=True)
    again_at = gang.attempt.launched_at + LAUNCH_S
    missing = next((one.host.name for one in gang.members if one.absent), "")
    if missing and any(one.over for one in gang.members):
        # It could not start everywhere: the hosts that had started it were told to stop.
        return Pending(broken=f"{missing} could not start it") if gang.has_live_runs else None
    ours = gang.attempt.launched_at >= gang.awake_at
    if now < again_at and not gang.whole and (ours or not missing):
        return Pending(wake_at=again_at, held=True)
    if not missing:
        found = pending_run(gang, now)
        every = len(gang.members) >= gang.hosts and all(one.work for one in gang.members)
        return replace(found, begun=True) if every and found is not None else found
    if gang.attempt.launches < LAUNCHES_MAX:
        return Pending(absent=missing)
    return Pending(broken=f"{missing} did not start it")


def pending_run(gang: Gang, now: float) -> Pending | None:
    """What is pending while the attempt runs; it ends when all hosts have ended."""
    over = [one for one in gang.members if one.over]
    if not over:
        return Pending()
    ends = [(one.work.ended or 0.0) if one.work is not None else 0.0 for one in over]
    if gang.whole:
        done = any(one.work is not None and one.work.complete for one in over)
        until = max(ends) + HOLD_S
        if done or gang.surveyed_at > max(ends) or now >= until:
            return None
        return Pending(wake_at=until, held=True)
    bad = next((one for one in over if one.lost or one.has_failed or one.was_sent_term), None)
    if bad is None:
        return Pending()
    until = min(ends) + HOLD_S
    if not bad.lost and now < until:
        return Pending(wake_at=until, held=True)
    return Pending(broken=bad.lost or f"{bad.host.name} {describe_end(bad.work)}")


def describe_end(work: HostRun | None) -> str:
    """exited with 1"""
    if work is None:
        return "is gone"
    if work.termed:
        return f"was stopped ({work.why})" if work.why else "was stopped"
    if work.signal:
        return f"was killed by signal {work.signal}"
    return f"exited with {work.exit}"
