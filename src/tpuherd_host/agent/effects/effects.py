"""Carries out effects on connections and processes; task_io.py has those on files."""

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Type

from tpuherd_host.agent import processes, threaded_rpc
from tpuherd_host.agent.base_folder import words_only_in_home
from tpuherd_host.agent.effects import process_supervisor, sampling, task_io, task_store
from tpuherd_host.agent.effects.runtime import AgentRuntime
from tpuherd_host.agent.effects.step_reports import VARIABLE, socket_path
from tpuherd_host.agent.environments.environment_folders import activation_variables
from tpuherd_host.agent.frames import STDERR, pack_data
from tpuherd_host.agent.host import chip_users
from tpuherd_host.agent.state_machine import messages
from tpuherd_host.agent.state_machine.state import ATTEMPT, COMMAND, CURRENT, UNBORN, Ending, Task
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
ONLY_HOME = (
    "the command began in your home, because {0} is there and not in the code of the job; the next"
    " release looks in the code only: write ~/{0}"
)
NO_DIRECTORY = (125, "no such directory on the host: {}")


# ---- connections ---------------------------------------------------------------------------------


def send_frame(runtime: AgentRuntime, effect: messages.SendFrame) -> None:
    runtime.connections.queue_frame(effect.connection, effect.frame)


def send_log(runtime: AgentRuntime, effect: messages.SendLog) -> None:
    work = runtime.state.works.get(effect.work)
    if work is not None:
        piece = task_io.get_pipes(runtime, work).log.read(effect.offset, effect.many)
        runtime.connections.queue_frame(
            effect.connection, pack_data(effect.call, effect.port, piece)
        )


def close_connection(runtime: AgentRuntime, effect: messages.CloseConnection) -> None:
    runtime.connections.close_when_flushed(effect.connection)


def start_thread(runtime: AgentRuntime, effect: messages.StartThread) -> None:
    call = threaded_rpc.ThreadedCall(runtime.paths, effect.content, effect.connection, effect.call)
    runtime.threaded_calls[effect.connection, effect.call] = call
    threaded_rpc.start_thread(THREADED[effect.verb], call)


def pass_thread_data(runtime: AgentRuntime, effect: messages.PassThreadData) -> None:
    call = runtime.threaded_calls.get((effect.connection, effect.call))
    if call is not None:
        call.add_piece(effect.port, effect.piece)


def grant_thread_credit(runtime: AgentRuntime, effect: messages.GrantThreadCredit) -> None:
    call = runtime.threaded_calls.get((effect.connection, effect.call))
    if call is not None:
        call.add_credit(effect.many)


def drop_thread(runtime: AgentRuntime, effect: messages.DropThread) -> None:
    call = runtime.threaded_calls.pop((effect.connection, effect.call), None)
    if call is not None:
        call.cancel()


# ---- processes -----------------------------------------------------------------------------------


def spawn_process(runtime: AgentRuntime, effect: messages.SpawnProcess) -> None:
    """Make the task's folder and pipes, and have the supervisor start its process."""
    work = effect.work
    try:
        folder = runtime.store.task_folder(work)
        runtime.store.save(work, False)
        runtime.store.save_env(work)
        ends = task_io.get_pipes(runtime, work).prepare_files(work.stdin, work.terminal)
    except OSError as error:
        why = f"{os.strerror(error.errno) if error.errno else error}"
        sentence = f"the host could not begin it: {why}"
        runtime.add_event(messages.SpawnFailed(work.id, 125, sentence, UNBORN))
        return
    try:
        env = process_environment(runtime, work)
    except FileNotFoundError:
        why = "this host has no environment: set python or requirements in the job"
        runtime.add_event(messages.SpawnFailed(work.id, 125, why))
        return
    stage = work.stages[work.stage]
    directory = choose_directory(runtime, work)
    login = {**runtime.paths.environment, **env}
    shell = login.get("SHELL") if work.kind == COMMAND or "SHELL" in stage.env else find_bash(login)
    order = {
        "id": work.id,
        "argv": replace_words(stage.argv, shell or "/bin/sh"),
        "env": env,
        "directory": directory,
        "folder": folder,
        "let": runtime.outputs_done,
        **ends,
    }
    assert runtime.supervisor is not None
    runtime.supervisor.sendall(process_supervisor.pack_message(order))
    runtime.outputs_done.clear()


