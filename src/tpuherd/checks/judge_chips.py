"""Judges a host's chips: whether all are there, and who keeps them, their lock and ports. Pure."""

from collections.abc import Sequence

from tpuherd.checks.host_facts import ChipUser, HostProcess, PortUser, TpuLock
from tpuherd.checks.judgement import (
    CLEAN,
    SHARED,
    CheckedHost,
    HostFinding,
    all_right,
    ask_and_clean,
    clean_command,
    describe_process,
    list_processes,
    live_tasks,
    not_looked,
    report_problem,
    warn_of,
)
from tpuherd.engine.gang_env import COORDINATOR_PORT, MEGASCALE_PORT

JAX_PORT = 8482  #: JAX's own default since 0.8.1
SLICE_PORT = 8471  #: libtpu's, between the hosts of a slice
PORTS = {
    COORDINATOR_PORT: "the coordinator's port",
    JAX_PORT: "JAX's default coordinator port",
    MEGASCALE_PORT: "the port between slices",
    SLICE_PORT: "libtpu's port between hosts",
}
ANY = ("0.0.0.0", "::")
DEVICES = "/dev/"


def judge_chips(one: CheckedHost) -> Sequence[HostFinding]:
    """The device files and PCI devices against the node's type."""
    expected = one.expected
    if expected.shared:
        return [not_looked(SHARED)]
    if not expected.chips:
        return [not_looked("the catalogue does not know its type")]
    files, chips = len(one.facts.host.devices), one.facts.host.chips
    renew = (
        "if no program sees them either, delete the node and request it again: a restart does "
        "not bring chips back"
    )
    if files != expected.chips:
        few = f"{files} of the {expected.chips} chips" if files else "none of its chips"
        return [report_problem(f"{few} are in /dev, on a host of {expected.type}", renew)]
    other = {chip.generation for chip in chips} - {expected.generation, "", "v7x"}
    if chips and len(chips) != expected.chips:
        return [report_problem(f"{len(chips)} chips are on PCI, and {files} in /dev", renew)]
    if other:
        return [
            report_problem(
                f"the chips are of {', '.join(sorted(other))}, not {expected.generation}", renew
            )
        ]
    return [all_right("the chip is there" if files == 1 else f"all {files} chips are there")]


def judge_chip_users(one: CheckedHost) -> Sequence[HostFinding]:
    """Each process that keeps a chip and is no running task of ours."""
    live = live_tasks(one)
    rows = [row for row in one.facts.holders if row.device.startswith(DEVICES)]
    strange = {row.pid: row for row in rows if not (row.work and row.work in live)}
    if strange:
        return [judge_keeper(one, list(strange.values()))]
    works = sorted({row.work for row in rows})
    return [all_right(f"{', '.join(works)} uses the chips" if works else "the chips are free")]


def judge_keeper(one: CheckedHost, rows: Sequence[ChipUser]) -> HostFinding:
    ours = all(row.work for row in rows)
    keep = "keeps" if len(rows) == 1 else "keep"
    found = f"{list_processes(rows)} {keep} the chips"
    if ours:
        return report_problem(
            f"{found}, left by a task that is over", clean_command(one), fix=CLEAN
        )
    if any(row.pid is None for row in rows):
        return report_problem(
            found, f"look for containers: herd exec {one.label} -- sudo docker ps"
        )
    return judge_foreign_use(one, rows, found)


def judge_foreign_use(one: CheckedHost, rows: Sequence[HostProcess], found: str) -> HostFinding:
    """Judge programs that herd did not start: the login's own may be what its user wants."""
    if all(row.user == one.facts.identity.user for row in rows):
        return warn_of(found, f"end it when it is no longer needed: herd clean {one.label} --all")
    return report_problem(found, ask_and_clean(one))


def judge_lock(one: CheckedHost) -> Sequence[HostFinding]:
    """libtpu's lock files: a file is a lock only while a process holds it."""
    wrong = [found for lock in one.facts.locks for found in judge_lock_file(one, lock)]
    return wrong or [all_right("no lock file is in the way")]


def judge_lock_file(one: CheckedHost, lock: TpuLock) -> list[HostFinding]:
    if lock.held and lock.work and lock.work in live_tasks(one):
        return []
    if lock.held and lock.pid is None:
        remedy = f"look for containers: herd exec {one.label} -- sudo docker ps"
        return [report_problem(f"a hidden process holds {lock.path}", remedy)]
    if lock.held:
        found = f"{describe_process(lock)} holds {lock.path}"
        if lock.work:
            found += ", left by a task that is over"
            return [report_problem(found, clean_command(one), fix=CLEAN)]
        return [judge_foreign_use(one, [lock], found)]
    if lock.ours and (not lock.usable or lock.owner not in (one.facts.identity.user, "")):
        found = f"{lock.path} is left over from {lock.owner}, and no process holds it"
        return [report_problem(found, clean_command(one), fix=CLEAN)]
    return []


def judge_leftovers(one: CheckedHost) -> Sequence[HostFinding]:
    rows = one.facts.leftovers
    if not rows:
        return [all_right("nothing is left over from ended tasks")]
    works = sorted({row.work for row in rows if row.work})
    whose = f" of {', '.join(works[:3])}" if works else ""
    found = f"{list_processes(rows)} still {'runs' if len(rows) == 1 else 'run'}, left over{whose}"
    return [warn_of(found, clean_command(one), fix=CLEAN)]


def judge_ports(one: CheckedHost) -> Sequence[HostFinding]:
    """A listener at a port of the gang catches workers of the next run."""
    addresses = {*ANY, one.host.internal_ip, *one.facts.identity.addresses}
    live = live_tasks(one)
    rows = [row for row in one.facts.ports if row.port in PORTS and row.address in addresses]
    wrong = [judge_listener(one, row) for row in rows if not (row.work and row.work in live)]
    busy = sorted({row.work for row in rows if row.work in live})
    return wrong or [all_right(f"{', '.join(busy)} uses them" if busy else "the ports are free")]


def judge_listener(one: CheckedHost, row: PortUser) -> HostFinding:
    found = f"{describe_process(row)} listens at {row.port}, {PORTS[row.port]}"
    if row.work:
        found += ", left by a task that is over"
        return report_problem(found, clean_command(one), fix=CLEAN)
    end = f"herd exec {one.label} -- sudo kill {row.pid}" if row.pid else "end that process"
    if one.host.worker and row.port != SLICE_PORT:
        return warn_of(f"{found}; only the first host needs it", end)
    return report_problem(found, end)


def judge_fork(one: CheckedHost) -> Sequence[HostFinding]:
    """A parent and its child with the same chip open: the child was forked after JAX started."""
    by_pid = {(row.pid, row.device): row for row in one.facts.holders if row.pid}
    pairs: dict[int, tuple[HostProcess, list[HostProcess]]] = {}
    for row in one.facts.holders:
        parent = by_pid.get((row.parent, row.device))
        if parent is not None and parent.pid:
            children = pairs.setdefault(parent.pid, (parent, []))[1]
            if row.pid not in [child.pid for child in children]:
                children.append(row)
    if not pairs:
        return [all_right("no process was forked with the chips open")]
    return [
        warn_of(
            f"{describe_process(parent)} was forked with the chips open: "
            + list_processes(children),
            "start data workers with spawn or forkserver, or before JAX touches the chips",
        )
        for parent, children in pairs.values()
    ]
