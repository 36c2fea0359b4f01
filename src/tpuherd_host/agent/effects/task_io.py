"""What flows through a piece of work: output into its log, input, and what is kept of it."""

from tpuherd_host.agent.effects.log_segments import SegmentedLog
from tpuherd_host.agent.effects.runtime import AgentRuntime
from tpuherd_host.agent.effects.task_pipes import TaskPipes
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.state import COMMAND, ENDED, Task


def get_pipes(runtime: AgentRuntime, work: Task, fresh: bool = True) -> TaskPipes:
    """Its pipes and log."""
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
    """Its output has something, or its input takes something."""
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
    """Its process has its ends, and may have what came before."""
    try:
        outlet.handle_started()
        if outlet.input is not None:
            feed_input(runtime, messages.FeedInput(id, b""))
    except OSError:
        pass  # its pipes are gone: somebody emptied our folder. It runs, unheard


def read_remaining(runtime: AgentRuntime, id: str) -> None:
    """It has ended: what it wrote before is in its pipes now."""
    outlet = runtime.outlets.get(id)
    if outlet is None:
        return
    outlet.process_ended = True
    if outlet.outputs and not outlet.paused:
        handle_ready(runtime, id)
        runtime.queue_log_growth(id)


def feed_input(runtime: AgentRuntime, deed: messages.FeedInput) -> None:
    """Bytes for its standard input."""
    outlet = runtime.outlets.get(deed.work)
    took = len(deed.piece or b"") if outlet is None else outlet.feed(deed.piece)
    if took:
        runtime.add_event(messages.InputConsumed(deed.work, took))


def resize_terminal(runtime: AgentRuntime, deed: messages.ResizeTerminal) -> None:
    """Its terminal."""
    outlet = runtime.outlets.get(deed.work)
    if outlet is not None:
        outlet.resize_terminal(deed.rows, deed.columns)


def append_note(runtime: AgentRuntime, deed: messages.AppendNote) -> None:
    """A line of the agent's own."""
    try:
        log = get_pipes(runtime, deed.work).log
    except OSError:
        return  # the state says it too
    log.append(runtime.current_time(), deed.port, f"herd: {deed.sentence}\n".encode())
    runtime.queue_log_growth(deed.work.id)


def pause_output(runtime: AgentRuntime, deed: messages.PauseOutput) -> None:
    """Read its output no more, or again."""
    outlet = runtime.outlets.get(deed.work)
    if outlet is not None:
        outlet.set_paused(deed.on)


def read_log_tail(runtime: AgentRuntime, deed: messages.ReadLogTail) -> None:
    """Its last lines."""
    work = runtime.state.works[deed.work]
    try:
        lines = get_pipes(runtime, work).log.last_lines()
    except OSError:
        lines = []
    runtime.add_event(messages.LogTailRead(deed.work, tuple(lines)))


def save_task(runtime: AgentRuntime, deed: messages.SaveTask) -> None:
    """How it stands: at once, but for a command's end."""
    if deed.work.is_live or deed.hard:
        save_and_close(runtime, deed.work, deed.hard)
    else:
        runtime.later.append(deed.work.id)


def finish_task(runtime: AgentRuntime, id: str) -> None:
    """It is over, and all is said that is to be said."""
    work = runtime.state.works.get(id)
    if work is None or work.is_live:
        return  # it is forgotten already
    if is_fully_recorded(runtime, work):
        close_pipes(runtime, work)
    else:
        save_and_close(runtime, work, hard=False)


def is_fully_recorded(runtime: AgentRuntime, work: Task) -> bool:
    """Whether its nurse has written down all that is to be known of its end."""
    seen = work.phase == ENDED and work.pid and work.drained and not work.adopted
    more = work.why or work.lost_bytes or work.id in runtime.shelf.unsaved
    return bool(work.kind == COMMAND and seen and not more)


def save_and_close(runtime: AgentRuntime, work: Task, hard: bool) -> None:
    """Into its file; what is over has no pipes any more."""
    try:
        runtime.shelf.task_folder(work)
    except OSError:
        return
    runtime.save_task(work, hard)
    close_pipes(runtime, work)


def close_pipes(runtime: AgentRuntime, work: Task) -> None:
    """What is over has no pipes any more."""
    outlet = runtime.outlets.get(work.id)
    if outlet is not None and not work.is_live:
        if outlet.outputs:
            outlet.log.close()  # something that it left behind still writes
        else:
            outlet.close()
            runtime.heard_out.append(work.id)


def forget_task(runtime: AgentRuntime, deed: messages.ForgetTask) -> None:
    """All of it."""
    outlet = runtime.outlets.pop(deed.work.id, None)
    if outlet is not None:
        outlet.close()
        runtime.heard_out.append(deed.work.id)
    runtime.shelf.remove(deed.work)


def save_epochs(runtime: AgentRuntime, deed: messages.SaveEpochs) -> None:
    """The epochs."""
    try:
        runtime.shelf.save_epochs(deed.epochs)
    except OSError:
        pass  # a full disk: this agent knows them all the same


def save_stamp(runtime: AgentRuntime, deed: messages.SaveStamp) -> None:
    """A step went well."""
    try:
        runtime.shelf.save_stamp(deed.stamp, deed.name)
    except OSError:
        pass  # a full disk: it will be done again
