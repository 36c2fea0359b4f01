"""The life of a task: start its stages, stop it, see it end, and keep it for a while."""

import re
import signal
from typing import Optional, Tuple

from tpuherd_host.agent.state_machine.messages import (
    AppendNote,
    CheckAdopted,
    ChipUsersFound,
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
    CLEANED,
    CLOSING,
    COMMAND,
    ENDED,
    FREEING,
    LOST,
    OUTSIDE,
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
LOOK_S = 0.5
COMMANDS_KEPT = 300
#: Signals by which people and programs end others; those of a crash are not among them.
ENDING_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM)
SHELL_SIGNAL = 128  #: a shell adds it to the signal that ended its command
SAVED = 75  #: the exit status of a script that has saved after a signal
KILLER = re.compile(r"\b(pkill|killall|kill)\b")
KILLER_S = 30.0  #: a script may take so long to save after the signal
UNSEEN = "its exit status is unknown: the agent was killed too, as when a host goes down"
STDERR_PORT, WORD_PORT = 2, 3


def begin_stage(transition: Transition, work: Task) -> Task:
    """Start the next stage without a stamp: now, or when its delay is over."""
    while work.stage < len(work.stages) - 1:
        stage = work.stages[work.stage]
        if not stage.stamp or stage.stamp not in transition.state.stamps:
            break
        work = work._replace(stage=work.stage + 1)
    stage = work.stages[work.stage]
    if stage.stamp and stage.stamp in transition.state.stamps:  # the last stage of a setup
        return finish_task(transition, work._replace(ending=Ending(exit=0)))
    if stage.delay_s:
        return transition.put_task(work._replace(phase=WAITING, due=transition.now + stage.delay_s))
    return spawn_stage(transition, work)


def spawn_stage(transition: Transition, work: Task) -> Task:
    stage = work.stages[work.stage]
    if stage.name:
        transition.add_effects(AppendNote(work, WORD_PORT, f"{stage.name} begins"))
    work = transition.put_task(work._replace(phase=STARTING, due=None, drained=False, pid=0))
    transition.add_effects(SpawnProcess(work))
    return work


def handle_started(transition: Transition, event: ProcessStarted) -> None:
    work = transition.state.works[event.work]
    early = work.early
    started = transition.now if work.started is None else work.started
    work = work._replace(
        phase=RUNNING,
        pid=event.pid,
        ticks=event.ticks,
        started=started,
        boot=transition.state.boot,
        drained=False,
        due=work.kill_at,
        early=(),
    )
    if work.kind == COMMAND:  # the supervisor has recorded its process
        transition.put_task(work)
    else:
        transition.save_task(work)
    for number, whole in early:
        transition.add_effects(SendSignal(work, number, whole))
    if work.kill_at is not None:  # stopped before it began
        transition.add_effects(SendSignal(work, signal.SIGTERM, work.kind == COMMAND))


def handle_spawn_failed(transition: Transition, event: SpawnFailed) -> None:
    work = transition.state.works[event.work]
    transition.add_effects(AppendNote(work, STDERR_PORT, event.sentence))
    work = work._replace(why=event.sentence, code=event.code)
    work = finish_task(
        transition, work._replace(ending=Ending(exit=event.exit), ended=transition.now)
    )
    transition.put_task(work._replace(due=transition.now))  # not at once: the note is sent first


def stop_task(transition: Transition, work: Task, grace_s: float, why: str) -> None:
    """Send TERM now and KILL after the grace period; of two stops the earlier deadline counts."""
    kill_at = transition.now + grace_s
    if work.kill_at is not None:
        kill_at = min(kill_at, work.kill_at)
    if work.phase in (WAITING, STARTING, RUNNING):
        work = work._replace(stopped=True)
    if work.phase == WAITING:
        finish_task(
            transition,
            work._replace(why=why, code="", kill_at=kill_at, ended=transition.now, drained=True),
        )
    elif work.phase == STARTING:
        transition.put_task(work._replace(kill_at=kill_at, why=why, code=""))
    elif work.phase == RUNNING:
        first = work.kill_at is None
        due = transition.now if work.adopted else kill_at
        work = work._replace(kill_at=kill_at, due=due, why=work.why or why)
        transition.save_task(work)
        if first:
            transition.add_effects(SendSignal(work, signal.SIGTERM, work.kind == COMMAND))
    elif work.phase == SWEEPING:
        transition.put_task(work._replace(kill_at=min(kill_at, work.kill_at or kill_at)))


