"""Runs the daemon of a folder: `python -m tpuherd.daemon FOLDER IDLE_S`."""

import os
import sys
from importlib import import_module

READY = 3  #: the file that is told when the daemon listens
FILES_MAX = 4096


def main() -> None:
    """Load the slow libraries, detach from the process that started this one, then serve."""
    os.setsid()
    run = import_module("tpuherd.daemon.server").run
    os.closerange(READY + 1, FILES_MAX)
    os.umask(0o077)
    os.chdir(sys.argv[1])  # so that the socket's path is short
    run(READY, float(sys.argv[2]))
    sys.stderr.flush()
    os._exit(0)  # a thread may still be waiting for a reader


if __name__ == "__main__":
    main()
