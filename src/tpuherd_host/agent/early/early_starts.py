"""The supervisor's programs that wait for their attempt: one for each slot."""

import json
import os
import socket
import struct
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence

from tpuherd_host.agent.early.gate import GATE, LENGTH, WAITING_MARK
from tpuherd_host.agent.processes import MARK

SEND_S = 5.0  #: for the program to take its message, which fits into the socket's buffer


class EarlyStart(NamedTuple):
    """A program that waits."""

    order: Mapping[str, Any]
    pid: int
    ticks: int
    line: socket.socket


class EarlyStarts:
    """Holds the lines to the programs: each ends when its line is closed."""

    def __init__(
        self, spawn: Callable[[Mapping[str, Any]], int], ticks: Callable[[int], int]
    ) -> None:
        self.spawn = spawn
        self.ticks = ticks  #: when a process started; 0 if it is gone
        self.waiting: Dict[str, EarlyStart] = {}

    def begin(self, order: Mapping[str, Any]) -> None:
        """Start a program that waits, in place of an earlier one of its slot. If it can't start,
        the attempt will say why."""
        self.end(order["slot"])
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        its.set_inheritable(True)
        env = {name: value for name, value in order["env"].items() if name != MARK}
        env.update({GATE: str(its.fileno()), WAITING_MARK: order["env"][MARK]})
        silent = {"in": None, "out": os.devnull, "err": os.devnull}
        try:
            pid = self.spawn({**order, **silent, "env": env, "argv": order["early_argv"]})
            self.waiting[order["slot"]] = EarlyStart(order, pid, self.ticks(pid), ours)
        except Exception:  # noqa: BLE001  # the attempt itself reports what is wrong
            ours.close()
        finally:
            its.close()

    def hand_over(self, order: Mapping[str, Any], files: Sequence[int]) -> int:
        """Let the slot's waiting program be this attempt; return its process id, 0 if there is
        none."""
        found = self.waiting.pop(order.get("slot", ""), None)
        if found is None:
            return 0
        with found.line:
            same = found.order["env"][MARK] == order["env"][MARK]
            if not same or not self.ticks(found.pid) or self.ticks(found.pid) != found.ticks:
                return 0
            found.line.settimeout(SEND_S)
            try:
                send_order(found.line, describe_start(found.order, order), files)
            except OSError:
                return 0
        return found.pid

    def end(self, slot: str) -> None:
        found = self.waiting.pop(slot, None)
        if found is not None:
            found.line.close()

    def end_all(self) -> None:
        for slot in list(self.waiting):
            self.end(slot)


def describe_start(before: Mapping[str, Any], order: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the attempt's command, and how it differs from what the program began with."""
    old, new = before["env"], order["env"]
    names = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    keys = ("argv", "directory")
    return {
        "changed": {name: new.get(name) for name in sorted(names)},
        "other": any(before[key] != order[key] for key in keys),
        "env": new,
        **{key: order[key] for key in keys},
    }


def send_order(line: socket.socket, content: Mapping[str, Any], files: Sequence[int]) -> None:
    """Send a message and three files; all of it or an OSError.

    Nothing is sent after the last byte: the program may have closed the line by then, and an error
    would mean a second program for the same attempt.
    """
    text = json.dumps(content).encode()
    whole = LENGTH.pack(len(text)) + text
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(files)}i", *files))]
    rest = whole[line.sendmsg([whole], rights) :]
    while rest:
        rest = rest[line.send(rest) :]


def close_all(files: List[int]) -> None:
    for file in files:
        with suppress(OSError):
            os.close(file)
