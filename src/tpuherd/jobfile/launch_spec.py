"""Builds what the agents of a slot run, from the job. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from tpuherd.jobfile.code_calls import CodeCalls, is_one_wandb_run
from tpuherd.jobfile.environment_key import ReadText, find_environment
from tpuherd.jobfile.image_field import image_name
from tpuherd.jobfile.read_job import JobSpec
from tpuherd.model.node_spec import EnvironmentSpec, LaunchSpec
from tpuherd.model.slots_and_plan import Slot
from tpuherd.model.stored_job import StoredJob
from tpuherd.targets import CODE_ROOT

STAMP_LENGTH = 24
STAGGER_FROM = 16  #: hosts; more at once overload a package server
STAGGER_S, STAGGER_S_MAX = 0.5, 30.0  #: per host, and in total
#: Files that pin package versions; a change of one affects every install step.
LOCKS = re.compile(
    r"(?:.*/)?(?:[\w.-]*requirements[\w.-]*\.(?:txt|in)|constraints[\w.-]*\.txt|pyproject\.toml"
    r"|setup\.(?:py|cfg)|uv\.lock|poetry\.lock|pdm\.lock|Pipfile(?:\.lock)?|pixi\.(?:toml|lock)"
    r"|conda-lock\.yml|environment\.ya?ml|\.python-version|package(?:-lock)?\.json)"
)
#: Programs known to read no other files of the code.
KNOWN = frozenset(
    "pip pip3 uv uvx pipx conda mamba micromamba poetry pdm apt apt-get dpkg curl wget echo export"
    " mkdir touch true test cd ln chmod sysctl ulimit git".split()
)
PROFILER_PORT = 9012  #: of JAX's profiler server; the next free one if a program has it
BEFORE = frozenset(("sudo", "env", "nice", "time", "exec", "command", "-E", "-n", "-y", "-m"))
APT = re.compile(r"(?:^|[\s;&|(])apt(?:-get)?\s")
#: Prepended to a step that uses these tools, which an image may lack.
PRESENCE = {
    "pip": 'command -v pip >/dev/null || pip() { python3 -m pip "$@"; }',
    "pip3": 'command -v pip3 >/dev/null || pip3() { python3 -m pip "$@"; }',
    "uv": 'PATH="$PATH:$HOME/.local/bin"; command -v uv >/dev/null ||'
    " python3 -m pip install --quiet --user uv",
}
#: Prepended to a step that uses apt: it then waits while the host's first updates hold its lock.
APT_CONF = "/etc/apt/apt.conf.d/90tpuherd"
APT_WAITS = f"echo 'DPkg::Lock::Timeout 600;' | sudo -n tee {APT_CONF} >/dev/null 2>&1"
FETCHES = re.compile(r"(?:^|[\s;&|(/])(?:pip3?|uv|apt|apt-get|conda|mamba|poetry|pdm)\s")


def build_launch_spec(
    job: JobSpec,
    slot: Slot,
    stored: StoredJob,
    files: Mapping[str, str] | None = None,
    read: ReadText = lambda path: "",
    calls: CodeCalls | None = None,
) -> LaunchSpec:
    """Build the launch spec of a slot. `files`: content id of each file of the code; None: not
    known. `read` returns the text of one of them. `calls`: what the code calls; None: not known.
    """
    dest = f"{CODE_ROOT}/{job.name}"
    run = job.run or ""
    environment = find_environment(job, stored, files, read)
    return LaunchSpec(
        shell=run if isinstance(run, str) else "",
        argv=() if isinstance(run, str) else run,
        cluster=job.cluster,
        image=image_name(job.image),
        mounts=mounted_folders(job) if job.image else (),
        env={**slot_env(job, slot, stored), **job.env},
        secrets=tuple(secret.name for secret in job.secrets),
        setup=setup_steps(job, stored.snapshot, files, environment),
        environment=environment,
        nfs=job.nfs,
        dest=dest if stored.snapshot else "",
        directory=dest if stored.snapshot else "",
        outputs=job.outputs,
        grace_s=slot.limits.grace_s,
        notice_grace_s=slot.limits.notice_grace_s,
        fetches_checkpoint="checkpoint" in job.head_start,
        wandb=is_one_wandb_run(job, calls if stored.snapshot else CodeCalls()),
    )


def mounted_folders(job: JobSpec) -> tuple[str, ...]:
    """Return the folders that the job names, which its container has besides the usual ones."""
    checkpoint = () if job.checkpoint.startswith("gs://") else (job.checkpoint,)
    return tuple(filter(None, (*job.nfs, *checkpoint)))


def slot_env(job: JobSpec, slot: Slot, stored: StoredJob) -> dict[str, str]:
    """Return the variables that stay the same over all attempts of a slot."""
    run = job.env.get("RUN_ID") or run_id(slot.name, stored.made_at)
    variables = {
        "RUN_ID": run,
        "HERD_RUN_ID": run,
        "HERD_JOB": job.name,
        "HERD_SLOT": slot.name.rpartition("-")[2],
        "HERD_SLOTS": str(job.copies),
        "PYTHONUNBUFFERED": "1",  # Python keeps what it prints to a pipe until it has 8 kB
    }
    if job.checkpoint:
        variables["HERD_CHECKPOINT"] = job.checkpoint
    if job.profiler:
        variables["HERD_PROFILER_PORT"] = str(PROFILER_PORT)
    return variables


def run_id(slot: str, made_at: float) -> str:
    """Return an id that all attempts share; it changes if the job is removed and created again."""
    word = sha256(f"{slot} {made_at!r}".encode()).hexdigest()[:8]
    return f"{slot}-{word}"


def setup_steps(
    job: JobSpec,
    snapshot: str,
    files: Mapping[str, str] | None,
    environment: EnvironmentSpec | None = None,
) -> tuple[Mapping[str, Any], ...]:
    """Return the steps as the agent takes them, each with a stamp that lets the agent skip it.

    A step depends on the steps before it, on the variables, and on the files that it may read.
    """
    steps: list[Mapping[str, Any]] = []
    before = key = environment.key if environment else ""
    for number, text in enumerate(job.setup, 1):
        depends = [before, text, *(f"{key}={value}" for key, value in sorted(job.env.items()))]
        depends += step_inputs(text, snapshot, files)
        before = sha256("\0".join(depends).encode()).hexdigest()[:STAMP_LENGTH]
        steps.append({
            "name": f"{number} {text.splitlines()[0][:60]}",
            "shell": with_installers(text),
            "env": dict(job.env),
            "hash": before,
            **({"directory": f"{CODE_ROOT}/{job.name}"} if snapshot else {}),
            **({"environment": key} if key else {}),
        })  # fmt: skip
    return tuple(steps)


def with_installers(text: str) -> str:
    """Make sure that the step finds its package installer, and that apt waits for its lock."""
    used = set(re.findall(r"(?:^|[\s;&|(])(pip3?(?=\s)|uv(?=x?\s))", text))
    before = [line for tool, line in PRESENCE.items() if tool in used]
    before += [APT_WAITS] if APT.search(text) else []
    return "\n".join([*before, text])


def step_inputs(text: str, snapshot: str, files: Mapping[str, str] | None) -> list[str]:
    """Return the files of the code that a step may read; the whole snapshot if that is unknown."""
    if not snapshot:
        return []
    if files is None or not all(word in KNOWN for word in find_programs(text)):
        return [snapshot]
    words = set(re.split(r"[\s'\"=;&|()]+", text))
    named = {word.removeprefix("./") for word in words}
    return [f"{path}:{id}" for path, id in sorted(files.items())
            if path in named or LOCKS.fullmatch(path)]  # fmt: skip


def find_programs(text: str) -> Iterable[str]:
    """Return the programs that shell text runs, as far as the text shows."""
    if re.search(r"[`$<]|\beval\b|\bsource\b", text):
        yield "?"
    for command in re.split(r"&&|\|\||[;|\n&]", text):
        words = [word for word in command.split() if word not in BEFORE and "=" not in word]
        if not words:
            continue
        name = words[0].rpartition("/")[2]
        python = re.fullmatch(r"python[0-9.]*", name) and len(words) > 1 and "-m" in command.split()
        yield words[1] if python else name


def stagger_steps(
    steps: Sequence[Mapping[str, Any]], worker: int, workers: int
) -> list[Mapping[str, Any]]:
    """Delay the steps of one of many hosts that download packages."""
    if workers < STAGGER_FROM:
        return list(steps)
    spread_s = min(workers * STAGGER_S, STAGGER_S_MAX)
    delay_s = round(spread_s * worker / workers, 2)
    first = next((at for at, one in enumerate(steps) if FETCHES.search(one["shell"])), -1)
    return [{**one, "delay_s": delay_s} if at == first else one for at, one in enumerate(steps)]
