"""JSON Schemas of what commands print, made from results.py where Python gets the same."""

from collections.abc import Mapping

from cost_schemas import COST_SCHEMAS
from notify_schemas import NOTIFY_SCHEMAS
from project_schemas import PROJECT_SCHEMAS
from schema_types import (
    COUNT,
    EVENT,
    FLAG,
    NUMBER,
    SERIES,
    TEXT,
    TEXTS,
    Schema,
    fields_of,
    list_of,
    object_of,
    or_null,
    schema_of,
)

from tpuherd import results
from tpuherd.checks.check_results import CheckStatus
from tpuherd.diagnosis.explain import FindingRole
from tpuherd.diagnosis.rule import RuleClass
from tpuherd.exports import write_export
from tpuherd.jobfile.fields import TIERS, ChangeImpact

LINE: Schema = {
    "type": "object",
    "properties": {
        "host": {**TEXT, "description": "the host that wrote it: gpt-0/w3"},
        "time": {**NUMBER, "description": "when, in seconds since 1970"},
        "port": {**TEXT, "description": "stdout, stderr, or agent: a message of its agent"},
        "text": {**TEXT, "description": "the line"},
        "base64": {**TEXT, "description": "the line, if it is not text"},
    },
    "required": ["host", "time", "port"],
    "additionalProperties": False,
}

END: Mapping[str, tuple[Schema, str]] = {
    "job": (TEXT, "its name"),
    "status": (COUNT, "the exit status"),
    "why": (TEXT, "in a sentence"),
}
PRICE = (or_null(NUMBER), "dollars an hour at list prices; null: unknown")
TIER = ({"enum": list(TIERS)}, "")
DOCUMENT = ({"type": "object"}, "the job, by the fields of a job file")
CHANGE: Mapping[str, tuple[Schema, str]] = {
    "difference": (TEXTS, "what differs from the job before"),
    "needs": (
        {"enum": [str(one) for one in ChangeImpact]},
        "what must restart: node, attempt or nothing",
    ),
}
SUMMARY: Mapping[str, tuple[Schema, str]] = {
    "slots": (TEXTS, "their names"),
    "per_hour": (
        object_of(
            {
                "least": PRICE,
                "most": PRICE,
                "unknown_in": (TEXTS, "zones without a known price"),
            }
        ),
        "dollars an hour for all slots: `least` in the cheapest zone, `most` in the dearest;"
        " `unknown_in`: zones without a known price",
    ),
    "trials": (or_null(COUNT), "total trials of a sweep; null: not a sweep"),
    **CHANGE,
}
OFFER = object_of(
    {
        "zone": (TEXT, ""),
        "type": (TEXT, ""),
        "tier": TIER,
        "runtime": (TEXT, "its image"),
        "hosts": (COUNT, "of one node"),
        "price": PRICE,
        "rank": (COUNT, "0 is requested first"),
    }
)
EGRESS = object_of(
    {
        "zone": (TEXT, ""),
        "bucket": (TEXT, "the dearest to read; empty: no bucket costs anything"),
        "location": (TEXT, "of the bucket"),
        "hosts": (COUNT, "of all nodes"),
        "bytes_per_s": (NUMBER, "the assumed rate of each host"),
        "per_gib": (or_null(NUMBER), "dollars to read a GiB; null: unknown"),
        "per_day": (or_null(NUMBER), "dollars a day for all hosts; null: unknown"),
    }
)
FINDING = object_of(
    {
        "id": (TEXT, "the rule: a [known failure](failures.md) or one of your own"),
        "class": ({"enum": [str(kind) for kind in RuleClass]}, "what kind of failure"),
        "role": (
            {"enum": [str(role) for role in FindingRole]},
            "`cause`: what failed first; `also`: another failure; `consequence`: of a lost host;"
            " `note`: harmless",
        ),
        "attempt": (TEXT, "the id of the attempt; empty: of a file"),
        "host": (TEXT, "the host or file where it shows first; empty: the only log"),
        "hosts": (TEXTS, "all that show it"),
        "line": (COUNT, "the number of the line, from 1; 0: not of a line"),
        "text": (TEXT, "the line"),
        "cause": (TEXT, "what it means"),
        "fix": (TEXT, "how to fix it"),
        "source": (TEXT, "where this is known from"),
        "evidence": (TEXT, "measured, source (read), report or assumed"),
    }
)
MADE = object_of({**fields_of(results.Submission), **SUMMARY})
TURNED = list_of(
    object_of({"job": (TEXT, "its name"), "changed": (FLAG, "false: it was already so")})
)
SET = object_of(
    {
        "job": (TEXT, "its name"),
        "revision": (COUNT, "counts the changes of the job"),
        **CHANGE,
        "document": DOCUMENT,
    }
)

