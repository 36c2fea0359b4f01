"""Runs a job's command with a Ray cluster over all hosts of its gang: `cluster: ray`.

`python3 -m tpuherd_host.ray_cluster COMMAND…` takes the command's place on every host. The hosts
meet at worker 0 and compare their versions of Ray; if they differ, all end with one sentence.
Worker 0 starts Ray's head, the others join it, and the command runs on worker 0 alone. Worker 0
ends as the command does, the others with 0. A host whose Ray ends joins again, without disturbing
the others. All that Ray starts is below this process, and ends with it.
"""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple

from tpuherd_host.agent import processes
from tpuherd_host.ray_cluster.child_processes import (
    RAYLET,
    adopt_orphans,
    await_news,
    core_processes,
    end_descendants,
    exit_status,
    send_signals,
    watch_children,
)
from tpuherd_host.ray_cluster.installed_ray import (
    LOGS,
    START_S,
    Ray,
    find_ray,
    finish_start,
    prepare_start,
)
from tpuherd_host.ray_cluster.meeting import (
    PORT,
    Hello,
    JoiningHost,
    describe_misfit,
    meet_members,
    open_connection,
    read_message,
    send_message,
)

FAILED, PEER_LOST, UNFIT, TERMINATED = 1, 76, 78, 143
REJOINS_MAX = 3  #: of one host in an attempt; a Ray that ends more often is broken
#: For a program on each host; Ray's tasks find each other by Ray.
NOT_PASSED_ON = ("HERD_COORDINATOR", "JAX_COORDINATOR_PORT", "JAX_COORDINATOR_BIND_ADDRESS")


class GangPlace(NamedTuple):
    """This host's place in the gang, from the variables that the engine sets."""

    worker: int
    workers: int
    attempt: str
    address: str  #: of this host
    head: str  #: of Ray's head, with its port


def main(command: Sequence[str], environ: Mapping[str, str]) -> int:
    place = GangPlace(
        int(environ["HERD_WORKER"]), int(environ["HERD_WORKERS"]), environ[processes.MARK],
        environ["HERD_ADDRESS"], environ["RAY_ADDRESS"],
    )  # fmt: skip
    adopt_orphans()
    signal.signal(signal.SIGTERM, stop_now)
    inner = inner_environment(environ)
    try:
        ray = find_ray(command, environ.get("PATH", os.defpath))
        hello = Hello(
            place.worker, place.attempt, *((ray.version, ray.python) if ray else ("", ""))
        )
        if place.worker:
            return run_member(place, hello, ray, inner)
        return run_head(place, hello, ray, inner, command)
    except OSError as error:
        tell(f"Ray's hosts can't meet at worker 0: {error}")
        return PEER_LOST
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_descendants()


def stop_now(number: int, frame: Optional[FrameType]) -> NoReturn:
    sys.exit(TERMINATED)


