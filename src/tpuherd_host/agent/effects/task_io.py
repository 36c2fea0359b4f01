"""How effects on a task's files are carried out: output, input, and records."""

from tpuherd_host.agent.effects.log_segments import SegmentedLog
from tpuherd_host.agent.effects.runtime import AgentRuntime
from tpuherd_host.agent.effects.task_pipes import TaskPipes
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.state import COMMAND, ENDED, Task


def get_pipes(runtime: AgentRuntime, work: Task, fresh: bool = True) -> TaskPipes:
    """Return the task's pipes and log, opened if necessary."""
    outlet = runtime.outlets.get(work.id)
    if outlet is None:
        folder = runtime.shelf.task_folder(work)
        log = SegmentedLog(folder, work.log_bytes, raw=work.terminal is not None, fresh=fresh)
        outlet = TaskPipes(
            folder,
            log,
            runtime.files.watch_file,
            runtime.files.unwatch_file,
            lambda: handle_ready(runtime, work.id),
        )
        runtime.outlets[work.id] = outlet
    return outlet


def handle_ready(runtime: AgentRuntime, id: str) -> None:
    """Read output or write input, whichever is possible."""
    outlet = runtime.outlets[id]
    if outlet.fed:
        took = outlet.write_input()
        if took:
            runtime.add_event(messages.InputConsumed(id, took))
    if not outlet.paused and outlet.outputs:
        last = outlet.read_outputs(runtime.current_time())
        runtime.grown.add(id)
        if last:
            runtime.queue_log_growth(id)
            runtime.add_event(messages.OutputsClosed(id))
            close_pipes(runtime, runtime.state.works[id])


def handle_started(runtime: AgentRuntime, outlet: TaskPipes, id: str) -> None:
    """The process has opened its pipes: send the input that was waiting."""
    try:
        outlet.handle_started()
        if outlet.input is not None:
            feed_input(runtime, messages.FeedInput(id, b""))
    except OSError:
        pass  # its pipes are gone: somebody emptied our folder. It runs, unheard


def read_remaining(runtime: AgentRuntime, id: str) -> None:
    """Read what the ended process left in its pipes."""
    outlet = runtime.outlets.get(id)
    if outlet is None:
        return
    outlet.process_ended = True
    if outlet.outputs and not outlet.paused:
        handle_ready(runtime, id)
        runtime.queue_log_growth(id)


def feed_input(runtime: AgentRuntime, deed: messages.FeedInput) -> None:
    outlet = runtime.outlets.get(deed.work)
    took = len(deed.piece or b"") if outlet is None else outlet.feed(deed.piece)
    if took:
        runtime.add_event(messages.InputConsumed(deed.work, took))


def resize_terminal(runtime: AgentRuntime, deed: messages.ResizeTerminal) -> None:
    outlet = runtime.outlets.get(deed.work)
    if outlet is not None:
        outlet.resize_terminal(deed.rows, deed.columns)


def append_note(runtime: AgentRuntime, deed: messages.AppendNote) -> None:
    try:
        log = get_pipes(runtime, deed.work).log
    except OSError:
        return  # the state says it too
    log.append(runtime.current_time(), deed.port, f"herd: {deed.sentence}\n".encode())
    runtime.queue_log_growth(deed.work.id)


def pause_output(runtime: AgentRuntime, deed: messages.PauseOutput) -> None:
    outlet = runtime.outlets.get(deed.work)
    if outlet is not None:
        outlet.set_paused(deed.on)


def read_log_tail(runtime: AgentRuntime, deed: messages.ReadLogTail) -> None:
    work = runtime.state.works[deed.work]
    try:
        lines = get_pipes(runtime, work).log.last_lines()
    except OSError:
        lines = []
    runtime.add_event(messages.LogTailRead(deed.work, tuple(lines)))


def save_task(runtime: AgentRuntime, deed: messages.SaveTask) -> None:
    """Record the task at once, except for a command's end."""
    if deed.work.is_live or deed.hard:
        save_and_close(runtime, deed.work, deed.hard)
    else:
        runtime.later.append(deed.work.id)


def finish_task(runtime: AgentRuntime, id: str) -> None:
    """Record a command's end after all replies are sent."""
    work = runtime.state.works.get(id)
    if work is None or work.is_live:
        return  # it is forgotten already
    if is_fully_recorded(runtime, work):
        close_pipes(runtime, work)
    else:
        save_and_close(runtime, work, hard=False)


def is_fully_recorded(runtime: AgentRuntime, work: Task) -> bool:
    """Whether the supervisor's file already tells all about the command's end."""
    seen = work.phase == ENDED and work.pid and work.drained and not work.adopted
    more = work.why or work.lost_bytes or work.id in runtime.shelf.unsaved
    return bool(work.kind == COMMAND and seen and not more)


def save_and_close(runtime: AgentRuntime, work: Task, hard: bool) -> None:
    try:
        runtime.shelf.task_folder(work)
    except OSError:
        return
    runtime.save_task(work, hard)
    close_pipes(runtime, work)


def close_pipes(runtime: AgentRuntime, work: Task) -> None:
    """Close the pipes of a task that is over."""
    outlet = runtime.outlets.get(work.id)
    if outlet is not None and not work.is_live:
        if outlet.outputs:
            outlet.log.close()  # something that it left behind still writes
        else:
            outlet.close()
            runtime.heard_out.append(work.id)


def forget_task(runtime: AgentRuntime, deed: messages.ForgetTask) -> None:
    outlet = runtime.outlets.pop(deed.work.id, None)
    if outlet is not None:
        outlet.close()
        runtime.heard_out.append(deed.work.id)
    runtime.shelf.remove(deed.work)


def save_epochs(runtime: AgentRuntime, deed: messages.SaveEpochs) -> None:
    try:
        runtime.shelf.save_epochs(deed.epochs)
    except OSError:
        pass  # a full disk: this agent knows them all the same


def save_stamp(runtime: AgentRuntime, deed: messages.SaveStamp) -> None:
    try:
        runtime.shelf.save_stamp(deed.stamp, deed.name)
    except OSError:
        pass  # a full disk: it will be done again
