"""The verbs that read files or wait; each call runs in its own thread."""

from typing import Dict

from tpuherd_host.agent import rpc_fetch
from tpuherd_host.agent.containers import pull_image
from tpuherd_host.agent.environments import rpc_environments
from tpuherd_host.agent.host import check_facts, clean, host_facts, host_usage, stack_traces
from tpuherd_host.agent.snapshots import rpc_snapshots, send_files, trial_files
from tpuherd_host.agent.threaded_rpc import ThreadedMethod

THREADED: Dict[str, ThreadedMethod] = {
    "check": check_facts.collect_check_facts,
    "facts": host_facts.collect_facts,
    "holders": clean.list_chip_users,
    "usage": host_usage.measure_usage,
    "clean": clean.clean_host,
    "chips.free": clean.free_chips,
    "snapshot.have": rpc_snapshots.report_destination,
    "snapshot.receive": rpc_snapshots.receive_snapshot,
    "snapshot.relay": rpc_snapshots.receive_from_host,
    "snapshot.pass": rpc_snapshots.relay_snapshot,
    "snapshot.commit": rpc_snapshots.commit_snapshot,
    "snapshot.abandon": rpc_snapshots.abandon_snapshot,
    "snapshot.give": send_files.give_snapshot,
    "trial.keep": trial_files.keep_setup,
    "trial.begin": trial_files.begin_trial,
    "environment.look": rpc_environments.look_for_environment,
    "environment.use": rpc_environments.use_environment,
    "image.look": pull_image.look_for_image,
    "checkpoint.fetch": rpc_fetch.fetch_checkpoint,
    "give": send_files.give_files,
    "stacks": stack_traces.dump_stacks,
}
