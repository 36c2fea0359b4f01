"""The verbs that read files or wait; each call runs in a thread of its own."""

from typing import Dict

from tpuherd_host.agent import clean, facts, snapshots, snapshots_give, stacks
from tpuherd_host.agent.threads import ThreadedMethod

THREADED: Dict[str, ThreadedMethod] = {
    "facts": facts.facts,
    "holders": clean.told_holders,
    "clean": clean.clean,
    "snapshot.have": snapshots.have,
    "snapshot.receive": snapshots.receive,
    "snapshot.relay": snapshots.follow,
    "snapshot.pass": snapshots.feed,
    "snapshot.commit": snapshots.commit,
    "snapshot.abandon": snapshots.abandon,
    "snapshot.give": snapshots_give.snapshot,
    "give": snapshots_give.give,
    "stacks": stacks.stacks,
}
