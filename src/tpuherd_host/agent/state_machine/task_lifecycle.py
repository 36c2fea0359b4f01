"""The life of a task: start its stages, stop it, see it end, and keep it for a while."""

import signal
from typing import Optional, Tuple

from tpuherd_host.agent.state_machine.messages import (
    AppendNote,
    AptHolderFound,
    CheckAdopted,
    ChipUsersFound,
    FindAptHolder,
    FindChipUsers,
    ForgetTask,
    LogGrew,
    LogTailRead,
    OutputsClosed,
    ProcessEnded,
    ProcessesCounted,
    ProcessStarted,
    ReadLogTail,
    SaveStamp,
    SendSignal,
    SpawnFailed,
    SpawnProcess,
    SweepProcesses,
    TasksCleaned,
)
from tpuherd_host.agent.state_machine.state import (
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
    Task,
    task_json,
)
from tpuherd_host.agent.state_machine.transition import Transition

DRAIN_S = 0.25  #: how long the last output may come after the leader's end
SWEEP_S = 0.2
ORPHAN_GRACE_S = 30.0  #: for tasks without a record
REST_GRACE_S = 5.0  #: for processes that an attempt leaves behind
FREE_S = 30.0  #: how long chips may take to become free
APT_S = 5.0
APT_TRIES = 5
LOOK_S = 0.5
APT_BUSY = ("Could not get lock", "is held by process", "Unable to acquire the dpkg")
COMMANDS_KEPT = 300
UNSEEN = "its exit status is unknown: the agent was killed too, as when a host goes down"
STDERR_PORT, WORD_PORT = 2, 3


def begin_stage(turn: Transition, work: Task) -> Task:
    """Start the next stage without a stamp: now, or when its delay is over and apt is free."""
    while work.stage < len(work.stages) - 1:
        stage = work.stages[work.stage]
        if not stage.stamp or stage.stamp not in turn.state.stamps:
            break
        work = work._replace(stage=work.stage + 1)
    stage = work.stages[work.stage]
    if stage.stamp and stage.stamp in turn.state.stamps:  # the last stage of a setup
        return finish_task(turn, work._replace(ending=Ending(exit=0)))
    if stage.delay_s or stage.apt:
        return turn.put_task(work._replace(phase=WAITING, due=turn.now + stage.delay_s))
    return spawn_stage(turn, work)


def spawn_stage(turn: Transition, work: Task) -> Task:
    stage = work.stages[work.stage]
    if stage.name:
        turn.add_effects(AppendNote(work, WORD_PORT, f"{stage.name} begins"))
    work = turn.put_task(work._replace(phase=STARTING, due=None, drained=False, pid=0))
    turn.add_effects(SpawnProcess(work))
    return work


def handle_started(turn: Transition, happening: ProcessStarted) -> None:
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
    if work.kind == COMMAND:  # the supervisor has recorded its process
        turn.put_task(work)
    else:
        turn.save_task(work)
    for number, whole in early:
        turn.add_effects(SendSignal(work, number, whole))
    if work.kill_at is not None:  # stopped before it began
        turn.add_effects(SendSignal(work, signal.SIGTERM, work.kind == COMMAND))


def handle_spawn_failed(turn: Transition, happening: SpawnFailed) -> None:
    work = turn.state.works[happening.work]
    turn.add_effects(AppendNote(work, STDERR_PORT, happening.sentence))
    work = work._replace(why=happening.sentence)
    work = finish_task(turn, work._replace(ending=Ending(exit=happening.exit), ended=turn.now))
    turn.put_task(work._replace(due=turn.now))  # not at once: the note is sent first


def stop_task(turn: Transition, work: Task, grace_s: float, why: str) -> None:
    """Send TERM now and KILL after the grace period; of two stops the earlier deadline counts."""
    kill_at = turn.now + grace_s
    if work.kill_at is not None:
        kill_at = min(kill_at, work.kill_at)
    if work.phase in (WAITING, STARTING, RUNNING):
        work = work._replace(stopped=True)
    if work.phase == WAITING:
        finish_task(turn, work._replace(why=why, kill_at=kill_at, ended=turn.now, drained=True))
    elif work.phase == STARTING:
        turn.put_task(work._replace(kill_at=kill_at, why=why))
    elif work.phase == RUNNING:
        first = work.kill_at is None
        due = turn.now if work.adopted else kill_at
        work = work._replace(kill_at=kill_at, due=due, why=work.why or why)
        turn.save_task(work)
        if first:
            turn.add_effects(SendSignal(work, signal.SIGTERM, work.kind == COMMAND))
    elif work.phase == SWEEPING:
        turn.put_task(work._replace(kill_at=min(kill_at, work.kill_at or kill_at)))


