"""Runs the daemon of a folder: `python -m tpuherd.daemon FOLDER IDLE_S`."""

import gc
import os
import sys
from importlib import import_module

from tpuherd.background import PASSED, close_inherited_files

#: New objects until garbage is looked for: connections to many hosts are a lot to look through.
GARBAGE_OBJECTS = 20_000


def main() -> None:
    """Load the slow libraries, then serve and tell it to the process that started this one."""
    close_inherited_files()
    gc.disable()  # what is loaded stays: looking through it for garbage takes a while
    run = import_module("tpuherd.daemon.server").run
    gc.freeze()
    gc.enable()
    gc.set_threshold(GARBAGE_OBJECTS)
    os.umask(0o077)
    os.chdir(sys.argv[1])  # so that the socket's path is short
    run(PASSED, float(sys.argv[2]))
    sys.stderr.flush()
    os._exit(0)  # a thread may still be waiting for a reader


if __name__ == "__main__":
    main()
