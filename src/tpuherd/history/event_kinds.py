"""Every kind of event: the facts it always has, the line that people read, and what it means."""

from collections.abc import Mapping
from dataclasses import dataclass

from tpuherd.model.slots_and_plan import HistoryEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class EventKind:
    """One row of the table: all readers of events, and the docs, derive from it."""

    name: str
    facts: frozenset[str]  #: without these an event of this kind is ignored
    line: str  #: the facts shown to people; absent ones are left out
    meaning: str  #: for the docs


_BID = "bid generation offer nodes node_digest"
_KINDS = (
    ("job.submitted", "", "{who}", "a job was submitted, or a finished one was run again: `who`"),
    ("job.changed", "", "{difference}", "some of its fields changed: `who`, `difference`"),
    ("job.stopped", "", "{who}", "the job was stopped and is kept: `who`"),
    ("job.resumed", "", "{who}", "the stopped job runs again: `who`"),
    ("job.removed", "", "{who}", "the job was removed: `who`"),
    ("shares.changed", "user weight", "{user}", "`user` has another `weight` in a lab: `who`"),
    (
        "bid.requested",
        _BID,
        "{bid}",
        "a node is requested, or requested again because no answer came; written before the"
        " cloud is called; `offer` has `zone`, `type`, `tier`, `runtime`, `kind`, `price`",
    ),
    ("bid.accepted", "bid", "{bid}", "the cloud accepted the request"),
    (
        "bid.refused",
        "bid refusal message",
        "{bid} {refusal}: {message}",
        "the cloud refused: `refusal` is stockout, rate, quota, reservation, permission,"
        " configuration, taken or broken; `message` is the cloud's",
    ),
    ("bid.granted", "bid", "{bid}", "the cloud is creating the node"),
    ("bid.ready", "bid", "{bid}", "the node is READY"),
    (
        "bid.unhealthy",
        "bid state",
        "{bid} {state}",
        "the node is under repair or maintenance, or the cloud calls it unhealthy: `state`; or, if"
        " `code` is silent, its `hosts` have not answered since `since`",
    ),
    (
        "bid.healthy",
        "bid",
        "{bid}",
        "the node is healthy again; if `code` is silent, its hosts answer again, and `paused_s` is"
        " how long they stood still: 0 if only the connection was cut",
    ),
    (
        "bid.idle",
        "bid",
        "{bid}",
        "nothing has run on the READY node for a while: `why` says what it costs, and when it is"
        " given back",
    ),
    ("bid.used", "bid", "{bid}", "a user's command runs on the idle node again"),
    (
        "bid.notice_received",
        "bid host notice",
        "{host}",
        "a host received notice that its node will be taken away",
    ),
    (
        "bid.missing",
        "bid",
        "{bid}",
        "the cloud's lists do not show the node; it counts as lost if they omit it again",
    ),
    ("bid.reappeared", "bid", "{bid}", "the cloud's lists show the node again"),
    (
        "bid.lost",
        "bid cause",
        "{bid} {cause}",
        "the node is lost: `cause` is preempted, terminated, vanished, …",
    ),
    (
        "bid.nodes_deleted",
        "bid",
        "{bid}",
        "the withdrawn node is deleted and no longer billed; the cloud still lists its request",
    ),
    (
        "bid.withdrawn",
        "bid",
        "{bid}",
        "deletion is requested, or requested again because no answer came; written before the"
        " cloud is called",
    ),
    ("bid.deleted", "bid", "{bid}", "neither the node nor its request exists any longer"),
    (
        "bid.adopted",
        _BID,
        "{bid} {offer}",
        "a node that this store did not know was taken over, with all that could be found out",
    ),
    (
        "node.quarantined",
        "node why",
        "{node}",
        "its chips failed to come up several times in a row: it is not used again",
    ),
    (
        "slot.prepared",
        "bid code_digest hosts",
        "{bid}",
        "all hosts have the code and are set up, which took `took_s`",
    ),
    (
        "slot.setup_failed",
        "bid message hosts",
        "{bid}: {message}",
        "setup failed: `hosts` with `exit` and last lines, and `finding`, the [known"
        " failure](failures.md) that they show; or a secret or the code is `missing`; or it is"
        " `unfit`: only a change of the job helps",
    ),
    (
        "environment.installed",
        "bid environment host",
        "{environment}",
        "a host installed the job's Python environment: with which `tool` and `python`, how many"
        " `packages`, `bytes` and `seconds`; `kept`: the copy in the bucket; `refused`: why the one"
        " that was there was not used",
    ),
    (
        "environment.copied",
        "bid environment hosts source",
        "{environment}",
        "hosts got the Python environment from another host, a bucket or this machine: `seconds`",
    ),
    (
        "image.pulled",
        "bid hosts image",
        "{image}",
        "hosts pulled the image that the command runs in: its `id`, in `seconds`",
    ),
    (
        "checkpoint.fetched",
        "bid hosts",
        "{bid}",
        "hosts copied what their next attempt loads to their disks, while they were set up: the"
        " checkpoint of `step`, its `bytes` and the compiled `programs` of a host, in `seconds`",
    ),
    (
        "checkpoint.not_fetched",
        "bid message",
        "{bid}: {message}",
        "hosts could not copy it; the attempt reads the checkpoint where it is",
    ),
    (
        "slot.collected",
        "bid attempt",
        "{bid}",
        "outputs and logs were fetched: `folder`"
        ", of the first 100 the `paths`, and what was `cut_off` because the node went",
    ),
    (
        "slot.collect_failed",
        "bid attempt message",
        "{bid}: {message}",
        "outputs and logs could not be fetched; this is tried again, or if `code` is full, which"
        " spares the disk of the engine's machine, once after an hour",
    ),
    (
        "slot.data_moved",
        "attempt dollars",
        "{what} {bytes} bytes",
        "checkpoints were `saved` to a bucket in another region than the node's, or `read` from it"
        " (`what`): `bytes`, as the script reports them, and the list price in `dollars`",
    ),
    (
        "slot.deadline_mode",
        "mode why",
        "{mode}",
        "the job's deadline demands something else: `mode` is wait (for spot), catch up (on"
        " on-demand until there is spot) or firm (on-demand to the end); `left_s` is the time to"
        " the deadline, `work_s` the work that is left",
    ),
    (
        "slot.deadline_missed",
        "mode why",
        "",
        "the deadline has passed, and `work_s` of work is left",
    ),
    ("slot.done", "why", "", "the slot has succeeded"),
    (
        "slot.gave_up",
        "why",
        "",
        "the slot is not tried again: `code` is failures, stalls, preemptions, timeout, lifetime,"
        " cost, unfit (no other try can help), idle,"
        " offers (no node can be requested) or trials (none of its sweep has succeeded)",
    ),
    (
        "attempt.launched",
        "attempt number bid code_digest",
        "{attempt} on {bid}",
        "the command is started on all hosts; written before; `trial` in a sweep",
    ),
    ("attempt.started", "attempt", "{attempt}", "every host has confirmed that the command runs"),
    (
        "attempt.first_step",
        "attempt",
        "{attempt} step {step}",
        "the attempt reported its first step: `step`; if the command reports them, `resumed`, the"
        " step of its checkpoint, `restore_s`, the seconds it took to read that, and `startup`,"
        " the other parts of its start in seconds",
    ),
    (
        "attempt.saved",
        "attempt step",
        "{attempt} step {step}",
        "a durable checkpoint covers `step`; at most once a minute, later more rarely;"
        " `best_step` and `milestone` if the command keeps such checkpoints; if it reports them,"
        " `saves`, how many this attempt wrote, `save_blocked_s`, the seconds in which training"
        " stood still for all of them, and `save_took_s`, those until one is durable; `total`, the"
        " steps of the run, and `step_s`, how long one takes",
    ),
    (
        "attempt.stopping",
        "attempt why grace_s",
        "{attempt}",
        "the attempt is being stopped: `grace_s` between TERM and KILL; `last_at` is its last sign"
        " of life until then, `node_fault` says that its node is the cause",
    ),
    (
        "attempt.ended",
        "attempt verdict",
        "{attempt} {verdict} {host} {exit}",
        "how the attempt ended, for all hosts at once: `verdict` is success, failure, preempted,"
        " node fault, stopped, stalled or lost; `host` failed first, with `exit` and its last"
        " `lines`, and `finding` is the [known failure](failures.md) that they show; `step` is the"
        " latest that was reported, `last_at` the last sign of work,"
        " `saved`, `best_step`, `milestone` and `saves` its checkpoints, as in `attempt.saved`",
    ),
    (
        "attempt.stacks",
        "attempt file",
        "{attempt} {file}",
        "the stack traces of its processes are in `file`",
    ),
    (
        "map.started",
        "items count",
        "{count} items",
        "`herd map` submitted items: their number is `count`, their digest `items`. If the map goes"
        " on, `made`, `complete` and `again` say how far it is and which items run again",
    ),
    (
        "map.items",
        "items first texts",
        "from item {first}",
        "the items themselves, many in one event: `texts`, the first of which has number `first`",
    ),
    (
        "map.ended",
        "complete failed exit",
        "",
        "all items have ended: how many are `complete` and `failed`, and the greatest `exit`",
    ),
    (
        "trial.created",
        "trial params run_id",
        "trial {trial}",
        "a sweep has another trial: `params`, and `run_id`, its RUN_ID; `metric` and `direction`"
        " judge it. The trials of a map are its items",
    ),
    (
        "trial.assigned",
        "trial resumed usage",
        "trial {trial}",
        "a free slot works on it: `resumed` if it has run before, `usage` is what it has used of"
        " its retry limits",
    ),
    (
        "trial.files_moved",
        "bid run_id folder count",
        "{count} to {folder}",
        "before another trial, or item, begins on the node: the `count` files and folders that"
        " the one with `run_id` wrote in the working folder were moved to `folder` on the host."
        " If its `outputs` are fetched, they are removed, without an event",
    ),
    (
        "trial.waiting",
        "trial usage why",
        "trial {trial}",
        "its node is gone and nothing runs it: it continues on the next free slot, before any new"
        " trial",
    ),
    (
        "trial.reported",
        "trial step value",
        "trial {trial}",
        "its metric is `value` at `step`; null is not a number. At most every 5 s, later more"
        " rarely, and the last before its end",
    ),
    (
        "trial.ended",
        "trial outcome why",
        "trial {trial} {outcome}",
        "the trial is over: `outcome` is complete, pruned or failed; its last report is its value;"
        " `exit` and the last `lines` of a failed item",
    ),
    (
        "host.invalid_data",
        "host problem count",
        "",
        "a host, or a script on it, sent data that makes no sense, `count` times so far: it is"
        " counted and ignored",
    ),
    (
        "host.unexpected_error",
        "host error",
        "",
        "data from a host led to an unexpected `error`: that host alone is left alone for a while",
    ),
    (
        "log.removed",
        "log",
        "{log}",
        "the job's logs exceeded the limit on this machine: its oldest, `log`, was deleted",
    ),
    (
        "log.truncated",
        "host attempt",
        "",
        "the log of `attempt` on `host` exceeded the limit on this machine, of which only its end"
        " is kept, or waits there for room on this machine's disk",
    ),
    (
        "engine.started",
        "",
        "pid {pid} on {host}",
        "an engine took the lease: `who`, `pid`, `host`, `version`, `epoch`, and the `format` of"
        " its store",
    ),
    (
        "engine.stopped",
        "",
        "",
        "the engine released the lease; `read` is the number of the last event it knew;"
        " `code` is rest if nothing was left to do, gone if its"
        " simulated world was gone, moved if it continues with that world at another address",
    ),
    (
        "engine.crashed",
        "why",
        "{count} in a row",
        "the engine ended unexpectedly: `count` in a row; the next one waits `retry_in_s`",
    ),
    (
        "engine.deletions_paused",
        "why",
        "",
        "nothing is deleted for now: too many nodes are silent or missing at once",
    ),
    ("engine.deletions_resumed", "", "", "deletions are allowed again"),
    (
        "engine.problem",
        "message",
        "{message}",
        "a problem that needs a person; work continues; `code` is store if the store can't be used",
    ),
    (
        "orphan.found",
        "bid zone",
        "{bid} in {zone}",
        "the cloud shows a node or request of ours that belongs to no job: `state`, `per_hour`",
    ),
    ("orphan.gone", "bid", "{bid}", "it is no longer there, or belongs to a job now"),
    (
        "notify.gave_up",
        "receiver why",
        "{receiver}",
        "messages to a receiver could not be sent and are given up: how many `notes`",
    ),
    (
        "notify.withheld",
        "receivers engine",
        "{engine}",
        "the `engine` does not use some `receivers` of a job that another account has submitted:"
        " `code` is command or others; none: it uses all again",
    ),
    (
        "store.set_aside",
        "",
        "",
        "the store was damaged: `file`; this one is its backup, made at `backup_at`, with `jobs`;"
        " without a sound backup it is blank",
    ),
    (
        "store.recovered",
        "",
        "",
        "what the cloud shows and the damaged store did not know was added: `bids`",
    ),
)
EVENT_KINDS: Mapping[str, EventKind] = {
    name: EventKind(name=name, facts=frozenset(facts.split()), line=line, meaning=meaning)
    for name, facts, line, meaning in _KINDS
}
#: Hidden from summaries, and pruned from an old log.
FREQUENT_KINDS = frozenset(
    "attempt.saved bid.accepted bid.missing bid.reappeared trial.files_moved trial.reported".split()
)


def has_required_facts(event: HistoryEvent) -> bool:
    """Whether it has the facts of its kind; an unknown kind, of a newer herd, requires none."""
    kind = EVENT_KINDS.get(event.kind)
    return kind is None or kind.facts <= event.facts.keys()
