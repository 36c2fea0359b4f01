"""The verbs that read files or wait; each call runs in its own thread."""

from typing import Dict

from tpuherd_host.agent.host import clean, host_facts, stack_traces
from tpuherd_host.agent.snapshots import rpc_snapshots, send_files
from tpuherd_host.agent.threaded_rpc import ThreadedMethod

THREADED: Dict[str, ThreadedMethod] = {
    "facts": host_facts.facts,
    "holders": clean.told_holders,
    "clean": clean.clean,
    "snapshot.have": rpc_snapshots.have,
    "snapshot.receive": rpc_snapshots.receive,
    "snapshot.relay": rpc_snapshots.follow,
    "snapshot.pass": rpc_snapshots.feed,
    "snapshot.commit": rpc_snapshots.commit,
    "snapshot.abandon": rpc_snapshots.abandon,
    "snapshot.give": send_files.snapshot,
    "give": send_files.give,
    "stacks": stack_traces.stacks,
}
