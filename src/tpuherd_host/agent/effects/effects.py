"""How effects on connections and processes are carried out; task_io.py has those on files."""

import os
import signal
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Type

from tpuherd_host.agent import processes, threaded_rpc
from tpuherd_host.agent.effects import process_supervisor, task_io, task_store
from tpuherd_host.agent.effects.runtime import AgentRuntime
from tpuherd_host.agent.effects.step_reports import VARIABLE, socket_path
from tpuherd_host.agent.frames import pack_data
from tpuherd_host.agent.host import apt_lock, chip_users
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.state import COMMAND, Ending, Task
from tpuherd_host.agent.threaded_methods import THREADED

UNSEEN_S = 2.0  #: how long the supervisor may take to record a process's end
FAILED = {  # of an exec, by its errno: exit status and message
    2: (127, "{}: command not found"),
    20: (127, "{}: command not found"),
    13: (126, "{}: not allowed to execute it"),
    8: (126, "{}: not a program"),
    7: (126, "{}: its arguments and environment are too long"),
}
LINE = "; a line for the shell goes after -c"
NO_DIRECTORY = (125, "no such directory on the host: {}")


# ---- connections ---------------------------------------------------------------------------------


def send_frame(runtime: AgentRuntime, deed: messages.SendFrame) -> None:
    runtime.doors.queue_frame(deed.connection, deed.frame)


def send_log(runtime: AgentRuntime, deed: messages.SendLog) -> None:
    work = runtime.state.works.get(deed.work)
    if work is not None:
        piece = task_io.get_pipes(runtime, work).log.read(deed.offset, deed.many)
        runtime.doors.queue_frame(deed.connection, pack_data(deed.call, deed.port, piece))


def close_connection(runtime: AgentRuntime, deed: messages.CloseConnection) -> None:
    runtime.doors.close_when_flushed(deed.connection)


def start_thread(runtime: AgentRuntime, deed: messages.StartThread) -> None:
    talk = threaded_rpc.ThreadedCall(runtime.house, deed.content, deed.connection, deed.call)
    runtime.talks[deed.connection, deed.call] = talk
    threaded_rpc.start_thread(THREADED[deed.verb], talk)


def pass_thread_data(runtime: AgentRuntime, deed: messages.PassThreadData) -> None:
    talk = runtime.talks.get((deed.connection, deed.call))
    if talk is not None:
        talk.add_piece(deed.port, deed.piece)


def grant_thread_credit(runtime: AgentRuntime, deed: messages.GrantThreadCredit) -> None:
    talk = runtime.talks.get((deed.connection, deed.call))
    if talk is not None:
        talk.add_credit(deed.many)


def drop_thread(runtime: AgentRuntime, deed: messages.DropThread) -> None:
    talk = runtime.talks.pop((deed.connection, deed.call), None)
    if talk is not None:
        talk.cancel()


# ---- processes -----------------------------------------------------------------------------------


def spawn_process(runtime: AgentRuntime, deed: messages.SpawnProcess) -> None:
    """Make the task's folder and pipes, and have the supervisor start its process."""
    work = deed.work
    stage = work.stages[work.stage]
    try:
        folder = runtime.shelf.task_folder(work)
        runtime.shelf.save(work, False)
        runtime.shelf.save_env(work)
        ends = task_io.get_pipes(runtime, work).prepare_files(work.stdin, work.terminal)
    except OSError as error:
        why = f"{os.strerror(error.errno) if error.errno else error}"
        runtime.add_event(messages.SpawnFailed(work.id, 125, f"the host could not begin it: {why}"))
        return
    env = process_environment(runtime, work)
    shell = env.get("SHELL", runtime.house.environment.get("SHELL")) or "/bin/sh"
    order = {
        "id": work.id,
        "argv": [shell if word == "$SHELL" else word for word in stage.argv],
        "env": env,
        "directory": os.path.join(runtime.house.home, os.path.expanduser(stage.directory or "")),
        "folder": folder,
        "let": runtime.heard_out,
        "hush": work.kind == COMMAND and not work.stdin,
        **ends,
    }
    assert runtime.nurse is not None
    runtime.nurse.sendall(process_supervisor.pack_message(order))
    runtime.heard_out.clear()


#: How the hosts of a gang find each other: values of the image or the login do not apply.
GANG = ("MEGASCALE_", "JAX_COORDINATOR_")


def process_environment(runtime: AgentRuntime, work: Task) -> Dict[str, Optional[str]]:
    """Return the task's variables and the marks by which we recognize its processes; the supervisor
    adds the login's, and removes those that are None."""
    stage = work.stages[work.stage]
    login = runtime.house.environment
    marks = {processes.AGENT: runtime.house.folder, processes.MARK: work.id}
    env: Dict[str, Optional[str]] = {**marks}
    if not stage.preload:
        env["LD_PRELOAD"] = None  # the image's tcmalloc breaks some tools
    if work.terminal is not None:
        env["TERM"] = str(work.terminal.get("term") or "xterm")
    if work.kind == "attempt":
        env.update((name, None) for name in login if name.startswith(GANG))
        env["HERD_ATTEMPT"] = str(work.number)
        env[VARIABLE] = socket_path(runtime.house.folder)
    env.update(stage.env)
    archive = os.path.dirname(sys.modules["tpuherd_host"].__path__[0])
    if work.kind == "attempt" and archive.endswith(".pyz"):
        # tpuherd_host.train is in the agent's own file: scripts import it without an installation.
        asked = env.get("PYTHONPATH", login.get("PYTHONPATH"))
        env["PYTHONPATH"] = ":".join(filter(None, (archive, asked)))
    return env


