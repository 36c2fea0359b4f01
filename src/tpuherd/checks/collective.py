"""Runs a small collective over all hosts of a node at once, as a job's gang would run there."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tpuherd.checks.check_results import CheckResult
from tpuherd.checks.judge_chips import PORTS
from tpuherd.checks.judge_hosts import results_of
from tpuherd.checks.judgement import (
    CheckedHost,
    HostFinding,
    all_right,
    not_looked,
    report_problem,
)
from tpuherd.commands.command_types import new_command_id, parse_outcome
from tpuherd.diagnosis.explain import UNKNOWN_ERROR, explain_hosts
from tpuherd.diagnosis.log_scanner import LogScanner
from tpuherd.engine.gang_env import place_environment
from tpuherd.engine.host_messages import Count, Few, Short
from tpuherd.errors import HerdError
from tpuherd.exit_status import TRANSPORT
from tpuherd.ports import Host, Link, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.targets import fold_names
from tpuherd.views.format_text import format_span
from tpuherd_host.agent.log_records import BadRecord, RecordReader

CHECK = "collective"
PROGRAM = "collective_probe.py"
MARK = "herd-check: "  #: before the program's own line
LIMIT_S, STOP_S = 170.0, 20.0
OTHERS_S = 5.0  #: after the first failure: the others may tell more
KEEP_S = 300.0  #: for a controller that is killed before it has them forget it
PREFIX = "check-"  #: of the program's id on hosts
OUTPUT_MAX = 64 << 10
CPU_REMEDY = "install jax[tpu] in that Python, and see the checks chips and packages"
#: Variables of another run, which attempts do not get either.
REMOVED = (
    "MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID",
    "MEGASCALE_PORT", "JAX_COORDINATOR_ADDRESS",
)  # fmt: skip


class CollectiveReport(Struct, frozen=True, kw_only=True):
    """What the program prints on one host."""

    devices: Few
    local: Few
    processes: Few
    platform: Short
    kind: Short = ""
    right: bool
    bytes: Count
    seconds: Annotated[float, Meta(gt=0, le=1e6)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeOutput:
    """What the program wrote on one host, and its exit status."""

    text: str
    status: int = 0


async def check_collective(
    gang: Sequence[CheckedHost], reach: RemoteSession, busy: str
) -> list[CheckResult]:
    """Return one result for all hosts of a gang; `busy` says why it must not run."""
    where = fold_names(one.label for one in gang)
    python = common_python(gang)
    reason = find_obstacle(gang) or busy
    if reason or python is None:
        reason = reason or "no Python has jax on every host"
        return results_of(CHECK, where, [not_looked(reason)])
    said = await run_probe([one.host for one in gang], python, reach)
    labels = {one.host: one.label for one in gang}
    return results_of(
        CHECK, where, [judge_collective(gang, {labels[h]: t for h, t in said.items()})]
    )


def common_python(gang: Sequence[CheckedHost]) -> str | None:
    """Return the first Python that has jax on every host."""
    paths = [
        [row.path for row in one.facts.pythons if "jax" in row.packages and not row.why]
        for one in gang
    ]
    return next((path for path in paths[0] if all(path in some for some in paths)), None)


def find_obstacle(gang: Sequence[CheckedHost]) -> str:
    """Return why a program must not take the chips now; "" if it may."""
    for one in gang:
        for task in one.facts.tasks:
            if task.kind != "command":
                return f"{task.id} runs there"
            if task.id.startswith(PREFIX):
                return "another herd check runs there"
        if one.facts.holders:
            return f"the chips of {one.label} are in use"
        port = next((row.port for row in one.facts.ports if row.port in PORTS), None)
        if port is not None:
            return f"port {port} of {one.label} is in use"
    return ""


async def run_probe(
    hosts: Sequence[Host], python: str, reach: RemoteSession
) -> Mapping[Host, ProbeOutput]:
    """Return what each host printed and how it ended; stop soon after one has failed."""
    id = f"{PREFIX}{new_command_id()}"
    source = files("tpuherd_host").joinpath(PROGRAM).read_text(encoding="utf-8")
    unset = [word for name in REMOVED for word in ("-u", name)]
    words = ["env", *unset, python, "-c", source]
    found: dict[Host, ProbeOutput] = {}

    async def run_on_host(host: Host) -> ProbeOutput:
        env = place_environment(hosts, hosts.index(host))
        arguments = {"id": id, "argv": words, "env": dict(env), "keep_s": KEEP_S}
        verb = RpcRequest(name="run", arguments=arguments)
        link = await reach.pool.get_link(host)
        return await read_output(link, verb)

    try:
        async with (
            asyncio.timeout(None) as patience,
            aclosing(fanout.run_on_each(hosts, run_on_host, seconds=LIMIT_S)) as results,
        ):
            async for done in results:
                sentence = done.error.sentence if done.error is not None else ""
                found[done.host] = done.value or ProbeOutput(text=sentence, status=TRANSPORT)
                if found[done.host].status:
                    end = asyncio.get_running_loop().time() + OTHERS_S
                    patience.reschedule(min(end, patience.when() or end))
    except TimeoutError:
        pass  # the others wait for the one that failed
    finally:
        await remove_traces(hosts, id, reach)
    return found


async def read_output(link: Link, verb: RpcRequest) -> ProbeOutput:
    """Return the last output of a command and its exit status, once it has ended."""
    reader, text = RecordReader(), b""
    async with link.open_stream(verb) as call:
        while (piece := await call.read()) is not None:
            try:
                for record in reader.feed(piece[1]):
                    text = (text + record.piece)[-OUTPUT_MAX:]
            except BadRecord:
                return ProbeOutput(text="its agent sent something that is no log", status=TRANSPORT)
        outcome = parse_outcome(link.host.name, await call.reply())
    return ProbeOutput(text=text.decode(errors="replace"), status=outcome.status)


async def remove_traces(hosts: Sequence[Host], id: str, reach: RemoteSession) -> None:
    """Stop the program where it still runs, and have the agents forget it."""

    async def stop_on_host(host: Host) -> None:
        link = await reach.pool.get_link(host)
        try:
            stop = {"id": id, "grace_s": 0.0, "why": "herd check is over"}
            await link.call(RpcRequest(name="stop", arguments=stop))
        except HerdError:
            return  # it never started there
        await link.call(RpcRequest(name="forget", arguments={"id": id}))

    await fanout.run_on_all(hosts, stop_on_host, seconds=STOP_S)


def parse_report(text: str) -> CollectiveReport | None:
    """Return the program's own line; None if it printed none that makes sense."""
    lines = [line for line in text.splitlines() if line.startswith(MARK)]
    try:
        return msgspec.json.decode(lines[-1][len(MARK) :], type=CollectiveReport) if lines else None
    except (msgspec.MsgspecError, ValueError):
        return None


