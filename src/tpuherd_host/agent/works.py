"""The life of a piece of work: begin its stages, stop it, see it end, and keep it for a while."""

from tpuherd_host.agent.state import (
    ATTEMPT,
    ATTEMPT_KEEP_S,
    CLOSING,
    COMMAND,
    ENDED,
    FREEING,
    LOST,
    RUNNING,
    SETUP,
    STARTING,
    SWEEPING,
    WAITING,
    Ending,
    Stage,
    Work,
    shown,
)
from tpuherd_host.agent.thin import Optional, Tuple, signal
from tpuherd_host.agent.turn import Turn
from tpuherd_host.agent.words import (
    AptSeen,
    Began,
    Cleaned,
    Drained,
    Ended,
    Forget,
    Grew,
    LookAtApt,
    LookAtChips,
    LookForEnd,
    Note,
    Seen,
    Signal,
    Spawn,
    Stamp,
    Sweep,
    Swept,
    Tail,
    Tailed,
    Unborn,
)

DRAIN_S = 0.25  #: how long the last output may come after the leader's end
SWEEP_S = 0.2
ORPHAN_GRACE_S = 30.0  #: for what runs and of which nothing else is known
REST_GRACE_S = 5.0  #: for what an attempt leaves behind when it ends by itself
FREE_S = 30.0  #: how long chips may take to be free
APT_S = 5.0
APT_TRIES = 5
LOOK_S = 0.5
APT_BUSY = ("Could not get lock", "is held by process", "Unable to acquire the dpkg")
COMMANDS_KEPT = 300
UNSEEN = "how it ended was not seen: its agent was killed, too, as when a host goes down"
STDERR_PORT, WORD_PORT = 2, 3


def begin(turn: Turn, work: Work) -> Work:
    """The next stage that isn't stamped: now, or when its delay is over and apt is free."""
    while work.stage < len(work.stages) - 1:
        stage = work.stages[work.stage]
        if not stage.stamp or stage.stamp not in turn.state.stamps:
            break
        work = work._replace(stage=work.stage + 1)
    stage = work.stages[work.stage]
    if stage.stamp and stage.stamp in turn.state.stamps:  # the last of a setup
        return finish(turn, work._replace(ending=Ending(exit=0)))
    if stage.delay_s or stage.apt:
        return turn.put(work._replace(phase=WAITING, due=turn.now + stage.delay_s))
    return spawn(turn, work)


def spawn(turn: Turn, work: Work) -> Work:
    """The current stage, now."""
    stage = work.stages[work.stage]
    if stage.name:
        turn.do(Note(work, WORD_PORT, f"{stage.name} begins"))
    work = turn.put(work._replace(phase=STARTING, due=None, drained=False, pid=0))
    turn.do(Spawn(work))
    return work


def began(turn: Turn, happening: Began) -> None:
    """Its process is there."""
    work = turn.state.works[happening.work]
    early = work.early
    started = turn.now if work.started is None else work.started
    work = work._replace(
        phase=RUNNING,
        pid=happening.pid,
        ticks=happening.ticks,
        started=started,
        boot=turn.state.boot,
        drained=False,
        due=work.kill_at,
        early=(),
    )
    if work.kind == COMMAND:  # its nurse has written its process down
        turn.put(work)
    else:
        turn.changed(work)
    for number, whole in early:
        turn.do(Signal(work, number, whole))
    if work.kill_at is not None:  # stopped before it began
        turn.do(Signal(work, signal.SIGTERM, work.kind == COMMAND))


def unborn(turn: Turn, happening: Unborn) -> None:
    """It could not begin."""
    work = turn.state.works[happening.work]
    turn.do(Note(work, STDERR_PORT, happening.sentence))
    work = work._replace(why=happening.sentence)
    work = finish(turn, work._replace(ending=Ending(exit=happening.exit), ended=turn.now))
    turn.put(work._replace(due=turn.now))  # not at once: what was noted is to be sent before


def stop(turn: Turn, work: Work, grace_s: float, why: str) -> None:
    """TERM now, KILL when the grace is over. An earlier end counts when it is stopped twice."""
    kill_at = turn.now + grace_s
    if work.kill_at is not None:
        kill_at = min(kill_at, work.kill_at)
    if work.phase in (WAITING, STARTING, RUNNING):
        work = work._replace(stopped=True)
    if work.phase == WAITING:
        finish(turn, work._replace(why=why, kill_at=kill_at, ended=turn.now, drained=True))
    elif work.phase == STARTING:
        turn.put(work._replace(kill_at=kill_at, why=why))
    elif work.phase == RUNNING:
        first = work.kill_at is None
        due = turn.now if work.adopted else kill_at
        work = work._replace(kill_at=kill_at, due=due, why=work.why or why)
        turn.changed(work)
        if first:
            turn.do(Signal(work, signal.SIGTERM, work.kind == COMMAND))
    elif work.phase == SWEEPING:
        turn.put(work._replace(kill_at=min(kill_at, work.kill_at or kill_at)))


