"""What flows through a piece of work: output into its log, input, and what is kept of it."""

from typing import TYPE_CHECKING

from tpuherd_host.agent import words
from tpuherd_host.agent.logs import SegmentedLog
from tpuherd_host.agent.outlet import TaskPipes
from tpuherd_host.agent.state import COMMAND, ENDED, Task

if TYPE_CHECKING:
    from tpuherd_host.agent.daemon import Daemon


def get_pipes(daemon: "Daemon", work: Task, fresh: bool = True) -> TaskPipes:
    """Its pipes and log."""
    outlet = daemon.outlets.get(work.id)
    if outlet is None:
        folder = daemon.shelf.task_folder(work)
        log = SegmentedLog(folder, work.log_bytes, raw=work.terminal is not None, fresh=fresh)
        outlet = TaskPipes(
            folder,
            log,
            daemon.files.watch_file,
            daemon.files.unwatch_file,
            lambda: handle_ready(daemon, work.id),
        )
        daemon.outlets[work.id] = outlet
    return outlet


def handle_ready(daemon: "Daemon", id: str) -> None:
    """Its output has something, or its input takes something."""
    outlet = daemon.outlets[id]
    if outlet.fed:
        took = outlet.write_input()
        if took:
            daemon.add_event(words.InputConsumed(id, took))
    if not outlet.paused and outlet.outputs:
        last = outlet.read_outputs(daemon.current_time())
        daemon.grown.add(id)
        if last:
            daemon.queue_log_growth(id)
            daemon.add_event(words.OutputsClosed(id))
            close_pipes(daemon, daemon.state.works[id])


def handle_started(daemon: "Daemon", outlet: TaskPipes, id: str) -> None:
    """Its process has its ends, and may have what came before."""
    try:
        outlet.handle_started()
        if outlet.input is not None:
            feed_input(daemon, words.FeedInput(id, b""))
    except OSError:
        pass  # its pipes are gone: somebody emptied our folder. It runs, unheard


def read_remaining(daemon: "Daemon", id: str) -> None:
    """It has ended: what it wrote before is in its pipes now."""
    outlet = daemon.outlets.get(id)
    if outlet is None:
        return
    outlet.process_ended = True
    if outlet.outputs and not outlet.paused:
        handle_ready(daemon, id)
        daemon.queue_log_growth(id)


def feed_input(daemon: "Daemon", deed: words.FeedInput) -> None:
    """Bytes for its standard input."""
    outlet = daemon.outlets.get(deed.work)
    took = len(deed.piece or b"") if outlet is None else outlet.feed(deed.piece)
    if took:
        daemon.add_event(words.InputConsumed(deed.work, took))


def resize_terminal(daemon: "Daemon", deed: words.ResizeTerminal) -> None:
    """Its terminal."""
    outlet = daemon.outlets.get(deed.work)
    if outlet is not None:
        outlet.resize_terminal(deed.rows, deed.columns)


def append_note(daemon: "Daemon", deed: words.AppendNote) -> None:
    """A line of the agent's own."""
    try:
        log = get_pipes(daemon, deed.work).log
    except OSError:
        return  # the state says it too
    log.append(daemon.current_time(), deed.port, f"herd: {deed.sentence}\n".encode())
    daemon.queue_log_growth(deed.work.id)


def pause_output(daemon: "Daemon", deed: words.PauseOutput) -> None:
    """Read its output no more, or again."""
    outlet = daemon.outlets.get(deed.work)
    if outlet is not None:
        outlet.set_paused(deed.on)


def read_log_tail(daemon: "Daemon", deed: words.ReadLogTail) -> None:
    """Its last lines."""
    work = daemon.state.works[deed.work]
    try:
        lines = get_pipes(daemon, work).log.last_lines()
    except OSError:
        lines = []
    daemon.add_event(words.LogTailRead(deed.work, tuple(lines)))


def save_task(daemon: "Daemon", deed: words.SaveTask) -> None:
    """How it stands: at once, but for a command's end."""
    if deed.work.is_live or deed.hard:
        save_and_close(daemon, deed.work, deed.hard)
    else:
        daemon.later.append(deed.work.id)


def finish_task(daemon: "Daemon", id: str) -> None:
    """It is over, and all is said that is to be said."""
    work = daemon.state.works.get(id)
    if work is None or work.is_live:
        return  # it is forgotten already
    if is_fully_recorded(daemon, work):
        close_pipes(daemon, work)
    else:
        save_and_close(daemon, work, hard=False)


def is_fully_recorded(daemon: "Daemon", work: Task) -> bool:
    """Whether its nurse has written down all that is to be known of its end."""
    seen = work.phase == ENDED and work.pid and work.drained and not work.adopted
    more = work.why or work.lost_bytes or work.id in daemon.shelf.unsaved
    return bool(work.kind == COMMAND and seen and not more)


def save_and_close(daemon: "Daemon", work: Task, hard: bool) -> None:
    """Into its file; what is over has no pipes any more."""
    try:
        daemon.shelf.task_folder(work)
    except OSError:
        return
    daemon.save_task(work, hard)
    close_pipes(daemon, work)


def close_pipes(daemon: "Daemon", work: Task) -> None:
    """What is over has no pipes any more."""
    outlet = daemon.outlets.get(work.id)
    if outlet is not None and not work.is_live:
        if outlet.outputs:
            outlet.log.close()  # something that it left behind still writes
        else:
            outlet.close()
            daemon.heard_out.append(work.id)


def forget_task(daemon: "Daemon", deed: words.ForgetTask) -> None:
    """All of it."""
    outlet = daemon.outlets.pop(deed.work.id, None)
    if outlet is not None:
        outlet.close()
        daemon.heard_out.append(deed.work.id)
    daemon.shelf.remove(deed.work)


def save_epochs(daemon: "Daemon", deed: words.SaveEpochs) -> None:
    """The epochs."""
    try:
        daemon.shelf.save_epochs(deed.epochs)
    except OSError:
        pass  # a full disk: this agent knows them all the same


def save_stamp(daemon: "Daemon", deed: words.SaveStamp) -> None:
    """A step went well."""
    try:
        daemon.shelf.save_stamp(deed.stamp, deed.name)
    except OSError:
        pass  # a full disk: it will be done again
