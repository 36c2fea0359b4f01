"""Runs `start_fn` in a process of its own for each worker of a TPU."""

import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any, Literal

from tpuherd.compat.callbacks import StartFunction
from tpuherd.errors import HerdError

Worker = int | Literal["all"]
FORK = multiprocessing.get_context("fork")  #: the callbacks may be closures, which no pickle takes
END_S = 10.0  #: how long an interrupted start_fn may take to end

_in_start_fn = False


def is_in_start_fn() -> bool:
    """Whether this process runs a start_fn."""
    return _in_start_fn


class StartProcess:
    """One call of start_fn, under way or ended."""

    def __init__(self, start_fn: StartFunction, context: Any, worker: Worker, title: str) -> None:
        self.retryable = False  #: a command on the TPU failed, not the program
        self._failure = ""
        self._title = title
        self._report, theirs = FORK.Pipe(duplex=False)
        self._process = FORK.Process(
            target=run_start_fn, args=(start_fn, context, worker, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    def failure(self) -> str | None:
        """Return the sentence of its failure; None while it runs, or if it succeeded."""
        if self._failure:
            return self._failure
        if self._process.is_alive() or self._process.exitcode == 0:
            return None
        try:
            self.retryable, self._failure = self._report.recv()
        except EOFError:
            self._failure = f"its process ended with status {self._process.exitcode}"
        return self._failure

    def interrupt(self) -> None:
        """End it as Ctrl+C would, because its TPU is lost; kill it if it goes on."""
        if not self._process.is_alive() or self._process.pid is None:
            return
        os.kill(self._process.pid, signal.SIGINT)
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()

    def leave(self) -> None:
        """End it without stopping what it runs on the TPU."""
        self._process.kill()


def run_start_fn(start_fn: StartFunction, context: Any, worker: Worker, report: Connection) -> None:
    """Run it outside the terminal's process group, so that Ctrl+C reaches the program alone."""
    global _in_start_fn
    os.setpgid(0, 0)
    _in_start_fn = True
    try:
        start_fn(context, worker)
    except KeyboardInterrupt:
        sys.exit(130)
    except HerdError as error:
        report.send((True, error.sentence))
        sys.exit(1)
    except Exception as error:
        report.send((False, f"{type(error).__name__}: {error}"))
        raise  # its traceback is the user's
