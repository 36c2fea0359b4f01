"""Mounts a job's NFS folders on the hosts of a gang by a step of shell, before its setup.

The step is nfs_step.sh. A line of /etc/fstab keeps each mount over a reboot; a node's reboot or
replacement prepares it anew, and what is mounted and answers is left alone.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from tpuherd.engine.environments import GangCalls
from tpuherd.engine.host_failures import HostFailure, own_lines
from tpuherd.engine.host_watcher import HostWatcher
from tpuherd.jobfile.nfs_folders import WORKER_0

STEP = Path(__file__).with_name("nfs_step.sh")
STEP_S = 900.0  #: with the installation of a package
VERSION = "nfsvers=4.2,"  #: what our own servers speak; with others, both sides choose
SAID_BEFORE = re.compile(r"^mount(\.nfs4?)?: (mounting .*failed, reason given by server: )?")
#: What mount.nfs says, and what to do about it.
ADVICE = (
    (r"access denied", "the server must export it to this host's internal address"),
    (r"No such file", "the server must export this very path to this host"),
    (
        r"timed out|No route to host|Connection refused|not responding",
        "is the server up, and may this host reach its TCP port 2049?",
    ),
    (r"resolve", "is the name right?"),
    (r"not permitted|No such device|unknown filesystem", "this host's kernel has no NFS for you"),
)


async def mount_nfs_folders(
    gang: GangCalls, bid: str, watches: Sequence[HostWatcher], folders: Mapping[str, str]
) -> list[HostFailure]:
    """Mount every folder on every host; return the failures by host."""
    for folder, server in folders.items():
        clients, mount = watches, {"FOLDER": folder, "SERVER": server, "VERSION": ""}
        if server == WORKER_0:
            clients, address = watches[1:], watches[0].host.internal_ip
            addresses = " ".join(one.host.internal_ip for one in clients)
            mount = {"FOLDER": folder, "SERVER": f"{address}:{folder}", "VERSION": VERSION}
            export = {"FOLDER": folder, "SERVER": "", "CLIENTS": addresses}
            failures = await run_step(gang, bid, watches[:1], export)
            if failures:
                return failures
        failures = await run_step(gang, bid, clients, {**mount, "CLIENTS": ""})
        if failures:
            return failures
    return []


async def run_step(
    gang: GangCalls, bid: str, watches: Sequence[HostWatcher], env: Mapping[str, str]
) -> list[HostFailure]:
    """Run the step on these hosts, each time anew; return the failures by host."""
    argv = ["timeout", "-k", "5", f"{STEP_S:g}", "sh", "-c", STEP.read_text(encoding="utf-8")]
    word = "mount" if env["SERVER"] else "export"
    step = {"name": f"1 {word} {env['FOLDER']}", "argv": argv, "env": dict(env)}
    unique = json.dumps([step, gang.means.clock.now()])
    name = f"{bid}-setup-{sha256(unique.encode()).hexdigest()[:12]}"

    async def run(watch: HostWatcher) -> HostFailure | None:
        failure = await gang.set_up_host(watch, name, {"steps": [step]})
        return explain_failure(failure, env) if failure is not None else None

    found = await gang.run_on_all(watches, run)
    return [one for one in found if isinstance(one, HostFailure)]


def explain_failure(failure: HostFailure, env: Mapping[str, str]) -> HostFailure:
    """Put the step's own last line, and what to do about it, in place of its status."""
    lines = own_lines(failure.tail)
    if failure.exit is None or not lines:
        return failure
    sentence = lines[-1]
    if (said := SAID_BEFORE.sub("", sentence)) != sentence or sentence.startswith("timed out"):
        sentence = f"{env['SERVER']} can't be mounted on {env['FOLDER']}: {said.rstrip('.')}"
    advice = next((word for pattern, word in ADVICE if re.search(pattern, sentence)), "")
    sentence = f"{sentence}; {advice}" if advice else sentence
    return replace(failure, sentence=sentence, tail=(), exit=None)
