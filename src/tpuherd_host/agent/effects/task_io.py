"""Carries out effects on a task's files: output, input and records."""

from tpuherd_host.agent.effects.log_segments import BURST_S, SegmentedLog, choose_last_lines
from tpuherd_host.agent.effects.runtime import AgentRuntime
from tpuherd_host.agent.effects.task_pipes import TaskPipes
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.state import Task

TAIL_BYTES = 1 << 16  #: of a log, in which its last lines are looked for
BURST_BYTES = 1 << 20  #: the same of what was written in the last moment


def get_pipes(runtime: AgentRuntime, work: Task, fresh: bool = True) -> TaskPipes:
    """Return the task's pipes and log, opened if necessary."""
    pipes = runtime.pipes_by_task.get(work.id)
    if pipes is None:
        folder = runtime.store.task_folder(work)
        log = SegmentedLog(folder, work.log_bytes, raw=work.terminal is not None, fresh=fresh)
        pipes = TaskPipes(
            folder,
            log,
            runtime.files.watch_file,
            runtime.files.unwatch_file,
            lambda: handle_ready(runtime, work.id),
        )
        runtime.pipes_by_task[work.id] = pipes
    return pipes


def handle_ready(runtime: AgentRuntime, id: str) -> None:
    """Read output or write input, whichever is possible."""
    pipes = runtime.pipes_by_task[id]
    if pipes.fed:
        took = pipes.write_input()
        if took:
            runtime.add_event(messages.InputConsumed(id, took))
    if not pipes.paused and pipes.outputs:
        last = pipes.read_outputs(runtime.current_time())
        runtime.grown.add(id)
        if last:
            runtime.queue_log_growth(id)
            runtime.add_event(messages.OutputsClosed(id))
            close_pipes(runtime, runtime.state.works[id])


def handle_started(runtime: AgentRuntime, pipes: TaskPipes, id: str) -> None:
    """The process has opened its pipes: send the input that was waiting."""
    try:
        pipes.handle_started()
        if pipes.input is not None:
            feed_input(runtime, messages.FeedInput(id, b""))
    except OSError:
        pass  # its pipes were deleted with our folder: it runs, but its output is lost


def read_remaining(runtime: AgentRuntime, id: str) -> None:
    """Read what the ended process left in its pipes."""
    pipes = runtime.pipes_by_task.get(id)
    if pipes is None:
        return
    pipes.process_ended = True
    if pipes.outputs and not pipes.paused:
        handle_ready(runtime, id)
        runtime.queue_log_growth(id)


def feed_input(runtime: AgentRuntime, effect: messages.FeedInput) -> None:
    pipes = runtime.pipes_by_task.get(effect.work)
    took = len(effect.piece or b"") if pipes is None else pipes.feed(effect.piece)
    if took:
        runtime.add_event(messages.InputConsumed(effect.work, took))


def resize_terminal(runtime: AgentRuntime, effect: messages.ResizeTerminal) -> None:
    pipes = runtime.pipes_by_task.get(effect.work)
    if pipes is not None:
        pipes.resize_terminal(effect.rows, effect.columns)


def append_note(runtime: AgentRuntime, effect: messages.AppendNote) -> None:
    try:
        log = get_pipes(runtime, effect.work).log
    except OSError:
        return  # the state has it too
    log.append(runtime.current_time(), effect.port, f"herd: {effect.sentence}\n".encode())
    runtime.queue_log_growth(effect.work.id)


def pause_output(runtime: AgentRuntime, effect: messages.PauseOutput) -> None:
    pipes = runtime.pipes_by_task.get(effect.work)
    if pipes is not None:
        pipes.set_paused(effect.on)


def read_log_tail(runtime: AgentRuntime, effect: messages.ReadLogTail) -> None:
    work = runtime.state.works[effect.work]
    try:
        log = get_pipes(runtime, work).log
        lines, burst = log.last_lines(TAIL_BYTES), log.last_lines(BURST_BYTES, BURST_S)
    except OSError:
        lines, burst = [], []
    lines = choose_last_lines(lines, burst, raised=work.ending.exit == 1)
    runtime.add_event(messages.LogTailRead(effect.work, tuple(lines)))


def save_task(runtime: AgentRuntime, effect: messages.SaveTask) -> None:
    """Record the task, and close its pipes if it is over."""
    try:
        runtime.store.task_folder(effect.work)
    except OSError:
        return
    runtime.save_task(effect.work, effect.hard)
    close_pipes(runtime, effect.work)


def close_pipes(runtime: AgentRuntime, work: Task) -> None:
    """Close the pipes of a task that is over."""
    pipes = runtime.pipes_by_task.get(work.id)
    if pipes is not None and not work.is_live:
        if pipes.outputs:
            pipes.log.close()  # a process that it left behind still writes
        else:
            pipes.close()
            runtime.outputs_done.append(work.id)


def forget_task(runtime: AgentRuntime, effect: messages.ForgetTask) -> None:
    pipes = runtime.pipes_by_task.pop(effect.work.id, None)
    if pipes is not None:
        pipes.close()
        runtime.outputs_done.append(effect.work.id)
    runtime.store.remove(effect.work)


def save_epochs(runtime: AgentRuntime, effect: messages.SaveEpochs) -> None:
    try:
        runtime.store.save_epochs(effect.epochs)
    except OSError:
        pass  # a full disk: this agent has them in memory


def save_stamp(runtime: AgentRuntime, effect: messages.SaveStamp) -> None:
    try:
        runtime.store.save_stamp(effect.stamp, effect.name)
    except OSError:
        pass  # a full disk: it will be done again
