"""The metrics that herd gives to Prometheus: their names, labels and meanings."""

from collections.abc import Mapping
from dataclasses import dataclass

GAUGE, COUNTER = "gauge", "counter"


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricRow:
    """One metric: a row of the table that the code and the documentation share."""

    name: str
    kind: str  #: gauge or counter
    labels: tuple[str, ...]
    meaning: str


_KINDS = (
    ("tpuherd_info", GAUGE, "version", "Always 1; the version of herd is its label"),
    ("tpuherd_engine_up", GAUGE, "", "1 if an engine runs, else 0"),
    ("tpuherd_engine_wanted", GAUGE, "", "1 if a job needs an engine: one is neither stopped nor"
     " over, or still has nodes"),
    ("tpuherd_engine_lease_age_seconds", GAUGE, "", "Time since the running engine began to lead;"
     " absent without an engine"),
    ("tpuherd_problems", GAUGE, "source", "1 while herd has a problem with this: cloud, store,"
     " engine or notify"),
    ("tpuherd_orphans", GAUGE, "", "Nodes and requests in the cloud that herd created and no job"
     " uses, as the engine last saw"),
    ("tpuherd_job_slots", GAUGE, "job phase", "Slots of the job in each phase, as herd ls shows"
     " them"),
    ("tpuherd_job_slots_wanted", GAUGE, "job", "Slots that the job asks for"),
    ("tpuherd_job_goodput_ratio", GAUGE, "job", "Share of the time that made progress, 0 to 1;"
     " absent before the first attempt, and if the script reports no steps"),
    ("tpuherd_job_state_seconds", GAUGE, "job state", "Time of all slots in each state of"
     " docs/reference/events.md; later losses move productive time to wasted"),
    ("tpuherd_job_cost_dollars_total", COUNTER, "job", "Cost so far at list prices"),
    ("tpuherd_job_cost_dollars_per_hour", GAUGE, "job", "What its nodes cost an hour now, at list"
     " prices"),
    ("tpuherd_job_cost_limit_dollars", GAUGE, "job", "Its max_cost, if it has one"),
    ("tpuherd_job_step", GAUGE, "job", "The furthest step on record"),
    ("tpuherd_job_saved_step", GAUGE, "job", "The step of its furthest durable checkpoint"),
    ("tpuherd_job_last_step_age_seconds", GAUGE, "job", "Time since a step was last recorded, of"
     " the running slot where that is longest ago; recorded with each checkpoint, at most once a"
     " minute"),
    ("tpuherd_job_steps_lost_total", COUNTER, "job", "Steps done again after losses"),
    ("tpuherd_job_attempts_total", COUNTER, "job verdict", "Attempts that ended, by how they"
     " ended"),
    ("tpuherd_job_preemptions_total", COUNTER, "job", "Attempts that a preemption ended"),
    ("tpuherd_job_queue_wait_seconds", GAUGE, "job", "How long the slot that waits longest has"
     " waited for capacity; 0 if none waits"),
    ("tpuherd_nodes", GAUGE, "job stage", "Nodes and requests for nodes of the job, by stage"),
    ("tpuherd_chip_hbm_used_bytes", GAUGE, "job host chip", "Memory in use on the chip"),
    ("tpuherd_chip_hbm_total_bytes", GAUGE, "job host chip", "Memory of the chip"),
    ("tpuherd_chip_duty_ratio", GAUGE, "job host chip", "Share of the time in which the chip"
     " computes, 0 to 1"),
    ("tpuherd_host_cpu_ratio", GAUGE, "job host", "Share of the host's processors in use, 0 to 1"),
    ("tpuherd_host_memory_used_bytes", GAUGE, "job host", "Memory of the host in use"),
    ("tpuherd_host_disk_free_bytes", GAUGE, "job host", "Free space on the host's disk"),
    ("tpuherd_host_sample_age_seconds", GAUGE, "job host", "Age of the host's values above"),
    ("tpuherd_hosts_summed", GAUGE, "", "Hosts that are summed under the host `other`, because"
     " there are more than 200"),
    ("tpuherd_notify_sent_total", COUNTER, "receiver", "Messages that a receiver has accepted"),
    ("tpuherd_notify_failures_total", COUNTER, "receiver", "Tries to send a message that failed"),
    ("tpuherd_notify_waiting", GAUGE, "receiver", "Notes that wait to be sent"),
)  # fmt: skip

#: By name, in the order in which they are written.
METRICS: Mapping[str, MetricRow] = {
    name: MetricRow(name=name, kind=kind, labels=tuple(labels.split()), meaning=meaning)
    for name, kind, labels, meaning in _KINDS
}
