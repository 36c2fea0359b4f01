"""Start the agent: one for each user and host."""

import fcntl
import os
import select

from tpuherd_host.agent import processes, startup
from tpuherd_host.agent.attach import FOLDER, command_environment, connect_to_agent
from tpuherd_host.agent.effects import process_supervisor
from tpuherd_host.agent.event_loop import EventLoop

LOCK = "agent.lock"
LEAVING_TRIES = 500


def serve(version: str) -> int:
    """Run an agent until it ends; return at once if another one runs."""
    processes.rename_process("herd-agent")
    home = os.path.expanduser("~")
    folder = os.path.join(home, FOLDER)
    os.makedirs(folder, 0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    os.chdir(folder)
    os.umask(0o022)
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if acquire_agent_lock(lock):
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()} {version}\n".encode())
        login = {"HOME": home, **command_environment(os.environ)}
        supervisor = process_supervisor.fork_supervisor(login)
        startup.live(EventLoop(folder, home, version, login), supervisor, signal_ready)
        return 0
    signal_ready()
    return 0


def acquire_agent_lock(lock: int) -> bool:
    """Wait for an agent that is just leaving; return False if another agent runs."""
    for _ in range(LEAVING_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            line = connect_to_agent()
        if line is not None:
            line.close()
            return False
        select.select([], [], [], 0.02)
    return False


def signal_ready() -> None:
    """Tell `attach`, which waits on file 3."""
    try:
        os.write(3, b"r")
        os.close(3)
    except OSError:
        pass  # started by hand