def inner_environment(environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables of Ray and of the command, which is one program on one host."""
    found = {name: value for name, value in environ.items() if name not in NOT_PASSED_ON}
    found.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return {**found, "HERD_WORKER": "0", "HERD_WORKERS": "1"}


# ---- worker 0 ------------------------------------------------------------------------------------


def run_head(
    place: GangPlace, hello: Hello, ray: Optional[Ray], environ: Mapping[str, str],
    command: Sequence[str],
) -> int:  # fmt: skip
    """Start the cluster, run the command, and tell the others that it has ended."""
    begun = time.monotonic()
    host, _, port = place.head.rpartition(":")
    taken = [number for number in (PORT, int(port)) if is_taken(host, number)]
    if taken:
        tell_error(
            f"Ray needs port {taken[0]} of worker 0, which another program has taken;"
            " if it is a Ray that was started by hand, end it with `ray stop`"
        )
        return FAILED
    words = ["--head", f"--port={port}", f"--node-ip-address={host}"]
    if ray and not ray.has_dashboard:
        words.append("--include-dashboard=false")  # else Ray tries for seconds
    starting = prepare_start(ray, words, environ) if ray else None
    members = meet_members(place.address, hello, place.workers)
    misfit = describe_misfit([hello, *(one.hello for one in members)])
    if misfit or starting is None or ray is None:
        tell_error(misfit)
        broadcast(members, {"refuse": misfit})
        return UNFIT
    failure = finish_start(starting)
    if failure:
        tell_error(failure)
        return FAILED
    broadcast(members, {"join": place.head})
    for member in members:
        if not read_message(member.line, START_S).get("joined"):
            tell(f"worker {member.hello.worker} did not join the Ray cluster; see its log")
            return PEER_LOST
    many = f"{place.workers} hosts" if place.workers > 1 else "1 host"
    seconds = time.monotonic() - begun
    sys.stdout.write(f"Ray {ray.version} runs on {many}, started in {seconds:.1f} s\n")
    sys.stdout.flush()
    status = run_command(command, environ, members)
    broadcast(members, {"end": True})
    return status


def is_taken(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def broadcast(members: Sequence[JoiningHost], message: Mapping[str, object]) -> None:
    for member in members:
        send_message(member.line, message)


def run_command(
    command: Sequence[str], environ: Mapping[str, str], members: Sequence[JoiningHost]
) -> int:
    """Run it as if it had been started itself: it gets our signals, and its end is ours.

    If the cluster loses a host, the command is asked to stop: the next attempt has all.
    """
    hear, core = watch_children(), core_processes()
    if RAYLET not in core.values():
        tell_error(core_end(RAYLET))
        return FAILED
    drivers: List[int] = []
    stops: List[int] = []

    def forward_stop(number: int, frame: Optional[FrameType]) -> None:
        stops.append(number)
        send_signals(drivers, number)

    signal.signal(signal.SIGTERM, forward_stop)
    try:
        driver = subprocess.Popen(list(command), env=dict(environ))
    except OSError as error:
        tell_error(f"{command[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126
    drivers.append(driver.pid)
    send_signals(drivers, *stops[:1])
    broken = 0
    while True:
        ended, spoken = await_news(hear, [] if broken else [one.line for one in members])
        if driver.pid in ended:
            driver.returncode = exit_status(ended[driver.pid])
            return broken or driver.returncode  # asked to stop, it may have saved and ended well
        reasons = [core_end(core[pid]) for pid in ended if pid in core]
        gone = [one.hello.worker for one in members if one.line in spoken]
        if (reasons or gone) and not broken:
            broken = FAILED if reasons else PEER_LOST
            if reasons:
                tell_error(reasons[0])
            else:
                tell(f"worker {gone[0]} has left the cluster; see its log")
            send_signals(drivers, signal.SIGTERM)


# ---- the other workers ---------------------------------------------------------------------------


def run_member(
    place: GangPlace, hello: Hello, ray: Optional[Ray], environ: Mapping[str, str]
) -> int:
    """Join the cluster, and stay until worker 0 says that the command has ended."""
    words = [f"--address={place.head}", f"--node-ip-address={place.address}"]
    starting = prepare_start(ray, words, environ) if ray else None
    line = open_connection(place.head.rpartition(":")[0], hello)
    order = read_message(line, None)
    if "refuse" in order:
        return UNFIT
    if "join" not in order or starting is None or ray is None:
        tell("worker 0 ended before Ray started; see its log")
        return PEER_LOST
    failure = finish_start(starting, line)
    if failure:
        tell_error(failure)
        return FAILED
    # The command on worker 0 is asked to stop, and may need this host to save.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    send_message(line, {"joined": True})
    for rejoins in range(1, REJOINS_MAX + 1):
        status, lost = stay(line)
        if not lost:
            return status
        tell(f"{core_end(lost)}; it joins the cluster again ({rejoins} of {REJOINS_MAX} times)")
        end_descendants()
        failure = finish_start(prepare_start(ray, words, environ), line)
        if failure:
            tell_error(failure)
            return FAILED
    status, lost = stay(line)
    if lost:
        tell_error(core_end(lost))
    return status


def stay(line: socket.socket) -> Tuple[int, str]:
    """Wait for the command's end, or for that of a part of Ray on this host, whose name it is."""
    hear, core = watch_children(), core_processes()
    if RAYLET not in core.values():
        return FAILED, RAYLET
    while True:
        ended, spoken = await_news(hear, [line])
        for pid in ended:
            if pid in core:
                return FAILED, core[pid]
        if spoken:
            if read_message(line, None).get("end"):
                return 0, ""
            tell("worker 0 is gone; see its log")
            return PEER_LOST, ""


def core_end(name: str) -> str:
    return f"Ray's {name} on this host has ended; its log is in {LOGS}"


def tell(sentence: str) -> None:
    sys.stderr.write(f"herd: {sentence}\n")
    sys.stderr.flush()


def tell_error(sentence: str) -> None:
    """Say why this host ends: the engine shows it as the cause."""
    tell(f"error: {sentence}")


def end_alike(status: int) -> NoReturn:
    """End with this status, or by this signal."""
    if status < 0:
        with suppress(OSError):  # KILL needs no default
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    end_alike(main(sys.argv[1:], os.environ))
