"""The checks on the hosts of a target, and their repairs.

Each host's agent gathers facts (`check`); `host_facts` parses them, the judges of `judge_hosts`
turn them into results, and `collective` runs a program on all hosts of a node at once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpuherd.checks.check_results import CheckResult, CheckStatus
from tpuherd.checks.collective import check_collective
from tpuherd.checks.expectations import (
    HostedJob,
    expect_of_host,
    gang_key,
    group_nodes,
    load_jobs,
    read_other_keys,
    shares_machine,
)
from tpuherd.checks.host_facts import HostFacts, InvalidFacts, parse_clean_reply, parse_host_facts
from tpuherd.checks.judge_chips import PORTS
from tpuherd.checks.judge_hosts import judge_hosts
from tpuherd.checks.judgement import CLEAN, SHARED, CheckedHost
from tpuherd.clock import Clock
from tpuherd.commands.command_types import label_hosts, resolve_hosts
from tpuherd.engine.host_messages import InvalidMessage, PingReply, parse_message
from tpuherd.errors import NotFound, OperationFailed
from tpuherd.ports import Host, RpcRequest
from tpuherd.remote import fanout
from tpuherd.remote.fanout import FanoutResult
from tpuherd.remote.resolve_hosts import RemoteSession
from tpuherd.settings.project_access import ProjectAccess
from tpuherd.targets import fold_names, natural_key, split_bid_name
from tpuherd.views.clean_report import summary_lines

REACH = "reach"
NONSENSE = "its agent's answer makes no sense: {}"
ANSWER_S = 60.0
CLEAN_S = 90.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostAnswer:
    """What one host said, and how its clock compares with ours."""

    facts: HostFacts
    now: float
    ahead_s: float
    ahead_error_s: float


async def check_hosts(
    target: str, place: ProjectAccess, reach: RemoteSession, clock: Clock
) -> list[CheckResult]:
    """Return what the hosts of the target show; raises NotFound if there are none."""
    await reach.directory.list_nodes()  # the addresses that the cloud has now
    hosts = await resolve_hosts(target, place, reach)
    labels = label_hosts(hosts)
    jobs = load_jobs(place, hosts, clock.now())

    async def ask_in_time(host: Host) -> HostAnswer:
        return await ask_host(host, jobs.get(slot_of(host)), reach, clock)

    results = await fanout.run_on_all(hosts, ask_in_time, seconds=ANSWER_S)
    found = [judge_reach(labels[done.host], done) for done in results]
    checked = add_expectations(results, labels, jobs, reach)
    if place.world is not None:
        shared = shares_machine(place)
        checked = [
            replace(one, expected=replace(one.expected, simulated=True, shared=shared))
            for one in checked
        ]
    found += judge_hosts(checked)
    gangs = group_hosts(checked, reach)
    more = await asyncio.gather(
        *(check_gang(gang, labels, jobs.get(slot_of(gang[0].host)), reach) for gang in gangs)
    )
    return [*found, *(result for results in more for result in results)]


async def ask_host(
    host: Host, job: HostedJob | None, reach: RemoteSession, clock: Clock
) -> HostAnswer:
    """Return a host's facts and clock; OperationFailed if they make no sense."""
    link = await reach.pool.get_link(host)
    asked = {"ports": list(PORTS), "pythons": list(job.pythons) if job else []}
    try:
        facts = parse_host_facts(await link.call(RpcRequest(name="check", arguments=asked)))
        before = clock.now()
        reply = parse_message(PingReply, await link.call(RpcRequest(name="ping")))
    except (InvalidFacts, InvalidMessage) as error:
        raise OperationFailed(NONSENSE.format(error)) from error
    after = clock.now()
    middle = (before + after) / 2
    return HostAnswer(
        facts=facts, now=middle, ahead_s=reply.time - middle, ahead_error_s=(after - before) / 2
    )


def slot_of(host: Host) -> str:
    """Return the slot of a node of ours; "" for other nodes."""
    bid = split_bid_name(host.bid)
    return "" if bid is None else bid.slot


def judge_reach(label: str, done: FanoutResult[HostAnswer]) -> CheckResult:
    """The first result of each host: whether it answers, and all facts could be gathered."""
    error = done.error
    status, found, remedy = CheckStatus.OK, "the host answers", ""
    if isinstance(error, NotFound):
        status = CheckStatus.WARNING
        found = f"its agent can't be asked: {error.sentence}"
        remedy = "an agent of an earlier version is replaced when its tasks are over"
    elif error is not None:
        status, found = CheckStatus.PROBLEM, error.sentence
        remedy = error.hint or f"herd hosts {label} shows the node and its addresses"
    elif done.value is not None and done.value.facts.failed:
        parts = done.value.facts.failed
        status = CheckStatus.WARNING
        found = "; ".join(f"{name} can't be read: {why}" for name, why in sorted(parts.items()))
        remedy = "see ~/.tpuherd/agent.log on the host"
    return CheckResult(check=REACH, where=label, status=status, found=found, remedy=remedy)