def cleaned(turn: Turn, happening: Cleaned) -> None:
    """Their processes are about to be ended by a user's word: so they have not failed."""
    for id in happening.works:
        work = turn.state.works.get(id)
        if work is not None and work.live:
            turn.changed(work._replace(stopped=True, why=work.why or happening.why), hard=False)


def ended(turn: Turn, happening: Ended) -> None:
    """Its leader has ended: on to the next stage, or to the end."""
    work = turn.state.works.get(happening.work)
    if work is None or not work.mortal:
        return
    ending = happening.ending
    if ending.exit is None and ending.signal is None:
        why = work.why or UNSEEN
        finish(turn, work._replace(ended=happening.at, why=why, unseen=True))
        return
    work = work._replace(ending=ending, ended=happening.at)
    stage = work.stages[work.stage]
    if ending.exit == 0 and stage.stamp:
        turn.do(Stamp(stage.stamp, stage.name))
        turn.state = turn.state._replace(stamps=turn.state.stamps | {stage.stamp})
    if ending.exit and stage.apt and work.kill_at is None and work.retried < APT_TRIES:
        turn.put(work)
        turn.do(Tail(work.id))  # was somebody quicker at apt's lock?
        return
    if ending.exit == 0 and work.kill_at is None and work.stage < len(work.stages) - 1:
        after = work._replace(stage=work.stage + 1, retried=0, ending=Ending(), ended=None)
        turn.changed(begin(turn, after))
        return
    finish(turn, work)


def finish(turn: Turn, work: Work) -> Work:
    """Its leader is gone for good. What is left of an attempt, or of what was stopped, goes too."""
    if work.stage < len(work.stages) - 1 and not work.why:
        name = work.stages[work.stage].name or f"setup step {work.stage + 1}"
        work = work._replace(why=f"{name} failed")
    if work.kind == COMMAND and work.kill_at is None:
        return close(turn, work)
    kill_at = turn.now + REST_GRACE_S if work.kill_at is None else work.kill_at
    return turn.put(work._replace(phase=SWEEPING, kill_at=kill_at, due=turn.now))


def close(turn: Turn, work: Work) -> Work:
    """Wait a moment for the last output."""
    if work.drained and work.kind == COMMAND:
        return settle(turn, work)
    due = turn.now if work.drained else turn.now + DRAIN_S
    work = turn.put(work._replace(phase=CLOSING, due=due))
    if work.drained:
        look(turn, work)
    return work


def look(turn: Turn, work: Work) -> None:
    """What is due for it."""
    now = turn.now
    if work.phase == WAITING:
        if work.stages[work.stage].apt:
            turn.put(work._replace(due=now + APT_S))
            turn.do(LookAtApt(work.id))
        else:
            spawn(turn, work)
    elif work.phase == RUNNING:
        kill = work.kill_at is not None and now >= work.kill_at
        turn.put(work._replace(due=now + (1.0 if kill else LOOK_S)))
        if kill:
            turn.do(Sweep(work, signal.SIGKILL))
        if work.adopted:
            turn.do(LookForEnd(work))
    elif work.phase == SWEEPING:
        number = signal.SIGTERM if not work.termed else 0
        if work.kill_at is not None and now >= work.kill_at:
            number = signal.SIGKILL
        turn.put(work._replace(termed=True, due=now + SWEEP_S))
        turn.do(Sweep(work, number))
    elif work.phase == FREEING:
        turn.put(work._replace(due=now + LOOK_S))
        turn.do(LookAtChips(work.id))
    elif work.phase == CLOSING:
        turn.put(work._replace(due=None))
        if work.kind == COMMAND:
            settle(turn, work)
        else:
            turn.do(Tail(work.id))
    elif not work.live:
        forget(turn, work)


def swept(turn: Turn, happening: Swept) -> None:
    """Are all its processes gone?"""
    work = turn.state.works.get(happening.work)
    if work is None or work.phase != SWEEPING or happening.left:
        return
    if work.kind == ATTEMPT:
        work = turn.put(work._replace(phase=FREEING, due=turn.now, free_by=turn.now + FREE_S))
        look(turn, work)
    else:
        close(turn, work)


def seen(turn: Turn, happening: Seen) -> None:
    """Are the chips free?"""
    work = turn.state.works.get(happening.work)
    if work is None or work.phase != FREEING:
        return
    if not happening.holders or turn.now >= work.free_by:
        free = not happening.holders
        close(turn, work._replace(free=free, holders=happening.holders))