def choose_directory(runtime: AgentRuntime, work: Task) -> str:
    """Return the folder in which the process begins; a note in its log says if it is the home only
    because the home has the files that it names."""
    home, stage = runtime.paths.home, work.stages[work.stage]
    code = os.path.join(home, stage.code)
    if not stage.code or not os.path.isdir(code):
        return os.path.join(home, os.path.expanduser(stage.directory or ""))
    words = words_only_in_home(Path(home), stage.argv, stage.code)
    if not words:
        return code
    task_io.append_note(runtime, messages.AppendNote(work, STDERR, ONLY_HOME.format(words[0])))
    return home


def find_bash(env: Mapping[str, Optional[str]]) -> Optional[str]:
    """Return the shell of attempts and setups: a job does the same for every login of a project."""
    return shutil.which("bash", path=env.get("PATH") or os.defpath)


def replace_words(argv: Sequence[str], shell: str) -> List[str]:
    """Fill in what differs between hosts: the shell, the agent's file and its Python."""
    known = {"$SHELL": shell, "$AGENT": agent_file(), "$PYTHON": sys.executable}
    return [known.get(word, word) for word in argv]


#: How the hosts of a gang find each other; values of the image or the login are not used.
GANG = ("MEGASCALE_", "JAX_COORDINATOR_")


def process_environment(runtime: AgentRuntime, work: Task) -> Dict[str, Optional[str]]:
    """Return the task's variables and the marks by which we recognize its processes; the supervisor
    adds the login's, and removes those that are None."""
    stage = work.stages[work.stage]
    login = runtime.paths.environment
    marks = {processes.AGENT: runtime.paths.folder, processes.MARK: work.id}
    env: Dict[str, Optional[str]] = {**marks}
    if not stage.preload:
        env["LD_PRELOAD"] = None  # the image's tcmalloc breaks some tools
    if work.terminal is not None:
        env["TERM"] = str(work.terminal.get("term") or "xterm")
    if work.kind == "attempt":
        env.update((name, None) for name in login if name.startswith(GANG))
        env["HERD_ATTEMPT"] = str(work.number)
        env[VARIABLE] = socket_path(runtime.paths.folder)
    env.update(stage.env)
    path = env.get("PATH") or login.get("PATH") or os.defpath
    if stage.environment:
        env.update(activation_variables(runtime.paths.home, stage.environment, path))
    elif stage.code and (name := job_environment(runtime, os.path.basename(stage.code))):
        with suppress(FileNotFoundError):
            env.update(activation_variables(runtime.paths.home, name, path))
    archive = agent_file()
    if work.kind == "attempt" and archive.endswith(".pyz"):
        # tpuherd_host.train is in the agent's own file: scripts import it without an installation.
        asked = env.get("PYTHONPATH", login.get("PYTHONPATH"))
        env["PYTHONPATH"] = ":".join(filter(None, (archive, asked)))
    return env


def job_environment(runtime: AgentRuntime, job: str) -> str:
    """Return the environment of the job's last attempt here; before its first, what the host used
    last."""
    works = runtime.state.works.values()
    ran = [one for one in works if one.kind == ATTEMPT and one.slot.rpartition("-")[0] == job]
    last = max(ran, key=lambda one: one.asked, default=None)
    return CURRENT if last is None else last.stages[-1].environment


def agent_file() -> str:
    """Return the agent's own .pyz, or the folder of its sources."""
    return os.path.dirname(sys.modules["tpuherd_host"].__path__[0])


