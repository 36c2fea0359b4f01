"""TPU Care's functions, on herd: `from tpuherd.compat import tpucare`.

Names, signatures and meanings are those of tpucare 0.5.0. What differs on purpose is in
docs/howto/from-tpucare.md: a live TPU is taken over, Ctrl+C detaches, output and errors are real,
secrets stand in no process's arguments, and nothing is written into `.bashrc`.
"""

import logging
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from tpuherd.api import run_blocking
from tpuherd.cloud.parse import Node
from tpuherd.compat import setup_script
from tpuherd.compat.babysitting import Babysitter, CareOptions
from tpuherd.compat.callbacks import CallbackFailed, check_callback, choose_callback
from tpuherd.compat.start_processes import is_in_start_fn
from tpuherd.compat.tpu_access import CommandFailed, TpuAccess, WantedTpu
from tpuherd.errors import InvalidInput

__all__ = [
    "CACHE_TIME", "LOG_LEVEL", "TPU_CMD", "All", "CallReturnError", "CallbackFailed",
    "Context", "SliceIndex", "all_tpus", "create_tpu", "delete_all", "delete_no_check",
    "delete_one_tpu", "exec_command", "exec_on_tpu", "launch_multiple", "launch_single", "log",
    "recreate", "send_to_tpu", "start_multiple", "start_single", "synchronous_deletion",
    "tpu_ips", "tpu_names", "valid_tpu",
]  # fmt: skip

Context = TypeVar("Context")
All = Literal["all"]
SliceIndex = All | int
Creation = Callable[[str, Any], Any]
Semaphore = AbstractContextManager[Any] | None

CallReturnError = CommandFailed
TPU_CMD = "gcloud alpha compute tpus tpu-vm"  #: for programs that print it; nothing here calls it
CACHE_TIME = 10  #: seconds between two looks at the TPUs
LOG_LEVEL = logging.INFO  #: messages above this level are printed: 0 prints all


def __getattr__(name: str) -> Any:
    """PROJECT is found when a program asks for it: importing connects to nothing."""
    if name == "PROJECT":
        return TpuAccess().project
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def log(*message: object, log_level: float = 1e9) -> None:
    """Print a message with the time, if its level is above LOG_LEVEL."""
    if log_level > LOG_LEVEL:
        now = datetime.fromtimestamp(TpuAccess.clock.now(), UTC).astimezone()
        text = " ".join(map(str, message))
        sys.stdout.write(f"{now:%Y-%m-%d %H:%M:%S} | {text}\n")
        sys.stdout.flush()


# ---- one host --------------------------------------------------------------------------------


def exec_command(
    repository: str,
    wandb_key: str | None = None,
    branch: str = "main",
    setup_command: str = "(bash setup.sh; exit 0)",
    run_command: str = "bash run.sh",
    install_python: bool = True,
    pkilled: Sequence[str] | None = None,
) -> str:
    """Return a script that clones a repository, sets it up, and starts a program.

    The program goes on when the connection ends; its output is in ~/model.log.
    """
    return setup_script.build_script(
        setup_script.SetupOptions(
            repository=repository, wandb_key=wandb_key, branch=branch,
            setup_command=setup_command, run_command=run_command,
            install_python=install_python, pkilled=tuple(pkilled or ()),
        )
    )  # fmt: skip


def send_to_tpu(
    host: str, zone: str, filename_on_tpu: str, command: str, worker: SliceIndex = 0
) -> None:
    """Write `command`, a text, into a file in the home of one worker, or of "all"."""
    log(f"sending {filename_on_tpu!r}", log_level=logging.INFO)
    target = worker_target(host, zone, worker)
    run_blocking(TpuAccess().write_file(target, filename_on_tpu, command))


def exec_on_tpu(host: str, zone: str, command: str, worker: SliceIndex = 0) -> str:
    """Run a command on one worker, or on "all"; return what it writes to standard output.

    Raises CallReturnError if it ends with another status than 0 anywhere.
    """
    log(f"running {command!r}", log_level=logging.INFO)
    text = setup_script.hold_busy(command) if is_in_start_fn() else command
    target = worker_target(host, zone, worker)
    result = run_blocking(TpuAccess().run_text(target, text, command))
    return "".join(one.stdout for one in result.hosts).rstrip("\n")