def handle_cleaned(turn: Transition, happening: TasksCleaned) -> None:
    """Note that a user ends these tasks' processes, so that their end is not a failure."""
    for id in happening.works:
        work = turn.state.works.get(id)
        if work is not None and work.is_live:
            turn.save_task(work._replace(stopped=True, why=work.why or happening.why), hard=False)


def handle_ended(turn: Transition, happening: ProcessEnded) -> None:
    """The leader ended: start the next stage, or finish."""
    work = turn.state.works.get(happening.work)
    if work is None or not work.has_leader:
        return
    ending = happening.ending
    if ending.exit is None and ending.signal is None:
        why = work.why or UNSEEN
        finish_task(turn, work._replace(ended=happening.at, why=why, unseen=True))
        return
    work = work._replace(ending=ending, ended=happening.at)
    stage = work.stages[work.stage]
    if ending.exit == 0 and stage.stamp:
        turn.add_effects(SaveStamp(stage.stamp, stage.name))
        turn.state = turn.state._replace(stamps=turn.state.stamps | {stage.stamp})
    if ending.exit and stage.apt and work.kill_at is None and work.retried < APT_TRIES:
        turn.put_task(work)
        turn.add_effects(ReadLogTail(work.id))  # did another process get apt's lock first?
        return
    if ending.exit == 0 and work.kill_at is None and work.stage < len(work.stages) - 1:
        after = work._replace(stage=work.stage + 1, retried=0, ending=Ending(), ended=None)
        turn.save_task(begin_stage(turn, after))
        return
    finish_task(turn, work)


def finish_task(turn: Transition, work: Task) -> Task:
    """End what an attempt or a stopped command left behind, now that its leader is gone."""
    if work.stage < len(work.stages) - 1 and not work.why:
        name = work.stages[work.stage].name or f"setup step {work.stage + 1}"
        work = work._replace(why=f"{name} failed")
    if work.kind == COMMAND and work.kill_at is None:
        return close_task(turn, work)
    kill_at = turn.now + REST_GRACE_S if work.kill_at is None else work.kill_at
    return turn.put_task(work._replace(phase=SWEEPING, kill_at=kill_at, due=turn.now))


def close_task(turn: Transition, work: Task) -> Task:
    """Wait a moment for the last output."""
    if work.drained and work.kind == COMMAND:
        return settle_task(turn, work)
    due = turn.now if work.drained else turn.now + DRAIN_S
    work = turn.put_task(work._replace(phase=CLOSING, due=due))
    if work.drained:
        on_due(turn, work)
    return work


def on_due(turn: Transition, work: Task) -> None:
    """Do what the task's phase has waited for."""
    now = turn.now
    if work.phase == WAITING:
        if work.stages[work.stage].apt:
            turn.put_task(work._replace(due=now + APT_S))
            turn.add_effects(FindAptHolder(work.id))
        else:
            spawn_stage(turn, work)
    elif work.phase == RUNNING:
        kill = work.kill_at is not None and now >= work.kill_at
        turn.put_task(work._replace(due=now + (1.0 if kill else LOOK_S)))
        if kill:
            turn.add_effects(SweepProcesses(work, signal.SIGKILL))
        if work.adopted:
            turn.add_effects(CheckAdopted(work))
    elif work.phase == SWEEPING:
        number = signal.SIGTERM if not work.termed else 0
        if work.kill_at is not None and now >= work.kill_at:
            number = signal.SIGKILL
        turn.put_task(work._replace(termed=True, due=now + SWEEP_S))
        turn.add_effects(SweepProcesses(work, number))
    elif work.phase == FREEING:
        turn.put_task(work._replace(due=now + LOOK_S))
        turn.add_effects(FindChipUsers(work.id))
    elif work.phase == CLOSING:
        turn.put_task(work._replace(due=None))
        if work.kind == COMMAND:
            settle_task(turn, work)
        else:
            turn.add_effects(ReadLogTail(work.id))
    elif not work.is_live:
        forget_task(turn, work)


def handle_counted(turn: Transition, happening: ProcessesCounted) -> None:
    """Move on when all processes are gone."""
    work = turn.state.works.get(happening.work)
    if work is None or work.phase != SWEEPING or happening.left:
        return
    if work.kind == ATTEMPT:
        work = turn.put_task(work._replace(phase=FREEING, due=turn.now, free_by=turn.now + FREE_S))
        on_due(turn, work)
    else:
        close_task(turn, work)


def handle_chip_users(turn: Transition, happening: ChipUsersFound) -> None:
    """Move on when the chips are free, or after FREE_S."""
    work = turn.state.works.get(happening.work)
    if work is None or work.phase != FREEING:
        return
    if not happening.holders or turn.now >= work.free_by:
        free = not happening.holders
        close_task(turn, work._replace(free=free, holders=happening.holders))


