"""How each deed is done: what goes to connections and processes; the rest is in flows."""

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Type

from tpuherd_host.agent import apt, flows, holders, nurse, processes, shelf, threads, words
from tpuherd_host.agent.frames import pack_data
from tpuherd_host.agent.reports import VARIABLE, socket_path
from tpuherd_host.agent.state import COMMAND, Ending, Task
from tpuherd_host.agent.threaded_methods import THREADED

if TYPE_CHECKING:
    from tpuherd_host.agent.daemon import Daemon

UNSEEN_S = 2.0  #: how long its nurse may take to write down how a process ended
FAILED = {  # of an exec, by its errno: exit status, and what is told
    2: (127, "{}: command not found"),
    20: (127, "{}: command not found"),
    13: (126, "{}: not allowed to execute it"),
    8: (126, "{}: not a program"),
    7: (126, "{}: its arguments and environment are too long"),
}
LINE = "; a line for the shell goes after -c"
NO_DIRECTORY = (125, "no such directory on the host: {}")


# ---- connections ---------------------------------------------------------------------------------


def send_frame(daemon: "Daemon", deed: words.SendFrame) -> None:
    """A frame."""
    daemon.doors.queue_frame(deed.connection, deed.frame)


def send_log(daemon: "Daemon", deed: words.SendLog) -> None:
    """A piece of a log."""
    work = daemon.state.works.get(deed.work)
    if work is not None:
        piece = flows.get_pipes(daemon, work).log.read(deed.offset, deed.many)
        daemon.doors.queue_frame(deed.connection, pack_data(deed.call, deed.port, piece))


def close_connection(daemon: "Daemon", deed: words.CloseConnection) -> None:
    """Close it."""
    daemon.doors.close_when_flushed(deed.connection)


def start_thread(daemon: "Daemon", deed: words.StartThread) -> None:
    """Begin a threaded verb."""
    talk = threads.ThreadedCall(daemon.house, deed.content, deed.connection, deed.call)
    daemon.talks[deed.connection, deed.call] = talk
    threads.start_thread(THREADED[deed.verb], talk)


def pass_thread_data(daemon: "Daemon", deed: words.PassThreadData) -> None:
    """Bytes for it."""
    talk = daemon.talks.get((deed.connection, deed.call))
    if talk is not None:
        talk.add_piece(deed.port, deed.piece)


def grant_thread_credit(daemon: "Daemon", deed: words.GrantThreadCredit) -> None:
    """It may send more."""
    talk = daemon.talks.get((deed.connection, deed.call))
    if talk is not None:
        talk.add_credit(deed.many)


def drop_thread(daemon: "Daemon", deed: words.DropThread) -> None:
    """Nobody waits for it, or it is through."""
    talk = daemon.talks.pop((deed.connection, deed.call), None)
    if talk is not None:
        talk.cancel()


# ---- processes -----------------------------------------------------------------------------------


def spawn_process(daemon: "Daemon", deed: words.SpawnProcess) -> None:
    """Make its folder and pipes, and ask the nurse for its process."""
    work = deed.work
    stage = work.stages[work.stage]
    try:
        folder = daemon.shelf.task_folder(work)
        daemon.shelf.save(work, False)
        daemon.shelf.save_env(work)
        ends = flows.get_pipes(daemon, work).prepare_files(work.stdin, work.terminal)
    except OSError as error:
        why = f"{os.strerror(error.errno) if error.errno else error}"
        daemon.add_event(words.SpawnFailed(work.id, 125, f"the host could not begin it: {why}"))
        return
    env = process_environment(daemon, work)
    shell = env.get("SHELL", daemon.house.environment.get("SHELL")) or "/bin/sh"
    order = {
        "id": work.id,
        "argv": [shell if word == "$SHELL" else word for word in stage.argv],
        "env": env,
        "directory": os.path.join(daemon.house.home, os.path.expanduser(stage.directory or "")),
        "folder": folder,
        "let": daemon.heard_out,
        "hush": work.kind == COMMAND and not work.stdin,
        **ends,
    }
    assert daemon.nurse is not None
    daemon.nurse.sendall(nurse.pack_message(order))
    daemon.heard_out.clear()


#: Where the hosts of a gang find each other: what an image or a login has of it is another's.
GANG = ("MEGASCALE_", "JAX_COORDINATOR_")


def process_environment(daemon: "Daemon", work: Task) -> Dict[str, Optional[str]]:
    """What was asked for, and by what a process is known as ours; the rest is the login's, but for
    what is None."""
    stage = work.stages[work.stage]
    login = daemon.house.environment
    marks = {processes.AGENT: daemon.house.folder, processes.MARK: work.id}
    env: Dict[str, Optional[str]] = {**marks}
    if not stage.preload:
        env["LD_PRELOAD"] = None  # the image's tcmalloc breaks some tools
    if work.terminal is not None:
        env["TERM"] = str(work.terminal.get("term") or "xterm")
    if work.kind == "attempt":
        env.update((name, None) for name in login if name.startswith(GANG))
        env["HERD_ATTEMPT"] = str(work.number)
        env[VARIABLE] = socket_path(daemon.house.folder)
    env.update(stage.env)
    archive = os.path.dirname(sys.modules["tpuherd_host"].__path__[0])
    if work.kind == "attempt" and archive.endswith(".pyz"):
        # tpuherd_host.train lies in the agent's own file: scripts import it, nothing is installed.
        asked = env.get("PYTHONPATH", login.get("PYTHONPATH"))
        env["PYTHONPATH"] = ":".join(filter(None, (archive, asked)))
    return env