def worker_target(host: str, zone: str, worker: SliceIndex) -> str:
    if worker == "all":
        return f"{zone}/{host}"
    if not isinstance(worker, int) or worker < 0:
        raise InvalidInput(f'worker should be a number from 0, or "all", not {worker!r}')
    return f"{zone}/{host}/w{worker}"


# ---- the TPUs of a zone ------------------------------------------------------------------------


def all_tpus(zone: str) -> list[dict[str, Any]]:
    """Return all TPUs of a zone, each as a dictionary with the cloud's names."""
    nodes = run_blocking(TpuAccess().list_nodes(zone))
    return [node_as_json(node) for node in nodes.values()]


def node_as_json(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": f"projects/{TpuAccess().project}/locations/{node.zone}/nodes/{node.name}",
        "state": node.state,
        "acceleratorType": node.type,
        "networkEndpoints": [
            {"ipAddress": one.internal_ip, "accessConfig": {"externalIp": one.external_ip}}
            for one in node.workers
        ],
    }
    return {**found, "health": node.health} if node.health else found


def valid_tpu(
    tpu: dict[str, Any], preempted: bool = True, deleting: bool = False, unhealthy: bool = True
) -> bool:
    """Whether a TPU counts: by default all but those that are being deleted."""
    state = tpu.get("state")
    choices = {"DELETING": deleting, "PREEMPTED": preempted}
    hidden = {word for word, shown in choices.items() if not shown}
    there = (state is not None and state not in hidden) or (deleting and preempted)
    return there and (unhealthy or tpu.get("health", "HEALTHY") == "HEALTHY")


def tpu_names(
    zone: str,
    preempted: bool = True,
    deleting: bool = False,
    unhealthy: bool = False,
    no_filter: bool = False,
    prefix: str = "",
) -> list[str]:
    """Return the names of the TPUs of a zone that begin with `prefix`."""
    found = [
        str(tpu["name"]).rpartition("/")[2]
        for tpu in all_tpus(zone)
        if no_filter or valid_tpu(tpu, preempted, deleting, unhealthy)
    ]
    return [name for name in found if name.startswith(prefix)]


def tpu_ips(host: str, zone: str) -> list[str]:
    """Return the external addresses of all workers."""
    node = run_blocking(TpuAccess().list_nodes(zone)).get(host)
    if node is None:
        raise InvalidInput(f"there is no {host} in {zone}")
    return [one.external_ip or "" for one in node.workers]


def delete_no_check(host: str, zone: str, asynchronous: bool) -> None:
    """Delete a TPU, with the job that keeps it; nothing happens if there is none."""
    run_blocking(TpuAccess().remove(host, zone, wait=not asynchronous))


def delete_one_tpu(prefix: str, host: str, zone: str, asynchronous: bool = True) -> None:
    """Delete a TPU if its name contains `prefix`."""
    if prefix in host:
        log(f"DELETING {host}", log_level=logging.INFO)
        delete_no_check(host, zone, asynchronous)


def synchronous_deletion(prefix: str, host: str, zone: str) -> None:
    """Delete a TPU if its name contains `prefix`, and wait until it is gone."""
    delete_one_tpu(prefix, host, zone, asynchronous=False)


def delete_all(prefix: str, zone: str) -> None:
    """Delete `prefix`, and prefix-0, prefix-1 … that start_multiple creates."""
    if not prefix:
        raise InvalidInput("delete_all needs a prefix: it would delete every TPU of the zone")
    ours = re.compile(re.escape(prefix) + r"(-[0-9]+)?")
    hosts = [host for host in run_blocking(TpuAccess().known_hosts(zone)) if ours.fullmatch(host)]
    for host in hosts:
        delete_no_check(host, zone, asynchronous=True)
    for host in hosts:
        delete_no_check(host, zone, asynchronous=False)


