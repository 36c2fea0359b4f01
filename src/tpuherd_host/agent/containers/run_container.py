"""Runs a job's command in a container, in the command's place: `image`.

`agent.pyz container PLAN COMMAND…` is the attempt's process on the host. It starts the container,
passes signals on, and ends as the command does. The command's processes carry the marks of the
attempt and belong to the login, so that the agent finds and ends them as it does any others,
whatever happens to this program. What a killed engine leaves behind, the next start removes.
"""

import json
import os
import pwd
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Dict, List, Mapping, Sequence, Set, Tuple

from tpuherd_host.agent.containers.container_words import (
    ContainerPlan,
    HostPlace,
    container_arguments,
    container_variables,
    existing_folders,
    split_variables,
)
from tpuherd_host.agent.containers.engine_program import (
    ContainerEngine,
    client_environment,
    find_engine,
)
from tpuherd_host.agent.host.chip_users import chip_devices
from tpuherd_host.agent.processes import rename_process

FAILED = 125
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
AGAIN_S = 0.2  #: a container that is being made takes no signals yet
LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "memlock": resource.RLIMIT_MEMLOCK,
}


def run_container(text: str, command: Sequence[str]) -> int:
    """Run it and return the exit status; a signal that ended the command ends us."""
    rename_process("herd-container")
    signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    plan = ContainerPlan(**json.loads(text))
    environ = dict(os.environ)
    engine = find_engine(environ)
    if not engine.name:
        return refuse(engine.trouble or "this host has neither docker nor podman")
    try:
        place = describe_place(plan, engine, environ)
    except OSError as error:
        return refuse(f"{error.filename} can't be made: {error.strerror}")
    name = container_name(environ)
    variables = container_variables(plan, place, environ)
    lines, passed = split_variables(variables)
    client = client_environment(environ, plan.names)
    remove_container(engine, name, client)
    words = container_arguments(plan, place, name, passed, command)
    words = engine.words(*words, variables=passed)
    process = start_engine(words, {**client, **{one: variables[one] for one in passed}}, lines)
    status = wait_for_end(engine, name, client, process)
    if status:
        remove_container(engine, name, client)
    return end_alike(status)


def refuse(sentence: str) -> int:
    sys.stderr.write(f"herd: {sentence}\n")
    return FAILED


def container_name(environ: Mapping[str, str]) -> str:
    """herd-gpt-0"""
    return f"herd-{environ.get('HERD_JOB', 'job')}-{environ.get('HERD_SLOT', '0')}"


def describe_place(
    plan: ContainerPlan, engine: ContainerEngine, environ: Mapping[str, str]
) -> HostPlace:
    gid, login = os.getgid(), pwd.getpwuid(os.getuid())
    return HostPlace(
        home=login.pw_dir if "HOME" in plan.names else environ.get("HOME", login.pw_dir),
        user=login.pw_name,
        uid=login.pw_uid,
        gids=[gid, *(one for one in os.getgroups() if one != gid)],
        directory=os.getcwd(),
        devices=chip_devices(),
        folders=existing_folders(plan.mounts),
        limits=hard_limits(),
        rootless=engine.is_rootless,
    )


def hard_limits() -> Dict[str, Tuple[int, int]]:
    """Return the limits of this host's programs, which containers would not have by themselves."""
    return {what: resource.getrlimit(kind) for what, kind in LIMITS.items()}


def unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def start_engine(
    words: List[str], environ: Mapping[str, str], lines: str
) -> "subprocess.Popen[bytes]":
    """Start it with the variables as a file without a name, which no disk ever has."""
    file = os.memfd_create("variables")
    try:
        os.write(file, lines.encode())
        os.lseek(file, 0, os.SEEK_SET)
        return subprocess.Popen(words, env=dict(environ), stdin=file, preexec_fn=unblock_signals)
    finally:
        os.close(file)


def wait_for_end(
    engine: ContainerEngine,
    name: str,
    environ: Mapping[str, str],
    client: "subprocess.Popen[bytes]",
) -> int:
    """Pass signals on until the container has ended; return its exit status."""
    due: Set[int] = set()
    heard = {*FORWARDED, signal.SIGCHLD}
    while client.poll() is None:
        due -= {one for one in due if send_signal(engine, name, one, environ)}
        if client.poll() is not None:
            break
        info = signal.sigtimedwait(heard, AGAIN_S) if due else signal.sigwaitinfo(heard)
        if info is not None and info.si_signo in FORWARDED:
            due.add(info.si_signo)
    return client.returncode


def send_signal(
    engine: ContainerEngine, name: str, number: int, environ: Mapping[str, str]
) -> bool:
    """Return whether the container took the signal."""
    return call_engine(engine.words("kill", f"--signal={number}", name), environ)


def remove_container(engine: ContainerEngine, name: str, environ: Mapping[str, str]) -> None:
    call_engine(engine.words("rm", "--force", name), environ)


def call_engine(words: List[str], environ: Mapping[str, str]) -> bool:
    done = subprocess.run(
        words,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=unblock_signals,
    )
    return done.returncode == 0


def end_alike(status: int) -> int:
    """Return the status; if it stands for a signal, end by that signal as the command did."""
    number = -status if status < 0 else status - 128
    if number not in set(signal.Signals):
        return status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    unblock_signals()
    with suppress(OSError, ValueError):  # KILL needs no default
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return status
