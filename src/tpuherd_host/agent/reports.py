"""Hears from training programs how far they are: datagrams to the socket that HERD_STEPS names.

One datagram is one report, an object of at most 8 KiB: {"attempt": the value of HERD_WORK,
"step": 120, and whatever else is to be told, such as "loss": 2.31}. Nothing is answered; whoever
sends does not wait (MSG_DONTWAIT), and a report that does not fit is no loss: the next one tells
more.
"""

import os

from tpuherd_host.agent.shelf import own, ram_folder
from tpuherd_host.agent.thin import TYPE_CHECKING, Optional, json, socket
from tpuherd_host.agent.words import Reported

if TYPE_CHECKING:
    from tpuherd_host.agent.daemon import Daemon

VARIABLE = "HERD_STEPS"
NAME = "steps.sock"
REPORT_MAX = 8192
AT_ONCE = 64
PATH_MAX = 100  #: the kernel takes 107


def place(folder: str) -> str:
    """Where the socket is: in the agent's folder, unless that name is too long."""
    path = os.path.join(folder, NAME)
    if len(path.encode()) <= PATH_MAX:
        return path
    return os.path.join(ram_folder(folder), NAME)


def parsed(text: bytes) -> Optional[Reported]:
    """A report; None for nonsense."""
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    return Reported(content) if isinstance(content, dict) else None


def listen(daemon: "Daemon") -> None:
    """Have the agent hear them."""
    path = place(daemon.house.folder)
    if not own(os.path.dirname(path)):
        return
    if os.path.exists(path):
        os.unlink(path)
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    old = os.umask(0o177)
    try:
        ear.bind(path)
    except OSError:
        return  # a full disk: nobody reports then
    finally:
        os.umask(old)
    ear.setblocking(False)

    def hear() -> None:
        for _ in range(AT_ONCE):
            try:
                report = parsed(ear.recv(REPORT_MAX))
            except BlockingIOError:
                return
            if report is not None:
                daemon.happen(report)

    daemon.files.watch(ear.fileno(), False, hear)
