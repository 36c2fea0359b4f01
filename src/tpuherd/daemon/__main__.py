"""Becomes the keeper of the folder that is named: `python -m tpuherd.daemon FOLDER IDLE_S`."""

import os
import sys
from importlib import import_module

READY = 3  #: the file that hears when the keeper listens
FILES_MAX = 4096


def main() -> None:
    """Load what takes long; let go of everything that came from who began it; then serve."""
    os.setsid()
    run = import_module("tpuherd.daemon.server").run
    os.closerange(READY + 1, FILES_MAX)
    os.umask(0o077)
    os.chdir(sys.argv[1])  # so that the socket's name is short
    run(READY, float(sys.argv[2]))
    sys.stderr.flush()
    os._exit(0)  # a thread may still wait for a reader


if __name__ == "__main__":
    main()
