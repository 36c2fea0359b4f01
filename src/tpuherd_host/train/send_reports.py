"""Sends progress to the agent, in datagrams that never block."""

import json
import socket
from collections.abc import Mapping
from typing import Any

from tpuherd_host.train import process_env

VARIABLE = "HERD_STEPS"
TRY_AGAIN_S = 0.05


class ReportSender:
    """Owns the socket; sends nothing if there is no agent."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.place = environ.get(VARIABLE, "")
        self.attempt = environ.get("HERD_WORK") or environ.get("HERD_ATTEMPT", "")
        self.line: socket.socket | None = None
        if self.place:
            self.line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.line.setblocking(False)

    def send_report(self, content: Mapping[str, Any]) -> bool:
        """Send a report and return whether it was sent; the next report replaces a lost one."""
        if self.line is None:
            return False
        report = json.dumps({"attempt": self.attempt, **content}).encode()
        try:
            self.line.sendto(report, self.place)
        except OSError:  # the agent is busy, or being replaced by a newer one
            return False
        return True

    def close(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None

    def send_with_retries(self, content: Mapping[str, Any], within_s: float = 3.0) -> bool:
        """Try for a while to send a final report."""
        end = process_env.monotonic_time() + within_s
        while self.line is not None and not self.send_report(content):
            if process_env.monotonic_time() > end:
                return False
            process_env.wait(TRY_AGAIN_S)
        return self.line is not None