def handle_supervisor_message(daemon: "Daemon", told: Mapping[str, Any]) -> None:
    """What the nurse says of a process."""
    id = told["id"]
    work = daemon.state.works.get(id)
    outlet = daemon.outlets.get(id)
    if work is None or outlet is None:
        return
    if "failed" in told:
        where, number = told["failed"]
        stage = work.stages[work.stage]
        exit, sentence = FAILED.get(number, (126, "{}: " + os.strerror(number)))
        if where == "directory":
            exit, sentence = NO_DIRECTORY
        elif where == "fork":
            exit, sentence = 125, f"the host could not begin it: {os.strerror(number)}"
        name = stage.directory if where == "directory" else stage.argv[0]
        hint = LINE if exit == 127 and " " in str(name) else ""
        daemon.add_event(words.SpawnFailed(id, exit, sentence.format(name) + hint))
        outlet.close()
    elif "unwritten" in told:
        daemon.shelf.unsaved[id] = work
        daemon.later.append(id)
    else:
        if "began" in told:
            flows.handle_started(daemon, outlet, id)
            daemon.add_event(words.ProcessStarted(id, told["began"], told["ticks"]))
        if "ended" in told:
            flows.read_remaining(daemon, id)
            daemon.add_event(process_ended_event(id, told))
        outlet.watch_outputs()


def process_ended_event(id: str, told: Mapping[str, Any]) -> words.ProcessEnded:
    """How a process ended, as its nurse tells."""
    return words.ProcessEnded(id, shelf.parse_ending(told), told["ended"])


def handle_supervisor_death(daemon: "Daemon") -> None:
    """The nurse was killed: watch by ourselves what it began."""
    for work in list(daemon.state.works.values()):
        if work.has_leader and work.pid:
            adopted = work._replace(adopted=True, due=daemon.current_time())
            daemon.state = daemon.state._replace(works={**daemon.state.works, work.id: adopted})
        elif work.has_leader:
            daemon.add_event(words.SpawnFailed(work.id, 125, "the agent's nurse was killed"))


def adopt_task(daemon: "Daemon", work: Task) -> Task:
    """What an earlier agent left, with its log as long as it really is."""
    try:
        outlet = flows.get_pipes(daemon, work, fresh=False)
        if work.is_live and work.terminal is None:
            outlet.adopt_outputs()
    except OSError:
        return work
    log = outlet.log
    log.close()
    return work._replace(first=log.first_offset, length=log.length)


def check_adopted(daemon: "Daemon", deed: words.CheckAdopted) -> None:
    """Does an adopted process still run, and how did it end?"""
    work = deed.work
    told = daemon.shelf.recorded_ending(work)
    if told is None and processes.is_alive(work.pid, work.ticks):
        return
    since = daemon.unseen.setdefault(work.id, daemon.current_time())
    if told is not None:
        flows.read_remaining(daemon, work.id)
        daemon.add_event(process_ended_event(work.id, told))
    elif daemon.current_time() > since + UNSEEN_S:
        flows.read_remaining(daemon, work.id)
        daemon.add_event(words.ProcessEnded(work.id, Ending(), daemon.current_time()))
    else:
        return
    daemon.unseen.pop(work.id, None)


def send_signal(daemon: "Daemon", deed: words.SendSignal) -> None:
    """To its leader, or to all of it."""
    work = deed.work
    if not deed.whole:
        if processes.is_alive(work.pid, work.ticks):
            signal_process(work.pid, deed.number)
        return
    for one in task_processes(daemon, work):
        signal_process(one.pid, deed.number)


def sweep_processes(daemon: "Daemon", deed: words.SweepProcesses) -> None:
    """To all that is left of it, and count."""
    found = task_processes(daemon, deed.work)
    for one in found:
        if deed.number:
            signal_process(one.pid, deed.number)
    if deed.number == signal.SIGKILL:
        found = task_processes(daemon, deed.work)
    daemon.add_event(words.ProcessesCounted(deed.work.id, len(found)))


def task_processes(daemon: "Daemon", work: Task) -> List[processes.Process]:
    """Its processes, never ourselves."""
    return processes.task_processes(
        daemon.house.folder, work.id, work.pid, (os.getpid(), daemon.nurse_pid)
    )


def signal_process(pid: int, number: int) -> None:
    """A signal; it may be gone already, or another user's."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def find_chip_users(daemon: "Daemon", deed: words.FindChipUsers) -> None:
    """Who has them: of those we may look into, which are all of ours."""
    rows = holders.told(holders.raw(daemon.house.home))
    daemon.add_event(words.ChipUsersFound(deed.work, tuple(rows)))


def find_apt_holder(daemon: "Daemon", deed: words.FindAptHolder) -> None:
    """Who has its locks."""
    daemon.add_event(words.AptHolderFound(deed.work, apt.lock_holder()))


DEEDS: Dict[Type[Any], Callable[["Daemon", Any], None]] = {
    words.SendFrame: send_frame,
    words.SendLog: send_log,
    words.CloseConnection: close_connection,
    words.StartThread: start_thread,
    words.PassThreadData: pass_thread_data,
    words.GrantThreadCredit: grant_thread_credit,
    words.DropThread: drop_thread,
    words.SpawnProcess: spawn_process,
    words.CheckAdopted: check_adopted,
    words.SendSignal: send_signal,
    words.SweepProcesses: sweep_processes,
    words.FindChipUsers: find_chip_users,
    words.FindAptHolder: find_apt_holder,
    words.FeedInput: flows.feed_input,
    words.ResizeTerminal: flows.resize_terminal,
    words.AppendNote: flows.append_note,
    words.PauseOutput: flows.pause_output,
    words.ReadLogTail: flows.read_log_tail,
    words.SaveTask: flows.save_task,
    words.ForgetTask: flows.forget_task,
    words.SaveEpochs: flows.save_epochs,
    words.SaveStamp: flows.save_stamp,
}