def create_tpu(
    host: str,
    zone: str,
    tpu_version: int,
    preemptible: bool,
    service_account: str,
    semaphore: Semaphore,
    slices: int = 1,
) -> None:
    """Request a TPU, and wait until it is created."""
    wanted = want_tpu(host, zone, tpu_version, preemptible, service_account, slices)
    access = TpuAccess()
    with semaphore or nullcontext():
        run_blocking(access.check([wanted]))
        log(run_blocking(access.request(wanted)), log_level=logging.INFO)
        run_blocking(access.wait_until_ready(host, zone))


def recreate(
    host: str,
    zone: str,
    tpu_version: int,
    preemptible: bool,
    service_account: str,
    slices: int,
    creation_semaphore: Semaphore = None,
) -> None:
    """Delete a TPU with everything on it, and create it again."""
    want_tpu(host, zone, tpu_version, preemptible, service_account, slices).build_job()
    delete_one_tpu("", host, zone, asynchronous=False)
    create_tpu(host, zone, tpu_version, preemptible, service_account, creation_semaphore, slices)


def want_tpu(
    host: str, zone: str, tpu_version: int, preemptible: bool, service_account: str, slices: int
) -> WantedTpu:
    """Check what fields of a job can't tell; the rest is checked with the job."""
    for name, value in (("tpu_version", tpu_version), ("slices", slices)):
        if not isinstance(value, int) or value < 1:
            raise InvalidInput(f"{name} should be a number from 1, not {value!r}")
    for name, text in (("host", host), ("zone", zone)):
        if not isinstance(text, str) or not text:
            raise InvalidInput(f"{name} should be a name, not {text!r}")
    return WantedTpu(
        host=host, zone=zone, tpu_version=tpu_version, slices=slices,
        preemptible=bool(preemptible), service_account=service_account or "",
    )  # fmt: skip


# ---- babysitting -------------------------------------------------------------------------------


def start_single(
    host: str,
    tpu_version: int,
    zone: str,
    preemptible: bool,
    service_account: str,
    slices: int,
    start_fn: Callable[[Any, Any], object],
    creation_callback: Creation | None = None,
    creation_semaphore: Semaphore = None,
    all_workers: bool = False,
    unhealthy_timeout_seconds: float = 3600,
    created_callback: Creation | None = None,
) -> None:
    """Keep a TPU, and run `start_fn(context, worker)` on each node that it gets.

    `creation_callback(host, context)` returns the context; it gets None first, later the last one.
    """
    wanted = want_tpu(host, zone, tpu_version, preemptible, service_account, slices)
    options = care_options(
        start_fn, choose_callback(creation_callback, created_callback),
        all_workers, unhealthy_timeout_seconds,
    )  # fmt: skip
    Babysitter([wanted], options).care(creation_semaphore or nullcontext())


def start_multiple(
    prefix: str,
    tpu_version: int,
    zone: str,
    preemptible: bool,
    service_account: str,
    slices: int,
    start_fn: Callable[[Any, Any], object],
    created_callback: Creation | None = None,
    tpus: int | None = None,
    creation_callback: Creation | None = None,
) -> None:
    """Keep the TPUs prefix-0, prefix-1 … as start_single keeps one."""
    if not isinstance(tpus, int) or tpus < 1:
        raise InvalidInput(f"tpus should be a number from 1, not {tpus!r}")
    wanted = [
        want_tpu(f"{prefix}-{at}", zone, tpu_version, preemptible, service_account, slices)
        for at in range(tpus)
    ]
    options = care_options(
        start_fn, choose_callback(creation_callback, created_callback), False, 3600
    )
    Babysitter(wanted, options).care(nullcontext())


launch_single, launch_multiple = start_single, start_multiple


def care_options(
    start_fn: Callable[[Any, Any], object],
    creation_callback: Any,
    all_workers: bool,
    unhealthy_s: float,
) -> CareOptions:
    check_callback("start_fn", start_fn, "ctx", "worker")
    check_callback("creation_callback", creation_callback, "host", "ctx")
    return CareOptions(
        start_fn=start_fn,
        creation_callback=creation_callback,
        all_workers=all_workers,
        unhealthy_s=unhealthy_s,
        look_s=lambda: CACHE_TIME,
        note=lambda message: log(message, log_level=logging.INFO),
        warn=lambda message: log(message, log_level=logging.WARNING),
    )