def handle_cleaned(transition: Transition, event: TasksCleaned) -> None:
    """Note that a user ends these tasks' processes, so that their end is not a failure."""
    for id in event.works:
        work = transition.state.works.get(id)
        if work is not None and work.is_live:
            code = work.code if work.why else CLEANED
            cleaned = work._replace(stopped=True, why=work.why or event.why, code=code)
            transition.save_task(cleaned, hard=False)


def handle_ended(transition: Transition, event: ProcessEnded) -> None:
    """The leader ended: start the next stage, or finish."""
    work = transition.state.works.get(event.work)
    if work is None or not work.has_leader:
        return
    ending = event.ending
    if ending.exit is None and ending.signal is None:
        why = work.why or UNSEEN
        finish_task(transition, work._replace(ended=event.at, why=why, unseen=True))
        return
    work = with_killer(transition, work._replace(ending=ending, ended=event.at))
    stage = work.stages[work.stage]
    if ending.exit == 0 and stage.stamp:
        transition.add_effects(SaveStamp(stage.stamp, stage.name))
        transition.state = transition.state._replace(stamps=transition.state.stamps | {stage.stamp})
    if ending.exit == 0 and work.kill_at is None and work.stage < len(work.stages) - 1:
        after = work._replace(stage=work.stage + 1, ending=Ending(), ended=None)
        transition.save_task(begin_stage(transition, after))
        return
    finish_task(transition, work)


def with_killer(transition: Transition, work: Task) -> Task:
    """Return the task; if another's signal ended it, with the user's command that has sent it.

    A script that saved and left may have agreed on that with other hosts: then it has no code.
    """
    number = work.ending.signal or (work.ending.exit or 0) - SHELL_SIGNAL
    if work.kind == COMMAND or work.stopped or work.kill_at is not None:
        return work
    if number in ENDING_SIGNALS:
        work = work._replace(code=OUTSIDE)
    elif work.ending.exit != SAVED:
        return work
    since = (work.ended or transition.now) - KILLER_S
    killers = [
        other
        for other in transition.state.works.values()
        if other.kind == COMMAND and (other.started or 0.0) >= since and KILLER.search(other.title)
    ]
    if not killers:
        return work
    last = max(killers, key=lambda other: other.started or 0.0)
    by = f"{last.who} ran" if last.who else "a user ran"
    return work._replace(why=f"{by} `{last.title}` on this host a moment before")


def finish_task(transition: Transition, work: Task) -> Task:
    """End what an attempt or a stopped command left behind, now that its leader is gone."""
    if work.stage < len(work.stages) - 1 and not work.why:
        name = work.stages[work.stage].name or f"setup step {work.stage + 1}"
        work = work._replace(why=f"{name} failed")
    if work.kind == COMMAND and work.kill_at is None:
        return close_task(transition, work)
    kill_at = transition.now + REST_GRACE_S if work.kill_at is None else work.kill_at
    return transition.put_task(work._replace(phase=SWEEPING, kill_at=kill_at, due=transition.now))


def close_task(transition: Transition, work: Task) -> Task:
    """Wait a moment for the last output."""
    if work.drained and work.kind == COMMAND:
        return settle_task(transition, work)
    due = transition.now if work.drained else transition.now + DRAIN_S
    work = transition.put_task(work._replace(phase=CLOSING, due=due))
    if work.drained:
        on_due(transition, work)
    return work


def on_due(transition: Transition, work: Task) -> None:
    """Do what the task's phase was waiting for."""
    now = transition.now
    if work.phase == WAITING:
        spawn_stage(transition, work)
    elif work.phase == RUNNING:
        kill = work.kill_at is not None and now >= work.kill_at
        transition.put_task(work._replace(due=now + (1.0 if kill else LOOK_S)))
        if kill:
            transition.add_effects(SweepProcesses(work, signal.SIGKILL))
        if work.adopted:
            transition.add_effects(CheckAdopted(work))
    elif work.phase == SWEEPING:
        number = signal.SIGTERM if not work.termed else 0
        if work.kill_at is not None and now >= work.kill_at:
            number = signal.SIGKILL
        transition.put_task(work._replace(termed=True, due=now + SWEEP_S))
        transition.add_effects(SweepProcesses(work, number))
    elif work.phase == FREEING:
        transition.put_task(work._replace(due=now + LOOK_S))
        transition.add_effects(FindChipUsers(work.id))
    elif work.phase == CLOSING:
        transition.put_task(work._replace(due=None))
        if work.kind == COMMAND:
            settle_task(transition, work)
        else:
            transition.add_effects(ReadLogTail(work.id))
    elif not work.is_live:
        forget_task(transition, work)


