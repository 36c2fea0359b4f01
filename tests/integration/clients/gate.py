"""Moments of a program at which a test may act: it reports one, and waits until it may continue.

STORY is a folder of the world's bucket, WATCHED the moments there, each as moment@host. A moment
comes once in a story, whatever the number of attempts.
"""

import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import quote

WAIT_S = 300.0  #: a failed test lets no host continue


class Gate:
    """What one host sends to the test, and receives from it."""

    def __init__(self, host: int, heard: Callable[[], bool] = bool) -> None:
        self.bucket, _, self.path = os.environ.get("STORY", "").partition("/")
        self.watched = os.environ.get("WATCHED", "").split()
        self.host = host
        self.heard = heard  #: whether a notice has come to all hosts

    def reached(self, moment: str) -> None:
        """Stay here for as long as the test wants, if it watches this moment."""
        name = f"{moment}@{self.host}"
        if name not in self.watched or self.read(f"{name}/here") is not None:
            return
        self.write(f"{name}/here")
        end = time.monotonic() + WAIT_S
        while (word := self.read(f"{name}/word")) is None:
            self.pause(end, name)
        if word == b"kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while word == b"heed" and not self.heard():
            self.pause(end, name)

    def pause(self, end: float, name: str) -> None:
        if time.monotonic() > end:
            sys.exit(f"nobody came to {name}")
        time.sleep(0.05)

    def read(self, name: str) -> bytes | None:
        """What stands there; None: nothing."""
        path = quote(f"{self.path}/{name}", safe="")
        return self.ask(f"/storage/v1/b/{self.bucket}/o/{path}?alt=media")

    def write(self, name: str, content: bytes = b"-") -> None:
        path = quote(f"{self.path}/{name}", safe="")
        self.ask(f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={path}", content)

    def ask(self, path: str, content: bytes | None = None) -> bytes | None:
        request = urllib.request.Request(os.environ["STORAGE_EMULATOR_HOST"] + path, data=content)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None


if __name__ == "__main__":  # in a job's setup, where nothing of ours is on the path
    Gate(int(socket.gethostname().rpartition("-")[2])).reached(sys.argv[1])
