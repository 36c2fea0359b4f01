"""The first call of a training script: find the other processes and check that hosts match."""

import json
import os
import platform
import re
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from inspect import signature
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from tpuherd_host.train import compile_cache, process_env, profiler_server, stack_dump
from tpuherd_host.train.lazy_import import LazyModule, MissingPackage, is_installed, jax, multihost
from tpuherd_host.train.process_group import PeerSilent, ProcessGroup, describe_odd_host
from tpuherd_host.train.sample_split import InvalidSetup
from tpuherd_host.train.startup_times import STARTUP

distributed = LazyModule("jax._src.distributed", "jax")
FAILED = 1  #: like any failed script: another attempt may help
INTERRUPTED = 75  #: stopped before its end, after a save: start it again
PEER_LOST = 76  #: another process is gone; this one is not at fault
UNFIT = 78  #: it can't run like this; the sentence is in the log
HEARTBEAT_S = 30
SHUTDOWN_S = 30
TOGETHER_S = 10.0  #: within this time all processes find a wrong setup, or only some do
INITIALIZED = "HERD_INITIALIZED"  #: the index of the process that is connected to the others
OLDEST = (0, 4, 34)  #: of JAX: older versions are untested
COMPARED = ("jax", "jaxlib", "libtpu", "numpy", "orbax-checkpoint")
LACKS_JAX = "this needs jax: pip install jax"
TRAINS_AGAIN = (
    "a child of the training process, such as a data loader worker, imported this script again "
    'and would train too: put the training code below `if __name__ == "__main__":`'
)
#: In the error of a collective whose other end has died.
CONSEQUENCES = (
    "gloo", "coordination", "deadline_exceeded", "connection closed by peer",
    "connection reset by peer", "barrier", "socket closed",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """All processes of this program, and which of them this one is."""

    index: int
    count: int
    circle: ProcessGroup
    notices: bool  #: JAX handles SIGTERM and notifies all processes
    is_child: bool = False  #: a process of a data loader: it belongs to the one that trains

    @property
    def is_main(self) -> bool:
        return self.index == 0 and not self.is_child


class StopNotice:
    """Remembers SIGTERM in a program of one process."""

    def __init__(self) -> None:
        self.heard = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.heard = True


NOTICE = StopNotice()
PODS: list[Pod] = []  #: this one, once it has been found


def init(*, use_jax: bool = True) -> Pod:
    """Connect to the other processes, wherever this runs; call it before anything else of JAX.

    A program of another framework passes `use_jax=False` if JAX may be installed as well: then JAX
    neither takes the port of `HERD_COORDINATOR` nor handles SIGTERM.

    A second call returns the same pod, and so does a call in a child of this process: a data loader
    that starts its workers by `spawn` or `forkserver` makes them import the script again. If hosts
    differ, the program ends here with a sentence that names the odd one.
    """
    if not PODS:
        sys.excepthook = handle_exception
        stack_dump.register_stack_dump()
        environ = process_env.process_environment()
        if is_child(environ):
            PODS.append(read_parents_pod(environ))
            return PODS[0]
        STARTUP.begin_meeting()
        PODS.append(find_pod(environ, use_jax=use_jax))
        STARTUP.end_meeting()
        process_env.set_default_variable("HERD_PROCESS", str(PODS[0].index))
        process_env.set_default_variable("HERD_PROCESSES", str(PODS[0].count))
        process_env.replace_variable(INITIALIZED, str(os.getpid()))
        if use_jax and is_installed("jax"):
            profiler_server.start_profiler(environ)
    return PODS[0]


def is_child(environ: Mapping[str, str]) -> bool:
    """Whether a training process that is already connected started this process."""
    if process_env.is_loaded_again():
        return True
    if environ.get(INITIALIZED, str(os.getpid())) == str(os.getpid()):
        return False
    return process_env.is_worker_process() or process_env.read_process_number(environ)[1] > 1


def read_parents_pod(environ: Mapping[str, str]) -> Pod:
    """Read the pod from the variables, without connecting or touching a chip."""
    process_env.replace_variable("JAX_PLATFORMS", "cpu")
    if "jax" in sys.modules:
        jax.config.update("jax_platforms", "cpu")
    index, count = process_env.read_process_number(environ)
    return Pod(
        index=index, count=count, circle=ProcessGroup(index, count), notices=False, is_child=True
    )


def find_pod(environ: Mapping[str, str], *, use_jax: bool) -> Pod:
    """Find the pod by the variables or by JAX's own detection."""
    if not use_jax or not is_installed("jax"):
        signal.signal(signal.SIGTERM, NOTICE.on_signal)
        index, count = process_env.read_process_number(environ)
        return Pod(index=index, count=count, circle=ProcessGroup(index, count), notices=False)
    check_jax_version(metadata.version("jax"))
    enable_compile_cache(environ)
    STARTUP.count_compiling()
    arguments = initialize_arguments(environ)
    if arguments == {} or not initialize_jax(arguments):
        signal.signal(signal.SIGTERM, NOTICE.on_signal)
        return Pod(index=0, count=1, circle=ProcessGroup(), notices=False)
    state = distributed.global_state
    circle = ProcessGroup(state.process_id, state.num_processes, state.client)
    pod = Pod(index=circle.index, count=circle.count, circle=circle, notices=True)
    PODS.append(pod)  # for refuse()
    compare_hosts(circle, host_facts())
    compare_hosts(
        circle,
        {"host": socket.gethostname(), "the number of chips in use": jax.local_device_count()},
    )
    PODS.clear()
    return pod


def enable_compile_cache(environ: Mapping[str, str]) -> None:
    """Have JAX cache what it compiles, small programs too: a restart takes seconds less.

    JAX may be imported already, so variables would come too late.
    """
    usual = {
        "jax_compilation_cache_dir": str(Path(compile_cache.FOLDER).expanduser()),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        # These are for GPUs, and make a program's name depend on the folder's.
        "jax_persistent_cache_enable_xla_caches": "none",
    }
    for name, value in usual.items():
        if name.upper() not in environ and hasattr(jax.config, name):
            jax.config.update(name, value)


def initialize_arguments(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return arguments for jax.distributed.initialize; {} if alone, None to let JAX detect."""
    count = environ.get("HERD_WORKERS", "")
    if count == "1":
        return {}
    if not environ.get("HERD_COORDINATOR") or not count.isdecimal():
        return None
    return {
        "coordinator_address": environ["HERD_COORDINATOR"],
        "num_processes": int(count),
        "process_id": int(environ.get("HERD_WORKER", "0")),
    }


def initialize_jax(arguments: Mapping[str, Any] | None) -> bool:
    """Connect, and return whether there is a pod; JAX's service handles SIGTERM from now on."""
    patience = {
        "heartbeat_timeout_seconds": HEARTBEAT_S,
        "shutdown_timeout_seconds": SHUTDOWN_S,
    }
    initialize = jax.distributed.initialize
    known = signature(initialize).parameters
    words = {
        **{name: value for name, value in patience.items() if name in known},
        **(arguments or {}),
    }
    try:
        initialize(**words)
    except ValueError:
        if arguments:
            raise
        return False  # neither a TPU pod nor a cluster that JAX detects
    except RuntimeError as error:
        if "before any JAX" not in str(error):
            raise
        raise InvalidSetup(
            "call train.init() before any other use of JAX, including jax.devices()"
        ) from None
    return True


def host_facts() -> dict[str, Any]:
    """Return what must be the same on every host, without initializing the TPU."""
    facts: dict[str, Any] = {"host": socket.gethostname(), "python": platform.python_version()}
    for name in COMPARED:
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            facts[name] = "not installed"
    files = [*Path("/dev").glob("accel[0-9]*"), *Path("/dev").glob("vfio/[0-9]*")]
    facts["the number of chips"] = len(files)
    return facts


def check_jax_version(version: str) -> None:
    """End here if JAX is too old, before it connects to others."""
    numbers = tuple(int(word) for word in re.findall(r"\d+", version)[:3])
    if numbers and numbers < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        refuse(f"jax is {version}, too old for this: pip install -U 'jax>={wanted}'")


def compare_hosts(circle: ProcessGroup, mine: Mapping[str, Any]) -> None:
    odd = describe_odd_host([json.loads(word) for word in circle.gather_words(json.dumps(mine))])
    if odd:
        refuse(f"the hosts are not alike: {odd}")


def refuse(sentence: str, status: int = UNFIT) -> NoReturn:
    """End on every host because of something that all of them know; one of them prints it.

    It ends with status 78 and is not retried.
    """
    pod = PODS[0] if PODS else None
    if pod is None or pod.is_main or pod.is_child:
        process_env.log_error(sentence)
    exit_together(status)


def exit_invalid(sentence: str) -> NoReturn:
    """End because of a wrong setup. Usually all processes find it, and one of them prints it."""
    words = [sentence]
    try:
        if PODS and PODS[0].count > 1:
            words = PODS[0].circle.gather_connected(sentence, "unfit", TOGETHER_S)
    except PeerSilent:
        process_env.log_error(sentence)
        exit_now(UNFIT)
    refuse("; ".join(dict.fromkeys(words)))


def exit_together(status: int) -> NoReturn:
    """End together with the other processes. All of them call it."""
    if PODS and PODS[0].notices:
        PODS[0].circle.close()
        try:
            jax.distributed.shutdown()
        except Exception as error:  # noqa: BLE001  # the exit status matters more
            process_env.log_message(f"the other processes did not confirm the end: {error}")
            exit_now(status)
    sys.exit(status)  # trackers replace it to learn the status


def exit_now(status: int) -> NoReturn:
    """End without waiting for others: JAX's own exit takes up to five minutes."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def handle_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """End after an uncaught exception.

    In one process of several JAX would wait for the others, and then end all of them by SIGABRT,
    the failing one too.
    """
    if isinstance(error, (InvalidSetup, MissingPackage)):
        exit_invalid(str(error))
    if isinstance(error, ModuleNotFoundError) and error.name == "jax":
        exit_invalid(LACKS_JAX)
    if isinstance(error, RuntimeError) and "bootstrapping phase" in str(error):
        exit_invalid(TRAINS_AGAIN)  # multiprocessing noticed it first
    sys.__excepthook__(kind, error, trace)
    if not PODS or PODS[0].count == 1:
        return
    if isinstance(error, KeyboardInterrupt):
        exit_now(130)
    if is_consequence(error):
        process_env.log_message("another process is gone; see the log of that host for the cause")
        exit_now(PEER_LOST)
    exit_now(1)


def is_consequence(error: BaseException) -> bool:
    """Whether an exception only says that another process died."""
    if not isinstance(error, (ValueError, RuntimeError)):
        return False
    text = str(error).lower()
    return any(word in text for word in CONSEQUENCES)


def is_stop_agreed(pod: Pod, step: int) -> bool:
    """Whether all processes stop before this step because one of them received a stop request.

    All call it at every step. It costs a microsecond.
    """
    if not pod.notices:
        return NOTICE.heard
    return bool(multihost.reached_preemption_sync_point(step))