def apt_seen(turn: Turn, happening: AptSeen) -> None:
    """Are apt's locks free?"""
    work = turn.state.works.get(happening.work)
    if work is None or work.phase != WAITING:
        return
    if not happening.holder:
        spawn(turn, work)
    elif not work.retried:
        turn.put(work._replace(retried=1))
        turn.do(Note(work, WORD_PORT, f"waiting for apt's lock, held by {happening.holder}"))


def tailed(turn: Turn, happening: Tailed) -> None:
    """Its last lines: for the record, or to see why apt failed."""
    work = turn.state.works.get(happening.work)
    if work is None or not work.live:
        return
    if work.phase == CLOSING:
        settle(turn, work._replace(tail=happening.lines))
    elif work.phase == RUNNING:
        if any(word in line for line in happening.lines for word in APT_BUSY):
            again = work._replace(retried=work.retried + 1, ending=Ending(), ended=None)
            turn.put(again._replace(phase=WAITING, due=turn.now + APT_S))
        else:
            finish(turn, work)


def settle(turn: Turn, work: Work) -> Work:
    """It is over: for the record, for those who follow, for those who wait."""
    phase = LOST if work.unseen else ENDED
    work = work._replace(phase=phase, due=turn.now + work.keep_s, paused=False, feeder=None)
    turn.changed(work)
    turn.spread(work.id)
    for one in list(turn.state.connections.values()):
        for call in list(one.calls.values()):
            if call.work == work.id and not call.follows:
                turn.reply(one.id, call.id, shown(work))
    crowd(turn)
    return work


def crowd(turn: Turn) -> None:
    """Only so many ended commands are kept."""
    if len(turn.state.works) <= COMMANDS_KEPT:
        return
    over = [w for w in turn.state.works.values() if w.kind == COMMAND and not w.live]
    if len(over) > COMMANDS_KEPT:
        over.sort(key=lambda work: work.ended or work.asked)
        for work in over[: len(over) - COMMANDS_KEPT]:
            forget(turn, work)


def forget(turn: Turn, work: Work) -> None:
    """Its record and log go."""
    for one in list(turn.state.connections.values()):
        for call in list(one.calls.values()):
            if call.work == work.id:
                turn.fail(one.id, call.id, "unknown", f"{work.id} is forgotten")
    rest = {id: kept for id, kept in turn.state.works.items() if id != work.id}
    turn.state = turn.state._replace(works=rest)
    turn.do(Forget(work))


def grew(turn: Turn, happening: Grew) -> None:
    """Its log has more."""
    work = turn.state.works.get(happening.work)
    if work is None:
        return
    if happening.lost_bytes > work.lost_bytes:
        sentence = f"the disk is full: output of {work.id} is lost"
        turn.tell({"event": "gap", "work": work.id, "lost": happening.lost_bytes, "why": sentence})
    turn.put(
        work._replace(
            first=happening.first,
            length=happening.length,
            lost_bytes=happening.lost_bytes,
            logged=turn.now if happening.length > work.length else work.logged,
        )
    )
    turn.spread(work.id)


def drained(turn: Turn, happening: Drained) -> None:
    """Its outputs are closed."""
    work = turn.state.works.get(happening.work)
    if work is None:
        return
    work = turn.put(work._replace(drained=True))
    if work.phase == CLOSING and work.due is not None:
        look(turn, work)


def orphan(mark: str, boot: str, now: float) -> Optional[Work]:
    """An attempt or a setup that runs, as its processes' mark tells, and of which all else is lost:
    somebody removed our folder. It is ended, for nobody could tell how it goes; None for a command
    of a user's, which harms nobody.
    """
    bid = mark.rpartition("-setup-")[0]
    kind, letter = (SETUP, "-g") if bid else (ATTEMPT, "-a")
    slot, _, rest = (bid or mark).rpartition(letter)
    number, _, owner = rest.partition("-")
    if not (slot and owner and number.isdigit()):
        return None
    return Work(
        id=mark,
        kind=kind,
        stages=(Stage(("true",)),),
        asked=now,
        phase=SWEEPING,
        slot=slot,
        boot=boot,
        started=now,
        ended=now,
        kill_at=now + ORPHAN_GRACE_S,
        due=now,
        drained=True,
        unseen=True,
        why="what its agent knew of it was removed from the host, so it was ended",
        keep_s=ATTEMPT_KEEP_S,
    )


def found(work: Work, boot: str, alive: bool, now: float) -> Tuple[Work, str]:
    """How a piece of work that an earlier agent left stands; and what is to be told of it."""
    if not work.live:
        return work, ""
    if work.boot and work.boot != boot:
        why = "the host was rebooted"
    elif alive or work.pid:
        return work._replace(adopted=True, feeder=None, paused=False, due=now), ""
    else:
        why = "the agent was killed before it began"
    work = work._replace(phase=LOST, unseen=True, why=why, ended=now, feeder=None)
    return work._replace(due=now + work.keep_s), why
