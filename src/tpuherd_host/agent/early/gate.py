"""A Python program that has started early: it imports JAX, waits for its attempt, then runs.

The agent's supervisor starts it as `agent.pyz early SCRIPT …`, in the folder and with the variables
of the attempt, and holds the other end of a socket. At the start of the attempt it sends one
message, with the attempt's input and outputs; at an end of file nothing more is wanted. If anything
differs from what the program began with, it executes the attempt's command afresh, in this same
process.
"""

import array
import builtins
import ctypes
import json
import os
import runpy
import socket
import struct
import sys
import types
from importlib.machinery import SourceFileLoader
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

from tpuherd_host.agent.early.import_ahead import import_ahead
from tpuherd_host.agent.processes import MARK

GATE, WAITING_MARK = "HERD_GATE", "HERD_WAIT"  #: the socket's number; instead of HERD_WORK
LENGTH = struct.Struct(">I")
PATIENCE_S = 3600.0  #: for the attempt to start
OURS = "HERD_"  #: variables that may differ: no library reads them when it is loaded
ENV_START = 47  #: in /proc/self/stat after the name: where the variables are in memory


def run_early(words: Sequence[str]) -> NoReturn:
    """Import what takes long, wait, and become the program."""
    line = socket.socket(fileno=int(os.environ.pop(GATE)))
    line.set_inheritable(False)
    is_module = words[0] == "-m"
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(words[0]))
    place = folder_identity()
    fit = not getattr(sys.flags, "safe_path", False) and not sys.flags.inspect
    fit = fit and import_ahead(sys.path[0])
    line.settimeout(PATIENCE_S)
    order, files = receive_order(line)
    line.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    differing = [name for name in order["changed"] if not name.startswith(OURS)]
    if not fit or differing or order["other"] or place != folder_identity() or not mark_process():
        execute_afresh(order)
    for name, value in order["changed"].items():
        set_variable(name, value)
    set_variable(MARK, os.environ.pop(WAITING_MARK))
    reset_start_time()
    if is_module:
        run_module(words[1], words[2:])
    run_script(words[0], words[1:])


def folder_identity() -> Tuple[int, int, str]:
    """Return which folder this process is in: new code is another one at the same path."""
    try:
        facts, path = (
            os.stat(os.environ.get("PWD") or "."),
            os.path.realpath(os.environ.get("PWD") or "."),
        )
    except OSError:
        return 0, 0, ""
    return facts.st_dev, facts.st_ino, path


def receive_order(line: socket.socket) -> Tuple[Mapping[str, Any], List[int]]:
    """Wait for the message and the three files; end if there will be none."""
    files = array.array("i")
    text = b""
    try:
        while len(text) < LENGTH.size or len(text) < LENGTH.size + LENGTH.unpack_from(text)[0]:
            piece, more, _, _ = line.recvmsg(1 << 16, socket.CMSG_LEN(3 * files.itemsize))
            for level, kind, content in more:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    files.frombytes(content[: len(content) - len(content) % files.itemsize])
            if not piece:
                os._exit(0)
            text += piece
    except OSError:
        os._exit(0)
    return json.loads(text[LENGTH.size :].decode()), list(files)


def set_variable(name: str, value: Optional[str]) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def mark_process() -> bool:
    """Let /proc show this process as its attempt's: replace the mark in the memory that
    /proc/PID/environ shows."""
    try:
        with open("/proc/self/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        start, end = int(words[ENV_START]), int(words[ENV_START + 1])
        text = ctypes.string_at(start, end - start)
        at = text.index(WAITING_MARK.encode() + b"=")
        if at and text[at - 1] != 0:
            return False
        ctypes.memmove(start + at, MARK.encode(), len(MARK))
    except (OSError, ValueError, IndexError):
        return False
    return True


def execute_afresh(order: Mapping[str, Any]) -> NoReturn:
    """Execute the attempt's command, as if nothing had started early."""
    argv, env = order["argv"], order["env"]
    try:
        os.chdir(order["directory"])
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(126)


def reset_start_time() -> None:
    """The program's start counts from now: what it waited for is no part of it."""
    process_env = sys.modules.get("tpuherd_host.train.process_env")
    if process_env is not None:
        process_env.begin_now()


def main_names(**names: Any) -> Dict[str, Any]:
    """Empty the main module, which was the agent's, and give it these names."""
    found: Dict[str, Any] = sys.modules["__main__"].__dict__
    found.clear()
    found.update({"__name__": "__main__", "__doc__": None, "__package__": None, "__spec__": None,
                  "__loader__": None, "__builtins__": builtins, **names})  # fmt: skip
    return found


def run_script(path: str, arguments: Sequence[str]) -> NoReturn:
    """Run a script as Python does."""
    sys.argv = [path, *arguments]
    whole = os.path.abspath(path)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        sys.stderr.write(
            f"{sys.executable}: can't open file {whole!r}: [Errno {error.errno}] {error.strerror}\n"
        )
        raise SystemExit(2) from None
    names = main_names(
        __file__=whole, __cached__=None, __loader__=SourceFileLoader("__main__", whole)
    )
    try:
        exec(compile(content, whole, "exec", dont_inherit=True), names)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  # as Python does
        end_by_exception(error)
    raise SystemExit(0)


def run_module(name: str, arguments: Sequence[str]) -> NoReturn:
    """Run a module as `python3 -m` does."""
    sys.argv = ["-m", *arguments]
    main_names()
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  # as Python does
        end_by_exception(error)
    raise SystemExit(0)


def end_by_exception(error: BaseException) -> NoReturn:
    """Report an uncaught exception as Python does, without the lines of this file."""
    trace: Optional[types.TracebackType] = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    raise SystemExit(1) from None