def add_expectations(
    results: Sequence[FanoutResult[HostAnswer]],
    labels: Mapping[Host, str],
    jobs: Mapping[str, HostedJob],
    reach: RemoteSession,
) -> list[CheckedHost]:
    """Return the hosts that answered, with what is known of them besides."""
    gangs = group_nodes(reach.directory.survey.nodes if reach.directory.survey else ())
    pinned = reach.pool.pins.pinned_keys
    known = read_other_keys(
        {address: pinned(host) for host in labels for address in addresses_of(host)}, Path.home()
    )
    checked = []
    for done in results:
        host, answer = done.host, done.value
        if answer is not None:
            node = reach.directory.find_node(host)
            slices = len(gangs[gang_key(node)]) if node is not None else 1
            checked.append(
                CheckedHost(
                    label=labels[host],
                    host=host,
                    facts=answer.facts,
                    now=answer.now,
                    expected=expect_of_host(node, jobs.get(slot_of(host)), slices, known),
                    ahead_s=answer.ahead_s,
                    ahead_error_s=answer.ahead_error_s,
                )
            )
    return checked


def addresses_of(host: Host) -> list[str]:
    return [address for address in (host.external_ip, host.internal_ip) if address]


def group_hosts(checked: Sequence[CheckedHost], reach: RemoteSession) -> list[list[CheckedHost]]:
    """Return the hosts of each gang in its order."""
    found: dict[tuple[str, str], list[CheckedHost]] = {}
    for one in sorted(checked, key=lambda one: natural_key(one.host.name)):
        node = reach.directory.find_node(one.host)
        key = gang_key(node) if node is not None else (one.host.zone, one.host.node)
        found.setdefault(key, []).append(one)
    return list(found.values())


async def check_gang(
    gang: Sequence[CheckedHost],
    labels: Mapping[Host, str],
    job: HostedJob | None,
    reach: RemoteSession,
) -> list[CheckResult]:
    """Run the collective, unless hosts are missing or the chips belong to somebody now."""
    busy = ""
    node = reach.directory.find_node(gang[0].host)
    wanted = group_nodes(reach.directory.survey.nodes if reach.directory.survey else ())
    members = wanted[gang_key(node)] if node is not None else ()
    names = {node.name for node in members}
    silent = {host for host in labels if host.node in names} - {one.host for one in gang}
    if silent:
        busy = f"no answer from {fold_names(labels[host] for host in silent)}"
    elif sum(len(node.workers) for node in members) > len(gang):
        busy = "TARGET names only some of the hosts"
    elif gang[0].expected.shared:
        busy = SHARED
    elif job is not None and job.wants_chips:
        busy = f"the chips belong to {job.name}, whose command may start at any time"
    elif any(one.host.foreign for one in gang):
        busy = "the node belongs to another herd user"
    return await check_collective(gang, reach, busy)


async def fix_hosts(
    results: Sequence[CheckResult], target: str, place: ProjectAccess, reach: RemoteSession
) -> list[str]:
    """Do the safe repairs that these results name; return what was done, in sentences.

    That is what `herd clean` does: end what ended tasks of ours left behind, and remove lock files
    that no process holds. Nodes of other herd users are left alone.
    """
    wanted = {one.where for one in results if one.fix == CLEAN}
    hosts = await resolve_hosts(target, place, reach)
    labels = {host: label for host, label in label_hosts(hosts).items() if label in wanted}
    foreign = sorted(label for host, label in labels.items() if host.foreign)
    verb = RpcRequest(name="clean")

    async def clean_host(host: Host) -> Mapping[str, Any]:
        link = await reach.pool.get_link(host)
        try:
            return parse_clean_reply(await link.call(verb))
        except InvalidFacts as error:
            raise OperationFailed(NONSENSE.format(error)) from error

    mine = [host for host in labels if not host.foreign]
    done = await fanout.run_on_all(mine, clean_host, seconds=CLEAN_S)
    said = summary_lines({labels[one.host]: one.value for one in done if one.value is not None})
    said += fanout.failure_lines(done)
    if foreign:
        names = fold_names(foreign)
        said.append(f"{names}: not touched, as it belongs to another herd user: herd clean {names}")
    return said
