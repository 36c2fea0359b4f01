"""Receives progress reports of training programs: datagrams to the socket in HERD_STEPS.

One datagram is one report, an object of at most 8 KiB: {"attempt": the value of HERD_WORK,
"step": 120, and other fields such as "loss": 2.31}. There is no answer; a sender does not wait
(MSG_DONTWAIT), and may lose a report, since the next one says more. Values that make no sense (a
number of 400 digits, a list, a very long text) are left out, and "refused" names them.
"""

import json
import os
import socket
from typing import Any, Dict, Optional

from tpuherd_host.agent.effects.runtime import AgentRuntime
from tpuherd_host.agent.effects.task_store import make_private_folder, ram_folder
from tpuherd_host.agent.state_machine.messages import StepReported

VARIABLE = "HERD_STEPS"
NAME = "steps.sock"
REPORT_MAX = 8192
NAME_MAX, TEXT_MAX, FIELDS_MAX, REFUSED_MAX = 200, 1000, 64, 5
NUMBER_MAX = 1 << 63
AT_ONCE = 64
PATH_MAX = 100  #: the kernel allows 107


def socket_path(folder: str) -> str:
    """Return the socket's path: in the agent's folder, unless that is too long."""
    path = os.path.join(folder, NAME)
    if len(path.encode()) <= PATH_MAX:
        return path
    return os.path.join(ram_folder(folder), NAME)


def parse_report(text: bytes) -> Optional[StepReported]:
    """Return the report; None if it is invalid."""
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    return StepReported(limit_fields(content)) if isinstance(content, dict) else None


def limit_fields(content: Dict[str, Any]) -> Dict[str, Any]:
    """Return the valid fields, and the names of the others in "refused"."""
    kept: Dict[str, Any] = {}
    refused = []
    for name, value in content.items():
        if is_allowed_value(value) and len(name) <= NAME_MAX and len(kept) < FIELDS_MAX:
            kept[name] = value
        else:
            refused.append(name[:NAME_MAX])
    kept.pop("refused", None)
    if refused:
        kept["refused"] = refused[:REFUSED_MAX]
    return kept


def is_allowed_value(value: Any) -> bool:
    if isinstance(value, int):
        return -NUMBER_MAX < value < NUMBER_MAX
    return (
        value is None
        or isinstance(value, float)
        or (isinstance(value, str) and len(value) <= TEXT_MAX)
    )


def listen_for_reports(runtime: AgentRuntime) -> None:
    path = socket_path(runtime.paths.folder)
    if not make_private_folder(os.path.dirname(path)):
        return
    if os.path.exists(path):
        os.unlink(path)
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    old = os.umask(0o177)
    try:
        ear.bind(path)
    except OSError:
        return  # a full disk: there are no reports then
    finally:
        os.umask(old)
    ear.setblocking(False)

    def hear() -> None:
        for _ in range(AT_ONCE):
            try:
                report = parse_report(ear.recv(REPORT_MAX))
            except BlockingIOError:
                return
            if report is not None:
                runtime.add_event(report)

    runtime.files.watch_file(ear.fileno(), False, hear)
