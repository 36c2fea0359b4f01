"""The table of a job's fields: files are read, compared and described by it."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from math import inf
from typing import Any

from tpuherd.jobfile.bucket_scan import BUCKET
from tpuherd.jobfile.cluster_field import CLUSTER, CLUSTER_MEANS
from tpuherd.jobfile.deadline_types import DEADLINE
from tpuherd.jobfile.egress_types import DAILY, LOCATION, RATE
from tpuherd.jobfile.head_start_field import HEAD_START, HEAD_START_MEANS
from tpuherd.jobfile.image_field import IMAGE, IMAGE_MEANS
from tpuherd.jobfile.job_spec import DIRECT, QUEUED, JobSpec, NodeRetention, Retry, Secret
from tpuherd.jobfile.joined_fields import NETWORK, RESOURCE, STALL
from tpuherd.jobfile.nfs_folders import NFS_FOLDERS
from tpuherd.jobfile.notify_fields import NOTIFY
from tpuherd.jobfile.sweep_fields import SEARCH
from tpuherd.jobfile.value_types import (
    AMOUNT,
    COMMAND,
    FLAG,
    PLAIN,
    SHELL,
    ReportMistake,
    ValueType,
    choice_type,
    duration_type,
    integer_type,
    list_type,
    mapping_type,
    record_type,
    show_value,
    suggest_name,
    text_type,
)

TIERS = ("spot", "preemptible", "on-demand", "reserved")
NAME_MAX = 40
COPIES_MAX = 10_000
SLICES_MAX = 256
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
LABEL = r"[a-z0-9_-]{0,63}"
SOURCES = ("env", "file", "command")


class ChangeImpact(StrEnum):
    """What must be replaced before a changed field takes effect."""

    NODE = "node"  #: a new node
    ATTEMPT = "attempt"  #: a new attempt on the same node
    NOTHING = "nothing"


def read_secrets(value: Any, wrong: ReportMistake) -> tuple[Secret, ...] | None:
    """Accept a list of names, or a mapping from names to sources."""
    if isinstance(value, list | tuple | str):
        names = [value] if isinstance(value, str) else value
        value = {name if isinstance(name, str) else show_value(name): None for name in names}
    named = mapping_type(VARIABLE, "a variable's name", SOURCE).read(value, wrong)
    if named is None:
        return None
    return tuple(
        Secret(name=name, source=source, value=it or name)
        for name, (source, it) in sorted(named.items())
    )


def read_source(value: Any, wrong: ReportMistake) -> tuple[str, str] | None:
    """Return (source, value); without a value, the variable of the same name."""
    if value is None:
        return ("env", "")
    if not isinstance(value, Mapping) or len(value) != 1:
        wrong("write where it comes from: {env: NAME}, {file: PATH} or {command: TEXT}", ())
        return None
    source, it = next(iter(value.items()))
    if source not in SOURCES:
        wrong(f"not a known source: {suggest_name(str(source), SOURCES)}", (str(source),))
        return None
    if not isinstance(it, str) or not it.strip():
        wrong(f"should be text, not {show_value(it)}", (str(source),))
        return None
    return (str(source), it)


SOURCE_SCHEMA: Mapping[str, Any] = {
    "anyOf": [{"type": "null"}, *({
        "type": "object", "additionalProperties": False, "required": [source],
        "properties": {source: {"type": "string"}},
    } for source in SOURCES)],
}  # fmt: skip
SOURCE = ValueType(read=read_source, schema=SOURCE_SCHEMA)
SECRETS = ValueType(
    read=read_secrets,
    schema={"anyOf": [
        {"type": "string", "pattern": f"^{VARIABLE}$"},
        {"type": "array", "items": {"type": "string", "pattern": f"^{VARIABLE}$"}},
        {"type": "object", "additionalProperties": SOURCE_SCHEMA},
    ]},
    write=lambda secrets: {one.name: {one.source: one.value} for one in secrets},
)  # fmt: skip


def read_python(value: Any, wrong: ReportMistake) -> str | None:
    """Accept a version as text: YAML reads a bare 3.10 as the number 3.1."""
    if isinstance(value, float):
        wrong("write the version in quotes, such as '3.11': YAML reads 3.10 as 3.1", ())
    elif not isinstance(value, str) or not VERSION.fullmatch(value):
        wrong(f"{show_value(value)} is not a version of Python 3 such as '3.11' or '3.11.9'", ())
    else:
        return value
    return None


VERSION = re.compile(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?")
PYTHON = ValueType(read=read_python, schema={"type": "string", "pattern": f"^{VERSION.pattern}$"})
FATE = duration_type(delete=0.0, keep=inf)
TIMES = integer_type(0, 1_000_000, endless="unlimited")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobField:
    """One field: its meaning, the values it accepts, and what a change to it requires."""

    name: str
    kind: ValueType
    means: str
    example: str
    needs: ChangeImpact = ChangeImpact.NOTHING

    @property
    def default(self) -> Any:
        """The value if the field is absent; MISSING if the field is required."""
        found = next(one for one in fields(JobSpec) if one.name == self.name)
        return found.default if found.default_factory is MISSING else found.default_factory()


def job_field(
    name: str, kind: ValueType, example: str, means: str, needs: ChangeImpact = ChangeImpact.NOTHING
) -> JobField:
    return JobField(name=name, kind=kind, means=means, example=example, needs=needs)


NODE, ATTEMPT = ChangeImpact.NODE, ChangeImpact.ATTEMPT
FIELDS: Mapping[str, JobField] = {one.name: one for one in (
    job_field(
        "name",
        text_type(r"[a-z]([a-z0-9-]*[a-z0-9])?", "a name: a-z, 0-9 and -, a letter first"),
        "gpt",
        f"Name of the job. Up to {NAME_MAX} of a-z, 0-9 and -, starting with a letter and not"
        " ending in - and a number: `gpt-0` is the name of its first slot.",
    ),
    job_field(
        "accelerator", list_type(text_type(words="a type such as v4-32")), "v4-32",
        "TPU type, such as v4-32; or several, the best first.", NODE,
    ),
    job_field(
        "runtime",
        list_type(text_type(r"[a-z0-9][a-z0-9._-]*", "a runtime version"), none=True),
        "tpu-ubuntu2204-base",
        "Software version of the TPU VM. Of several, each type uses the first compatible one."
        " Default: the image that Google documents for the type, `tpu-ubuntu2204-base` for v2 to"
        " v4.", NODE,
    ),
    job_field(
        "zones",
        list_type(
            text_type(r"[a-z]+-[a-z]+[0-9]+-[a-z]", "a zone such as us-central2-b"), empty="any"
        ),
        "any",
        "Zones where the job may run, or `any`. That is all zones that your grants allow, near"
        " the job's buckets.",
    ),
    job_field(
        "tier", list_type(choice_type(*TIERS)), "spot",
        "Pricing tier: spot, preemptible, on-demand, reserved. Of several, the first is"
        " preferred.",
    ),
    job_field(
        "copies", integer_type(1, COPIES_MAX), "3",
        "Nodes that each run the command on their own.",
    ),
    job_field(
        "slices", integer_type(1, SLICES_MAX), "2",
        "Nodes that run the command together (multislice).", NODE,
    ),
    job_field(
        "workdir", text_type(words="a folder"), ".",
        "Folder to ship to all hosts; the command runs in it. What git ignores is left out. It is"
        " relative to the job file.",
    ),
    job_field(
        "repo", text_type(r"[^\s-]\S*", "a repository such as https://example.com/x.git@main"),
        "https://example.com/x.git@main",
        "Git repository to use instead of a folder. It may end in @ and a commit, tag or branch.",
    ),
    job_field(
        "python", PYTHON, "'3.11'",
        "Python version of the job's environment, in quotes. If the image has another version, uv"
        " downloads this one. Default: the image's own.", ATTEMPT,
    ),
    job_field(
        "requirements",
        text_type(r"[^/~\s-][^\0]*", "a file in the shipped folder, such as requirements.txt"),
        "requirements.txt",
        "File of the shipped code that lists packages, or `uv.lock` for a project of uv. herd"
        " installs them once, in an environment of their own, and hosts pass it on to each other;"
        " setup and the command use it: docs/howto/environments.md.", ATTEMPT,
    ),
    job_field(
        "nfs", NFS_FOLDERS, "{/data: '10.0.0.2:/share'}",
        "Folders that all hosts share by NFS, each with its server: `ADDRESS:/path`, or `w0` for a"
        " folder on the disk of worker 0, which is deleted with the node. They are mounted before"
        " setup, on every new node and after each reboot: docs/howto/nfs.md.", ATTEMPT,
    ),
    job_field(
        "setup", list_type(SHELL, repeats=True, none=True), "pip install -r requirements.txt",
        "Shell commands that prepare a host. One, or a list of steps. A step that succeeded on a"
        " host runs there again only if the step or a file it depends on has changed.", ATTEMPT,
    ),
    job_field(
        "run", COMMAND, "python3 train.py",
        "Command to run on all hosts of a node at once: text for the shell, or a list of"
        " arguments.", ATTEMPT,
    ),
    job_field("cluster", CLUSTER, "ray", CLUSTER_MEANS, ATTEMPT),
    job_field("image", IMAGE, "docker://python:3.12", IMAGE_MEANS, ATTEMPT),
    job_field(
        "env", mapping_type(VARIABLE, "a variable's name", PLAIN), "{LR: 0.1}",
        "Environment variables for the command and its setup.", ATTEMPT,
    ),
    job_field(
        "secrets", SECRETS, "[WANDB_API_KEY]",
        "Environment variables for the command and its setup whose values are kept out of files,"
        " logs and events: a list of names from your environment, or each name with its source:"
        " `{env: NAME}`, `{file: PATH}` or `{command: TEXT}`.", ATTEMPT,
    ),
    job_field(
        "checkpoint",
        text_type(
            r"(gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/.*)?|[~/].*)",
            "a place such as gs://bucket/path",
        ),
        "gs://bucket/gpt",
        "Where the script saves: it reads HERD_CHECKPOINT.", ATTEMPT,
    ),
    job_field(
        "profiler", FLAG, "true",
        "Have the script start JAX's profiler server, which `herd profile` needs, if it uses"
        " `tpuherd_host.train`. It costs nothing until a trace is taken:"
        " docs/howto/performance.md.", ATTEMPT,
    ),
    job_field("head_start", HEAD_START, "[boot]", HEAD_START_MEANS),
    job_field(
        "buckets", mapping_type(BUCKET, "a bucket's name", LOCATION), "{t5-data: US}",
        "Locations of buckets. herd finds every `gs://` in the job and in the files that `run`"
        " names, and looks its location up; state it here where herd can't: a region, a"
        " multi-region or dual-region, or two regions joined by +. `ignore`: the job does not use"
        " this bucket.",
    ),
    job_field(
        "data_rate", RATE, "200MB/s",
        "How much data each host is assumed to read from buckets, for the estimate of what it"
        " costs from another region. Default: 100MB/s.",
    ),
    job_field(
        "egress_budget", DAILY, "$50/day",
        "The most that reading and writing buckets of other regions may cost a day, as estimated"
        " for all copies together. By default nodes must be near the buckets. `unlimited`: no"
        " limit.",
    ),
    job_field(
        "outputs",
        list_type(
            text_type(r"[^/~\s][^\0]*", "a path relative to the command's folder"), none=True
        ),
        "[results, '*.csv']",
        "Paths to bring back before a node is deleted. They are relative to the command's folder;"
        " patterns are allowed.",
    ),
    job_field(
        "retry", record_type(Retry, failures=TIMES, preemptions=TIMES, stalls=TIMES),
        "{failures: 3, preemptions: unlimited, stalls: 3}",
        "How often to restart the command after it failed, was preempted or stalled. The example"
        " shows the defaults. The count of failures starts over when a new checkpoint is saved.",
    ),
    job_field(
        "stall", STALL, "{step: 10m, first: 45m}",
        "Restart the command after `step` without log output or a step, or after 20 times the"
        " usual time of a step if that is longer. `first` is the limit until the first step, which"
        " takes longer. The example shows the defaults; `never`: no limit. A plain duration is"
        " `step`.",
    ),
    job_field(
        "grace", duration_type(0.0), "30s",
        "How long the command may take to end after it is asked to stop.",
    ),
    job_field(
        "max_lifetime", duration_type(1.0), "3d", "End the job this long after its first start.",
    ),
    job_field(
        "deadline", DEADLINE, "48h",
        "When the job is to be done: a duration from its submission on, or a time such as"
        " `2026-11-27T18:00Z`. herd uses the cheap ones of the `tier`s, and on-demand as far as the"
        " deadline demands it: docs/howto/deadlines.md.",
    ),
    job_field(
        "work", duration_type(60.0), "20h",
        "How long the command needs on nodes that work without a break, for `deadline`. What the"
        " script reports of its steps counts for more. Default: half of the time to the deadline.",
    ),
    job_field(
        "idle_timeout", duration_type(1.0, never=inf), "2h",
        "Give a node back on which nothing has run for this long: no attempt of the job, and no"
        " command of `herd exec` or `herd ssh`. You are warned after an hour. Default: 24h;"
        " `never`: keep it.",
    ),
    job_field(
        "max_cost", AMOUNT, "100",
        "End the job when all copies together have cost this many dollars at list prices.",
    ),
    job_field(
        "max_cost_per_hour", AMOUNT, "12.50",
        "The most that all copies together may cost, in dollars per hour. Offers that cost more,"
        " or whose price is unknown, are not requested.",
    ),
    job_field(
        "node", record_type(NodeRetention, done=FATE, failed=FATE), "{done: delete, failed: 30m}",
        "What happens to the node when the job is done or has failed: `delete`, `keep`, or a"
        " duration to keep it for. Both default to `delete`.",
    ),
    job_field(
        "patience", duration_type(1.0), "10m",
        "After this long without a node, also request the next of the accelerators and tiers.",
    ),
    job_field(
        "priority", choice_type("low", "normal", "high"), "high",
        "Where a quota is full: a job of a higher priority may take a node from one of a lower"
        " priority of the same user, which saves and waits; docs/howto/lab.md.",
    ),
    job_field(
        "request", choice_type(QUEUED, DIRECT), QUEUED,
        "Request nodes as queued resources, or create them directly.",
    ),
    job_field(
        "exact", FLAG, "true",
        "Make one request at a time, for tools that depend on a node's name.",
    ),
    job_field(
        "node_name", text_type(RESOURCE, "a node's name: a-z, 0-9 and -"), "levanter1",
        "The node's exact name, for tools that expect it; several nodes are called NAME-0, NAME-1"
        " and so on. Nodes are then requested as with `exact`.", NODE,
    ),
    job_field(
        "reservation", text_type(RESOURCE, "the name of a reservation"), "my-reservation",
        "Reservation to use, with tier reserved.", NODE,
    ),
    job_field(
        "service_account", text_type(r"[^\s@]+@[^\s@]+\.[^\s@]+", "an account's e-mail address"),
        "trainer@my-project.iam.gserviceaccount.com", "Service account of the node.", NODE,
    ),
    job_field(
        "network", NETWORK,
        "{name: default, subnetwork: default, external_ips: true, tags: [ssh]}",
        "Network and subnetwork of the node, whether hosts have external IP addresses (by default"
        " they have), and network tags. A plain name is that of the network.", NODE,
    ),
    job_field(
        "labels",
        mapping_type(
            r"[a-z]" + LABEL.replace("63", "62"), "a label's name",
            text_type(LABEL, "a label's value: a-z, 0-9, _ and -"),
        ),
        "{team: vision}", "Labels of the node.", NODE,
    ),
    job_field(
        "data_disks",
        list_type(
            text_type(
                r"projects/[^/\s]+/zones/[^/\s]+/disks/[^/\s]+",
                "a disk such as projects/P/zones/Z/disks/D",
            ),
            none=True,
        ),
        "projects/my-project/zones/us-central2-b/disks/images",
        "Disks to attach, by their full resource names.", NODE,
    ),
    job_field(
        "metadata", mapping_type(r"[A-Za-z0-9_-]{1,128}", "a metadata key", PLAIN),
        "{startup-script: 'echo hello'}", "Metadata of the node.", NODE,
    ),
    job_field(
        "notify", NOTIFY, "{url: {env: SLACK_URL}, on: [done, gave_up]}",
        "Who is told when the job is done, fails, waits long, nears its cost limit and so on: one"
        " receiver, or a list of them; `[]`: nobody. Addresses are secrets: docs/howto/notify.md."
        " Default: the receivers of `herd notify set`.",
    ),
    job_field(
        "sweep", SEARCH,
        "{method: random, parameters: {lr: {min: 1e-5, max: 1e-2, log: true}}, trials: 20}",
        "Try many parameters: each trial runs the command on one of the `copies`;"
        " docs/howto/sweeps.md describes the fields of a sweep.",
    ),
)}  # fmt: skip

#: Field names of other tools, and our names for them.
ALSO = {
    "command": "run", "cmd": "run", "tpu": "accelerator", "tpu_type": "accelerator",
    "type": "accelerator", "accelerators": "accelerator", "accelerator_type": "accelerator",
    "count": "copies", "replicas": "copies", "num_nodes": "copies", "zone": "zones",
    "region": "zones", "envs": "env", "environment": "env", "container": "image", "docker": "image",
    "image_id": "image", "version": "runtime", "runtime_version": "runtime", "num_slices": "slices",
    "use_spot": "tier", "preemptible": "tier", "capacity_type": "tier", "budget": "max_cost",
    "bucket": "checkpoint", "egress": "egress_budget", "throughput": "data_rate",
    "python_version": "python", "requirements_file": "requirements", "pip": "requirements",
    "dependencies": "requirements", "profile": "profiler", "profiling": "profiler",
    "file_mounts": "workdir", "code": "workdir", "git": "repo", "timeout": "max_lifetime",
    "done_by": "deadline", "due": "deadline", "finish_by": "deadline", "duration": "work",
    "disks": "data_disks", "mounts": "nfs", "filestore": "nfs", "notifications": "notify",
    "alerts": "notify", "webhook": "notify", "slack": "notify", "event_callback": "notify",
    "tpu_name": "node_name", "retries": "retry", "max_retries": "retry",
}  # fmt: skip


def job_json_schema() -> dict[str, Any]:
    """Return the table as a JSON Schema, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A job of tpuherd",
        "type": "object",
        "additionalProperties": False,
        "required": [one.name for one in FIELDS.values() if one.default is MISSING],
        "properties": {
            one.name: {"description": one.means, **one.kind.schema} for one in FIELDS.values()
        },
    }