def handle_counted(transition: Transition, event: ProcessesCounted) -> None:
    """Move on when all processes are gone."""
    work = transition.state.works.get(event.work)
    if work is None or work.phase != SWEEPING or event.left:
        return
    if work.kind == ATTEMPT:
        work = transition.put_task(
            work._replace(phase=FREEING, due=transition.now, free_by=transition.now + FREE_S)
        )
        on_due(transition, work)
    else:
        close_task(transition, work)


def handle_chip_users(transition: Transition, event: ChipUsersFound) -> None:
    """Move on when the chips are free, or after FREE_S."""
    work = transition.state.works.get(event.work)
    if work is None or work.phase != FREEING:
        return
    if not event.holders or transition.now >= work.free_by:
        free = not event.holders
        close_task(transition, work._replace(free=free, holders=event.holders))


def handle_log_tail(transition: Transition, event: LogTailRead) -> None:
    """Record the last lines."""
    work = transition.state.works.get(event.work)
    if work is not None and work.phase == CLOSING:
        settle_task(transition, work._replace(tail=event.lines))


def settle_task(transition: Transition, work: Task) -> Task:
    """Record the task's end and notify its followers and waiting calls."""
    phase = LOST if work.unseen else ENDED
    work = work._replace(phase=phase, due=transition.now + work.keep_s, paused=False, feeder=None)
    transition.save_task(work)
    transition.notify_followers(work.id)
    for one in list(transition.state.connections.values()):
        for call in list(one.calls.values()):
            if call.work == work.id and not call.follows:
                transition.send_reply(one.id, call.id, task_json(work))
    evict_old(transition)
    return work


def evict_old(transition: Transition) -> None:
    """Keep at most COMMANDS_KEPT ended commands."""
    if len(transition.state.works) <= COMMANDS_KEPT:
        return
    over = [w for w in transition.state.works.values() if w.kind == COMMAND and not w.is_live]
    if len(over) > COMMANDS_KEPT:
        over.sort(key=lambda work: work.ended or work.asked)
        for work in over[: len(over) - COMMANDS_KEPT]:
            forget_task(transition, work)


def forget_task(transition: Transition, work: Task) -> None:
    """Delete the task's record and log."""
    for one in list(transition.state.connections.values()):
        for call in list(one.calls.values()):
            if call.work == work.id:
                transition.send_failure(one.id, call.id, "unknown", f"{work.id} has expired")
    rest = {id: kept for id, kept in transition.state.works.items() if id != work.id}
    transition.state = transition.state._replace(works=rest)
    transition.add_effects(ForgetTask(work))


def handle_log_growth(transition: Transition, event: LogGrew) -> None:
    work = transition.state.works.get(event.work)
    if work is None:
        return
    if event.lost_bytes > work.lost_bytes:
        sentence = f"the disk is full: output of {work.id} is lost"
        transition.send_event(
            {"event": "gap", "work": work.id, "lost": event.lost_bytes, "why": sentence}
        )
    transition.put_task(
        work._replace(
            first=event.first,
            length=event.length,
            lost_bytes=event.lost_bytes,
            logged=transition.now if event.length > work.length else work.logged,
        )
    )
    transition.notify_followers(work.id)


def handle_outputs_closed(transition: Transition, event: OutputsClosed) -> None:
    work = transition.state.works.get(event.work)
    if work is None:
        return
    work = transition.put_task(work._replace(drained=True))
    if work.phase == CLOSING and work.due is not None:
        on_due(transition, work)


def orphan_task(mark: str, boot: str, now: float) -> Optional[Task]:
    """Return a task for an attempt or setup whose processes run but whose records were deleted.

    It is stopped, since its end could not be reported. None for a user's command: it is harmless.
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
    work = work._replace(phase=LOST, unseen=True, why=why, code="", ended=now, feeder=None)
    return work._replace(due=now + work.keep_s), why