CHIP = object_of({
    "host": (TEXT, "its short name: gpt-0/w3"),
    "node": (TEXT, ""),
    "zone": (TEXT, ""),
    "chip": (or_null(TEXT), "its file: /dev/accel0; null: the host did not answer, or has none"),
    "hbm_used": (or_null(COUNT), "bytes; null here and below: not known"),
    "hbm_total": (or_null(COUNT), "bytes"),
    "duty_percent": (or_null(NUMBER), "how much of the time its TensorCores were busy"),
    "bandwidth_percent": (or_null(NUMBER), "how much of the bandwidth of HBM is used"),
    "idle_s": (or_null(NUMBER), "seconds since it was last used"),
    "invalid": (TEXTS, "fields above that libtpu sent with a value that can't be true"),
    "processes": (list_of(object_of({
        "pid": (or_null(COUNT), "null: hidden from the login"),
        "user": (TEXT, ""),
        "command": (TEXT, ""),
        "task": (TEXT, "of herd that it belongs to; empty: none"),
    })), "that have the chip open"),
    "load": (or_null(NUMBER), "of the host: processes that want to run, on average of a minute"),
    "cores": (or_null(COUNT), "of the host"),
    "cpu_percent": (or_null(NUMBER), "of all processors of the host, since the last look"),
    "ram_used": (or_null(COUNT), "bytes of the host"),
    "ram_total": (or_null(COUNT), "bytes of the host"),
    "disk_free": (or_null(COUNT), "bytes on the disk of the login's home"),
    "disk_total": (or_null(COUNT), "bytes on this disk"),
    "net_in": (or_null(NUMBER), "bytes per second that the host receives"),
    "net_out": (or_null(NUMBER), "bytes per second that it sends"),
    "slot": (or_null(TEXT), "whose attempt runs on the host; null here and below: none"),
    "attempt": (or_null(COUNT), "its number"),
    "step": (or_null(COUNT), "the last step that its script reported"),
    "step_rate": (or_null(NUMBER), "steps per second"),
    "clock_ahead_s": (or_null(NUMBER), "of the host's clock, compared with this machine's"),
    "read_at": (NUMBER, "when, in seconds since 1970"),
    "age_s": (NUMBER, "how old the values are"),
    "answered": (FLAG, "whether the host answered"),
    "notice": (TEXT, "of a preemption or maintenance; empty: none"),
    "why": (TEXT, "why values are not known; empty: all are"),
})  # fmt: skip

PROCESS_STACK = object_of({
    "host": (TEXT, "its short name: gpt-0/w3"),
    "slot": (TEXT, "whose attempt it is"),
    "attempt": (TEXT, "its id"),
    "step": (or_null(COUNT), "the last step that the attempt reported on this host"),
    "pid": (or_null(COUNT), ""),
    "command": (TEXT, ""),
    "text": (TEXT, "the stacks, as py-spy, Python or the kernel writes them"),
})  # fmt: skip
PROFILE = object_of({
    "folder": (TEXT, "for TensorBoard's --logdir"),
    "hosts": (list_of(object_of({
        "host": (TEXT, "its short name: gpt-0/w3"),
        "slot": (TEXT, "whose attempt it is"),
        "file": (TEXT, "its trace on this machine"),
        "bytes": (COUNT, "of the file"),
        "step_s_before": (or_null(NUMBER), "the median time of a step; null: it is not reported"),
        "step_s_during": (or_null(NUMBER), "the same while it was traced"),
    })), "that were traced"),
})  # fmt: skip

