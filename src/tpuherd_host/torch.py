"""Runs a script with the variables by which PyTorch's processes find each other.

`python3 -m tpuherd_host.torch train.py ARGUMENTS…`, or `-m package ARGUMENTS…`, on every host. This
process becomes the script's: signals, exit status, sys.argv and folder are its own. Programs that
start processes themselves, such as torchrun, need none of it. The variables are not set for all
commands, because others read them too: webdataset refuses to start where WORLD_SIZE is above 1, and
JAX searches for its hosts in another way where TPU_WORKER_HOSTNAMES is set.
"""

import os
import sys
from typing import Dict, List, Mapping, NoReturn, Sequence

NAME = "tpuherd_host.torch"
USAGE = (
    f"herd: error: python3 -m {NAME} runs a script: add its file, or -m and a module, and its"
    " arguments\n"
)
MISUSED = 2


def main(arguments: Sequence[str]) -> NoReturn:
    if not arguments or list(arguments) == ["-m"]:
        sys.stderr.write(USAGE)
        sys.exit(MISUSED)
    flags = interpreter_flags(getattr(sys, "orig_argv", ()), len(arguments))
    environ = {**torch_variables(os.environ), **os.environ}
    os.execve(sys.executable, [sys.executable, *flags, *arguments], environ)


def interpreter_flags(words: Sequence[str], arguments: int) -> List[str]:
    """Return python3's own options, such as -u, from the words that started this program."""
    flags = list(words[1 : len(words) - arguments])
    return flags[:-2] if flags[-2:] == ["-m", NAME] else []


def torch_variables(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables of one process a host; those that are set already win."""
    rank, size = environ.get("HERD_WORKER", "0"), environ.get("HERD_WORKERS", "1")
    found = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "NODE_RANK": rank,
        "NNODES": size,
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }
    slice_hosts = environ.get("HERD_ADDRESSES", "")
    if slice_hosts and environ.get("HERD_TOPOLOGY"):  # torch_tpu asks no metadata server
        found["TPU_WORKER_HOSTNAMES"] = slice_hosts
        found["JOB_COMPLETION_INDEX"] = str(int(rank) % len(slice_hosts.split(",")))
        found["TORCH_TPU_TOPOLOGY"] = environ["HERD_TOPOLOGY"]
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