def handle_supervisor_message(runtime: AgentRuntime, message: Mapping[str, Any]) -> None:
    id = message["id"]
    work = runtime.state.works.get(id)
    pipes = runtime.pipes_by_task.get(id)
    if work is None or pipes is None:
        return
    if "failed" in message:
        where, number = message["failed"]
        stage, code = work.stages[work.stage], ""
        exit, sentence = FAILED.get(number, (126, "{}: " + os.strerror(number)))
        if where == "directory":
            exit, sentence = NO_DIRECTORY
        elif where == "fork":
            exit, code = 125, UNBORN
            sentence = f"the host could not begin it: {os.strerror(number)}"
        name = stage.directory if where == "directory" else stage.argv[0]
        hint = LINE if exit == 127 and " " in str(name) else ""
        runtime.add_event(messages.SpawnFailed(id, exit, sentence.format(name) + hint, code))
        pipes.close()
    elif "began" in message:
        task_io.handle_started(runtime, pipes, id)
        runtime.add_event(messages.ProcessStarted(id, message["began"], message["ticks"]))
        pipes.watch_outputs()
    else:
        task_io.read_remaining(runtime, id)
        runtime.add_event(process_ended_event(id, message))


def process_ended_event(id: str, message: Mapping[str, Any]) -> messages.ProcessEnded:
    return messages.ProcessEnded(id, task_store.parse_ending(message), message["ended"])


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
        pipes = task_io.get_pipes(runtime, work, fresh=False)
        if work.is_live and work.terminal is None:
            pipes.adopt_outputs()
    except OSError:
        return work
    log = pipes.log
    log.close()
    return work._replace(first=log.first_offset, length=log.length)


def check_adopted(runtime: AgentRuntime, effect: messages.CheckAdopted) -> None:
    """Find out whether an adopted process still runs, and how it ended."""
    work = effect.work
    message = runtime.store.recorded_ending(work)
    if message is None and processes.is_alive(work.pid, work.ticks):
        return
    since = runtime.unseen.setdefault(work.id, runtime.current_time())
    if message is not None:
        task_io.read_remaining(runtime, work.id)
        runtime.add_event(process_ended_event(work.id, message))
    elif runtime.current_time() > since + UNSEEN_S:
        task_io.read_remaining(runtime, work.id)
        runtime.add_event(messages.ProcessEnded(work.id, Ending(), runtime.current_time()))
    else:
        return
    runtime.unseen.pop(work.id, None)


def send_signal(runtime: AgentRuntime, effect: messages.SendSignal) -> None:
    work = effect.work
    if not effect.whole:
        if processes.is_alive(work.pid, work.ticks):
            signal_process(work.pid, effect.number)
        return
    for one in task_processes(runtime, work):
        signal_process(one.pid, effect.number)


def sweep_processes(runtime: AgentRuntime, effect: messages.SweepProcesses) -> None:
    """Signal and count the processes that are left."""
    found = task_processes(runtime, effect.work)
    for one in found:
        if effect.number:
            signal_process(one.pid, effect.number)
    if effect.number == signal.SIGKILL:
        found = task_processes(runtime, effect.work)
    runtime.add_event(messages.ProcessesCounted(effect.work.id, len(found)))


def task_processes(runtime: AgentRuntime, work: Task) -> List[processes.Process]:
    """Return the task's processes, never the agent's own."""
    return processes.task_processes(
        runtime.paths.folder, work.id, work.pid, (os.getpid(), runtime.supervisor_pid)
    )


def signal_process(pid: int, number: int) -> None:
    """Signal a process that may be gone or belong to another user."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def find_chip_users(runtime: AgentRuntime, effect: messages.FindChipUsers) -> None:
    """Find those whose files we may see, which includes all our processes."""
    rows = chip_users.describe_users(chip_users.find_users(runtime.paths.home))
    runtime.add_event(messages.ChipUsersFound(effect.work, tuple(rows)))


EFFECT_HANDLERS: Dict[Type[Any], Callable[[AgentRuntime, Any], None]] = {
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
    messages.FeedInput: task_io.feed_input,
    messages.ResizeTerminal: task_io.resize_terminal,
    messages.AppendNote: task_io.append_note,
    messages.PauseOutput: task_io.pause_output,
    messages.ReadLogTail: task_io.read_log_tail,
    messages.SaveTask: task_io.save_task,
    messages.ForgetTask: task_io.forget_task,
    messages.SaveEpochs: task_io.save_epochs,
    messages.SaveStamp: task_io.save_stamp,
    messages.ReadSample: sampling.read_sample,
}