#: By command.
READING_SCHEMAS: Mapping[str, Schema] = {
    "herd ls --json": list_of(schema_of(results.JobSummary)),
    "herd ls --nodes --json": list_of(schema_of(results.NodeSummary)),
    "herd status NAME --json": schema_of(results.JobStatus),
    "herd why NAME --json": schema_of(results.Why),
    "herd explain NAME --json": list_of(FINDING),
    "herd events --json": EVENT,
    "herd metrics NAME --json": list_of(SERIES),
    "herd logs NAME --json": LINE,
    "herd wait NAME --json": object_of({
        **END,
        "jobs": (list_of(object_of(END)), "each of the jobs"),
    }),
    "herd export jobset NAME --json": schema_of(write_export.Export),
    "herd export slurm NAME --json": schema_of(write_export.Export),
    "herd types --json": list_of(schema_of(results.TpuType)),
    "herd types --zones --json": list_of(schema_of(results.ZoneCapacity)),
    "herd engine status --json": object_of({
        "scope": (TEXT, "the project or world that it serves"),
        "running": (FLAG, "false: no engine holds the lease; the exit status is 7"),
        "pid": (or_null(COUNT), "its process id"),
        "host": (or_null(TEXT), "the machine it runs on"),
        "who": (or_null(TEXT), "the user who started it"),
        "epoch": (or_null(COUNT), "of its lease; later engines have a higher one"),
        "since": (or_null(NUMBER), "when it took the lease, in seconds since 1970"),
        "lease_until": (or_null(NUMBER), "when the lease expires unless renewed"),
        "problems": (list_of(schema_of(results.Problem)), "problems that affect all jobs"),
    }),
    "herd sweep status NAME --json": schema_of(results.SweepStatus),
    "herd sweep best NAME --json": schema_of(results.Trial),
    "herd map status NAME --json": schema_of(results.MapResult),
}  # fmt: skip

#: By command.
WRITING_SCHEMAS: Mapping[str, Schema] = {
    "herd hosts TARGET --json": list_of(
        object_of(
            {
                "host": (TEXT, "its short name: gpt-0/w3"),
                "node": (TEXT, "its node"),
                "zone": (TEXT, ""),
                "worker": (COUNT, "its number within the node, from 0"),
                "internal_ip": (TEXT, "its address within the network"),
                "external_ip": (or_null(TEXT), "its public address; null: it has none"),
            }
        )
    ),
    "herd outputs JOB --json": list_of(
        object_of(
            {
                "name": (TEXT, "slot, attempt, host and path: gpt-0/a2/w3/results/log.txt"),
                "slot": (TEXT, "gpt-0"),
                "attempt": (COUNT, "its number"),
                "host": (TEXT, "w3; with its node if the attempt ran on several"),
                "path": (TEXT, "below the place that `outputs` names"),
                "bytes": (COUNT, "its size"),
                "file": (or_null(TEXT), "where it is on this machine; null: on its host"),
            }
        )
    ),
    "herd smi --json": list_of(CHIP),
    "herd profile TARGET --stacks --json": list_of(PROCESS_STACK),
    "herd profile TARGET --json": PROFILE,
    "herd run --json": MADE,
    "herd up --json": MADE,
    "herd sweep FILE --json": MADE,
    "herd map JOB FILE --json": schema_of(results.MapResult),
    "herd run --dry-run --json": object_of({
        "job": DOCUMENT,
        "offers": (list_of(OFFER), "where a node may come from, best first"),
        "egress": (list_of(EGRESS), "what reading the job's buckets costs in each zone"),
        "granted": (FLAG, "false: herd would ask for consent first"),
        "python": (TEXTS, "what follows from the Python versions of the images"),
        **SUMMARY,
    }),
    "herd check --json": list_of(object_of({
        "check": (TEXT, "its id: see the [list of checks](checks.md)"),
        "where": (TEXT, "this machine, a project, or a host such as gpt-0/w3"),
        "status": ({"enum": [str(one) for one in CheckStatus]},
                   "skipped: it could not be looked at"),
        "found": (TEXT, "what is, in a sentence"),
        "matters": (TEXT, "why it matters; empty if all is well"),
        "remedy": (TEXT, "how to fix it; empty if all is well"),
        "fix": (TEXT, "what --fix would repair; empty: nothing"),
    })),
    "herd set NAME --json": SET,
    "herd stop NAME --json": TURNED,
    "herd resume NAME --json": TURNED,
    "herd down --json": object_of({
        "removed": (TEXTS, "the jobs that were removed"),
        "all_deleted": (FLAG, "whether the cloud was checked and nothing is left"),
        "zones": (or_null(TEXTS), "the zones that were checked"),
        "waiting_for": (TEXT, "what remained at --timeout, and why; else empty"),
    }),
    "herd gc --json": schema_of(results.Leftovers),
    "herd engine adopt --json": schema_of(results.Adoption),
    "herd engine plan --json": schema_of(results.Plan),
}  # fmt: skip

SCHEMAS = {
    **READING_SCHEMAS,
    **NOTIFY_SCHEMAS,
    **COST_SCHEMAS,
    **WRITING_SCHEMAS,
    **PROJECT_SCHEMAS,
}
