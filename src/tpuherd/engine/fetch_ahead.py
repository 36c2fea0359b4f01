"""Has the hosts of a gang fetch the run's checkpoint while they are set up.

Nobody waits for it: an attempt that starts earlier, or a host where it fails, reads the checkpoint
where it is. The host's side is tpuherd_host/agent/rpc_fetch.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tpuherd.engine.agent_call import call_agent
from tpuherd.engine.environments import GangCalls
from tpuherd.engine.host_failures import HostFailure, failure_message
from tpuherd.engine.host_messages import Count, Text, parse_message
from tpuherd.engine.host_watcher import HostWatcher
from tpuherd.model.node_spec import LaunchSpec

FETCH_S = 900.0  #: then the hosts give up
BUCKET = "gs://"


class FetchReply(Struct, frozen=True, kw_only=True):
    """What a host answers to `checkpoint.fetch`."""

    step: Count | None = None  #: None: there is no checkpoint, or it does not fit
    bytes: Count = 0
    programs: Count = 0
    trouble: Text = ""


def can_fetch(order: LaunchSpec) -> bool:
    """Whether there is something to fetch: a folder that hosts share is near already."""
    return order.fetches_checkpoint and order.env.get("HERD_CHECKPOINT", "").startswith(BUCKET)


async def fetch_checkpoint(
    gang: GangCalls, watches: Sequence[HostWatcher], order: LaunchSpec, secrets: Mapping[str, str]
) -> None:
    """Have all hosts fetch what their process will load, and report what they fetched."""
    began = gang.means.clock.now()

    async def fetch(watch: HostWatcher) -> FetchReply:
        env = {**order.env, **secrets, "HERD_WORKER": str(watches.index(watch))}
        found = await call_agent(watch, "checkpoint.fetch", {"env": env}, FETCH_S)
        return parse_message(FetchReply, found)

    found = await gang.run_on_all(watches, fetch)
    seconds = round(gang.means.clock.now() - began, 1)
    bid, slot = watches[0].host.node, watches[0].slot
    replies = [one for one in found if isinstance(one, FetchReply)]
    # An unknown outcome is that of a node that is gone, which other events report.
    failures = [one for one in found if isinstance(one, HostFailure) and not one.unknown]
    failures += [
        HostFailure(host=watch.status.name, sentence=one.trouble)
        for watch, one in zip(watches, found, strict=True)
        if isinstance(one, FetchReply) and one.trouble
    ]
    if any(one.step is not None or one.programs for one in replies):
        facts = {"bid": bid, "hosts": len(replies), "seconds": seconds, **sum_replies(replies)}
        gang.means.tell("checkpoint.fetched", slot, {**facts, "why": describe_fetch(facts)})
    if failures:
        message = failure_message(failures)
        why = f"{message}; it is read where it is"
        gang.means.tell(
            "checkpoint.not_fetched", slot, {"bid": bid, "message": message, "why": why}
        )


def sum_replies(replies: Sequence[FetchReply]) -> dict[str, Any]:
    """Return the newest step that a host fetched, and the most that one of them has of each."""
    steps = [one.step for one in replies if one.step is not None]
    return {
        "step": max(steps, default=None),
        "bytes": max(one.bytes for one in replies),
        "programs": max(one.programs for one in replies),
    }


def describe_fetch(facts: Mapping[str, Any]) -> str:
    """Two hosts fetched step 300 (5 MB) and 12 compiled programs in 0.4 s."""
    what = []
    if facts["step"] is not None:
        what.append(f"the checkpoint of step {facts['step']} ({facts['bytes'] / 1e6:.1f} MB)")
    if facts["programs"]:
        many = facts["programs"]
        what.append(f"{many} compiled program{'s' if many != 1 else ''}")
    hosts = f"{facts['hosts']} hosts" if facts["hosts"] != 1 else "1 host"
    return f"{hosts} fetched {' and '.join(what)} in {facts['seconds']:.1f} s"