def handle_apt_holder(turn: Transition, happening: AptHolderFound) -> None:
    """Start the stage when apt's locks are free."""
    work = turn.state.works.get(happening.work)
    if work is None or work.phase != WAITING:
        return
    if not happening.holder:
        spawn_stage(turn, work)
    elif not work.retried:
        turn.put_task(work._replace(retried=1))
        turn.add_effects(
            AppendNote(work, WORD_PORT, f"waiting for apt's lock, held by {happening.holder}")
        )


def handle_log_tail(turn: Transition, happening: LogTailRead) -> None:
    """Record the last lines, or see from them whether apt was busy."""
    work = turn.state.works.get(happening.work)
    if work is None or not work.is_live:
        return
    if work.phase == CLOSING:
        settle_task(turn, work._replace(tail=happening.lines))
    elif work.phase == RUNNING:
        if any(word in line for line in happening.lines for word in APT_BUSY):
            again = work._replace(retried=work.retried + 1, ending=Ending(), ended=None)
            turn.put_task(again._replace(phase=WAITING, due=turn.now + APT_S))
        else:
            finish_task(turn, work)


def settle_task(turn: Transition, work: Task) -> Task:
    """Record the task's end and tell everyone who follows it or waits for it."""
    phase = LOST if work.unseen else ENDED
    work = work._replace(phase=phase, due=turn.now + work.keep_s, paused=False, feeder=None)
    turn.save_task(work)
    turn.notify_followers(work.id)
    for one in list(turn.state.connections.values()):
        for call in list(one.calls.values()):
            if call.work == work.id and not call.follows:
                turn.send_reply(one.id, call.id, task_json(work))
    evict_old(turn)
    return work


def evict_old(turn: Transition) -> None:
    """Keep at most COMMANDS_KEPT ended commands."""
    if len(turn.state.works) <= COMMANDS_KEPT:
        return
    over = [w for w in turn.state.works.values() if w.kind == COMMAND and not w.is_live]
    if len(over) > COMMANDS_KEPT:
        over.sort(key=lambda work: work.ended or work.asked)
        for work in over[: len(over) - COMMANDS_KEPT]:
            forget_task(turn, work)


def forget_task(turn: Transition, work: Task) -> None:
    """Delete the task's record and log."""
    for one in list(turn.state.connections.values()):
        for call in list(one.calls.values()):
            if call.work == work.id:
                turn.send_failure(one.id, call.id, "unknown", f"{work.id} is forgotten")
    rest = {id: kept for id, kept in turn.state.works.items() if id != work.id}
    turn.state = turn.state._replace(works=rest)
    turn.add_effects(ForgetTask(work))


def handle_log_growth(turn: Transition, happening: LogGrew) -> None:
    work = turn.state.works.get(happening.work)
    if work is None:
        return
    if happening.lost_bytes > work.lost_bytes:
        sentence = f"the disk is full: output of {work.id} is lost"
        turn.send_event(
            {"event": "gap", "work": work.id, "lost": happening.lost_bytes, "why": sentence}
        )
    turn.put_task(
        work._replace(
            first=happening.first,
            length=happening.length,
            lost_bytes=happening.lost_bytes,
            logged=turn.now if happening.length > work.length else work.logged,
        )
    )
    turn.notify_followers(work.id)


def handle_outputs_closed(turn: Transition, happening: OutputsClosed) -> None:
    work = turn.state.works.get(happening.work)
    if work is None:
        return
    work = turn.put_task(work._replace(drained=True))
    if work.phase == CLOSING and work.due is not None:
        on_due(turn, work)


def orphan_task(mark: str, boot: str, now: float) -> Optional[Task]:
    """Return a task for an attempt or setup whose processes run but whose records were deleted.

    It is stopped, since nobody could learn its end. None for a user's command, which does no harm.
    """
    bid = mark.rpartition("-setup-")[0]
    kind, letter = (SETUP, "-g") if bid else (ATTEMPT, "-a")
    slot, _, rest = (bid or mark).rpartition(letter)
    number, _, owner = rest.partition("-")
    if not (slot and owner and number.isdigit()):
        return None
    return Task(
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
        why="the agent's records of it were removed from the host, so it was stopped",
        keep_s=ATTEMPT_KEEP_S,
    )


def adopt_previous(work: Task, boot: str, alive: bool, now: float) -> Tuple[Task, str]:
    """Return a task of an earlier agent as it is now, and a sentence about its end."""
    if not work.is_live:
        return work, ""
    if work.boot and work.boot != boot:
        why = "the host was rebooted"
    elif alive or work.pid:
        return work._replace(adopted=True, feeder=None, paused=False, due=now), ""
    else:
        why = "the agent was killed before it started"
    work = work._replace(phase=LOST, unseen=True, why=why, ended=now, feeder=None)
    return work._replace(due=now + work.keep_s), why
