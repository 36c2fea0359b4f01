"""Lets the agent see where a program stands: Python writes its frames when it gets a signal."""

import faulthandler
import os
import signal

NAME = "herd-frames-"  #: of the file in memory, and the signal's number: the agent looks for that


def register_stack_dump() -> None:
    """From now on, also while a thread is stuck in a library. Only Linux has what it takes."""
    if hasattr(os, "memfd_create"):
        number = signal.SIGRTMAX - 3  # of those that no library uses
        faulthandler.register(number, os.memfd_create(f"{NAME}{number}"), all_threads=True)
