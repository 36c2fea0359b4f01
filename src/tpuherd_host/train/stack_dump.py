"""Lets the agent see where a program is: Python writes its frames at a signal."""

import faulthandler
import os
import signal

NAME = (
    "herd-frames-"  #: of the file in memory, followed by the signal number; the agent looks for it
)


def register_stack_dump() -> None:
    """Register the handler, which works even while a thread is stuck in a library. Linux only."""
    if hasattr(os, "memfd_create"):
        number = signal.SIGRTMAX - 3  # a signal that no library uses
        faulthandler.register(number, os.memfd_create(f"{NAME}{number}"), all_threads=True)