def judge_collective(gang: Sequence[CheckedHost], said: Mapping[str, ProbeOutput]) -> HostFinding:
    """Judge what the hosts printed: all of them, the same, and right."""
    reports = {label: parse_report(one.text) for label, one in said.items()}
    failed = {label: said[label] for label, report in reports.items() if report is None}
    if failed:
        return explain_failure(gang, failed)
    good = [report for report in reports.values() if report is not None]
    wrong = [label for label, report in reports.items() if report and not report.right]
    if wrong:
        return report_problem(
            f"a sum over all chips is wrong on {fold_names(wrong)}",
            f"do not train there: delete {gang[0].node} and request it again",
        )
    first = good[0]
    if first.processes != len(gang) or len({one.devices for one in good}) > 1:
        return report_problem(
            f"{first.processes} of {len(gang)} hosts found each other",
            "see the checks multislice, variables and addresses",
        )
    return judge_devices(gang, first, max(one.seconds for one in good))


def explain_failure(gang: Sequence[CheckedHost], failed: Mapping[str, ProbeOutput]) -> HostFinding:
    """Find the cause in what the hosts wrote, by the rules for logs."""
    scans = []
    for label, one in failed.items():
        scanner = LogScanner(host=label)
        for line in one.text.splitlines():
            scanner.feed(line)
        scans.append(scanner.finish(one.status))
    cause = next(iter(explain_hosts(scans)), None)
    label = next(iter(failed)) if cause is None else cause.host
    trial = f"see what JAX says: herd exec {label} -- {common_python(gang)} -c 'import jax'"
    if cause is not None:
        found = f"a small program over all hosts fails on {cause.host}: {cause.text}"
        remedy = trial if cause.id == UNKNOWN_ERROR else cause.fix
        return report_problem(found, remedy, matters=cause.cause)
    lines = [line for line in failed[label].text.splitlines() if line.strip()]
    why = lines[-1] if lines else f"it ends with status {failed[label].status} and says nothing"
    return report_problem(f"a small program over all hosts fails on {label}: {why}", trial)


def judge_devices(
    gang: Sequence[CheckedHost], first: CollectiveReport, seconds: float
) -> HostFinding:
    """Judge how many chips JAX counts; print the bandwidth of each chip."""
    expected = gang[0].expected.chips
    hosts = "1 host" if len(gang) == 1 else f"{len(gang)} hosts"
    text = (
        f"the sum over {first.devices} devices of {hosts} is right: "
        f"{first.bytes / (1 << 20):.3g} MiB in {format_duration(seconds)}"
    )
    if first.devices > 1:
        speed = 2 * (first.devices - 1) / first.devices * first.bytes / seconds / 1e9
        text += f", {speed:.3g} GB/s for each device"
    if first.platform == "cpu":
        if asks_for_cpu(gang[0]):
            return all_right(f"{text}, on CPUs as JAX_PLATFORMS says")
        return report_problem(f"JAX finds no TPU and takes CPUs; {text}", CPU_REMEDY)
    if expected and first.local % expected:
        return report_problem(
            f"JAX counts {first.local} devices on a host of {expected} chips; {text}",
            f"delete {gang[0].node} and request it again if no program sees them all",
        )
    return all_right(text)


def asks_for_cpu(one: CheckedHost) -> bool:
    """Whether the login tells JAX to use CPUs, as simulated hosts do."""
    rows = one.facts.settings.variables
    return any(row.name == "JAX_PLATFORMS" and row.value == "cpu" for row in rows)


def format_duration(seconds: float) -> str:
    """1.2 ms"""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else format_span(seconds)