def handle_supervisor_message(runtime: AgentRuntime, told: Mapping[str, Any]) -> None:
    id = told["id"]
    work = runtime.state.works.get(id)
    outlet = runtime.outlets.get(id)
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
        runtime.add_event(messages.SpawnFailed(id, exit, sentence.format(name) + hint))
        outlet.close()
    elif "unwritten" in told:
        runtime.shelf.unsaved[id] = work
        runtime.later.append(id)
    else:
        if "began" in told:
            task_io.handle_started(runtime, outlet, id)
            runtime.add_event(messages.ProcessStarted(id, told["began"], told["ticks"]))
        if "ended" in told:
            task_io.read_remaining(runtime, id)
            runtime.add_event(process_ended_event(id, told))
        outlet.watch_outputs()


def process_ended_event(id: str, told: Mapping[str, Any]) -> messages.ProcessEnded:
    return messages.ProcessEnded(id, task_store.parse_ending(told), told["ended"])


def handle_supervisor_death(runtime: AgentRuntime) -> None:
    """The supervisor was killed: watch its processes ourselves."""
    for work in list(runtime.state.works.values()):
        if work.has_leader and work.pid:
            adopted = work._replace(adopted=True, due=runtime.current_time())
            runtime.state = runtime.state._replace(works={**runtime.state.works, work.id: adopted})
        elif work.has_leader:
            runtime.add_event(
                messages.SpawnFailed(work.id, 125, "the agent's process supervisor was killed")
            )


def adopt_task(runtime: AgentRuntime, work: Task) -> Task:
    """Reopen the log of an earlier agent's task, and return the task with the log's true length."""
    try:
        outlet = task_io.get_pipes(runtime, work, fresh=False)
        if work.is_live and work.terminal is None:
            outlet.adopt_outputs()
    except OSError:
        return work
    log = outlet.log
    log.close()
    return work._replace(first=log.first_offset, length=log.length)


def check_adopted(runtime: AgentRuntime, deed: messages.CheckAdopted) -> None:
    """Find out whether an adopted process still runs, and how it ended."""
    work = deed.work
    told = runtime.shelf.recorded_ending(work)
    if told is None and processes.is_alive(work.pid, work.ticks):
        return
    since = runtime.unseen.setdefault(work.id, runtime.current_time())
    if told is not None:
        task_io.read_remaining(runtime, work.id)
        runtime.add_event(process_ended_event(work.id, told))
    elif runtime.current_time() > since + UNSEEN_S:
        task_io.read_remaining(runtime, work.id)
        runtime.add_event(messages.ProcessEnded(work.id, Ending(), runtime.current_time()))
    else:
        return
    runtime.unseen.pop(work.id, None)


def send_signal(runtime: AgentRuntime, deed: messages.SendSignal) -> None:
    work = deed.work
    if not deed.whole:
        if processes.is_alive(work.pid, work.ticks):
            signal_process(work.pid, deed.number)
        return
    for one in task_processes(runtime, work):
        signal_process(one.pid, deed.number)


def sweep_processes(runtime: AgentRuntime, deed: messages.SweepProcesses) -> None:
    """Signal and count the processes that are left."""
    found = task_processes(runtime, deed.work)
    for one in found:
        if deed.number:
            signal_process(one.pid, deed.number)
    if deed.number == signal.SIGKILL:
        found = task_processes(runtime, deed.work)
    runtime.add_event(messages.ProcessesCounted(deed.work.id, len(found)))


def task_processes(runtime: AgentRuntime, work: Task) -> List[processes.Process]:
    """Return the task's processes, never the agent's own."""
    return processes.task_processes(
        runtime.house.folder, work.id, work.pid, (os.getpid(), runtime.nurse_pid)
    )


def signal_process(pid: int, number: int) -> None:
    """Signal a process that may be gone or belong to another user."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def find_chip_users(runtime: AgentRuntime, deed: messages.FindChipUsers) -> None:
    """Find those whose files we may see, which includes all our processes."""
    rows = chip_users.describe_users(chip_users.find_users(runtime.house.home))
    runtime.add_event(messages.ChipUsersFound(deed.work, tuple(rows)))


def find_apt_holder(runtime: AgentRuntime, deed: messages.FindAptHolder) -> None:
    runtime.add_event(messages.AptHolderFound(deed.work, apt_lock.lock_holder()))


DEEDS: Dict[Type[Any], Callable[[AgentRuntime, Any], None]] = {
    messages.SendFrame: send_frame,
    messages.SendLog: send_log,
    messages.CloseConnection: close_connection,
    messages.StartThread: start_thread,
    messages.PassThreadData: pass_thread_data,
    messages.GrantThreadCredit: grant_thread_credit,
    messages.DropThread: drop_thread,
    messages.SpawnProcess: spawn_process,
    messages.CheckAdopted: check_adopted,
    messages.SendSignal: send_signal,
    messages.SweepProcesses: sweep_processes,
    messages.FindChipUsers: find_chip_users,
    messages.FindAptHolder: find_apt_holder,
    messages.FeedInput: task_io.feed_input,
    messages.ResizeTerminal: task_io.resize_terminal,
    messages.AppendNote: task_io.append_note,
    messages.PauseOutput: task_io.pause_output,
    messages.ReadLogTail: task_io.read_log_tail,
    messages.SaveTask: task_io.save_task,
    messages.ForgetTask: task_io.forget_task,
    messages.SaveEpochs: task_io.save_epochs,
    messages.SaveStamp: task_io.save_stamp,
}
