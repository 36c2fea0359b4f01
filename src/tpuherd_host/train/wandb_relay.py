"""Forwards step reports as if all trials of a slot were one program that is not complete yet."""

import json
import select
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpuherd_host.train import process_env

COUNTED = ("step", "saved", "resumed", "total")
LAST = ("complete", "stopped")  #: fields about a trial, which must not end the slot
REPORT_MAX = 8192
PAUSE_S = 0.2


class ReportRelay:
    """Owns a socket between a trial and the agent, if there is an agent."""

    def __init__(self, target: str, before: int) -> None:
        self.target = target
        self.before = before  #: steps of earlier trials
        self.furthest = 0  #: of this one
        self.name = ""

    def __enter__(self) -> "ReportRelay":
        if self.target:
            self.folder = tempfile.TemporaryDirectory()
            self.name = str(Path(self.folder.name, "steps.sock"))
            self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.ear.bind(self.name)
            self.ear.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        if self.name:
            self.ear.close()
            self.folder.cleanup()

    def forward_reports(self) -> None:
        """Forward the reports that have arrived, or arrive within a moment."""
        if not self.name:
            process_env.wait(PAUSE_S)
            return
        select.select([self.ear], [], [], PAUSE_S)
        while True:
            try:
                report = self.shift_report(json.loads(self.ear.recv(REPORT_MAX)))
                self.ear.sendto(json.dumps(report).encode(), self.target)
            except BlockingIOError:
                return
            except (OSError, ValueError, AttributeError):
                continue  # the agent is being replaced, or this is not a report

    def shift_report(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return a trial's report as one of the slot's."""
        row = {name: value for name, value in report.items() if name not in LAST}
        for name in COUNTED:
            if isinstance(row.get(name), int):
                row[name] += self.before
        self.furthest = max(self.furthest, row.get("step", self.before) - self.before)
        return row
