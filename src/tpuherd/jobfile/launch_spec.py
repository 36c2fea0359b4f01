"""What the agents of a slot are told to do: pure, from the job as it was wished."""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from tpuherd.jobfile.read_job import JobSpec
from tpuherd.model.node_spec import LaunchSpec
from tpuherd.model.slots_and_plan import Slot
from tpuherd.model.stored_job import StoredJob

FOLDER = "herd"  #: where code goes, from the login's home on
STAMP_LENGTH = 24
STAGGER_FROM = 16  #: hosts: so many at once are too much for one who gives packages
STAGGER_S, STAGGER_S_MAX = 0.5, 30.0  #: a host, and of all
#: What packages are chosen by: a change of one is a change of every installation.
LOCKS = re.compile(
    r"(?:.*/)?(?:[\w.-]*requirements[\w.-]*\.(?:txt|in)|constraints[\w.-]*\.txt|pyproject\.toml"
    r"|setup\.(?:py|cfg)|uv\.lock|poetry\.lock|pdm\.lock|Pipfile(?:\.lock)?|pixi\.(?:toml|lock)"
    r"|conda-lock\.yml|environment\.ya?ml|\.python-version|package(?:-lock)?\.json)"
)
#: Programs of which it is known that they read nothing else of the code. Of others it is not.
KNOWN = frozenset(
    "pip pip3 uv uvx pipx conda mamba micromamba poetry pdm apt apt-get dpkg curl wget echo export"
    " mkdir touch true test cd ln chmod sysctl ulimit git".split()
)
BEFORE = frozenset(("sudo", "env", "nice", "time", "exec", "command", "-E", "-n", "-y", "-m"))
APT = re.compile(r"(?:^|[\s;&|(])apt(?:-get)?\s")
#: What goes before a step that uses these, where an image may lack them.
PRESENCE = {
    "pip": 'command -v pip >/dev/null || pip() { python3 -m pip "$@"; }',
    "pip3": 'command -v pip3 >/dev/null || pip3() { python3 -m pip "$@"; }',
    "uv": 'PATH="$PATH:$HOME/.local/bin"; command -v uv >/dev/null ||'
    " python3 -m pip install --quiet --user uv",
}
FETCHES = re.compile(r"(?:^|[\s;&|(/])(?:pip3?|uv|apt|apt-get|conda|mamba|poetry|pdm)\s")


def build_launch_spec(
    job: JobSpec, slot: Slot, wish: StoredJob, files: Mapping[str, str] | None = None
) -> LaunchSpec:
    """The order of a slot. `files`: the content id of each of the code's; None: not known."""
    dest = f"{FOLDER}/{job.name}"
    run = job.run or ""
    return LaunchSpec(
        shell=run if isinstance(run, str) else "",
        argv=() if isinstance(run, str) else run,
        env={**slot_env(job, slot, wish), **job.env},
        secrets=tuple(secret.name for secret in job.secrets),
        setup=setup_steps(job, wish.snapshot, dest, files),
        dest=dest if wish.snapshot else "",
        directory=dest if wish.snapshot else "",
        outputs=job.outputs,
        grace_s=slot.limits.grace_s,
        notice_grace_s=slot.limits.notice_grace_s,
    )


def slot_env(job: JobSpec, slot: Slot, wish: StoredJob) -> dict[str, str]:
    """What stays the same over all attempts of a slot."""
    run = run_id(slot, wish)
    told = {
        "RUN_ID": run,
        "HERD_RUN_ID": run,
        "HERD_JOB": job.name,
        "HERD_SLOT": slot.name.rpartition("-")[2],
        "HERD_SLOTS": str(job.copies),
    }
    return {**told, **({"HERD_CHECKPOINT": job.checkpoint} if job.checkpoint else {})}


def run_id(slot: Slot, wish: StoredJob) -> str:
    """The same for every attempt; another where the job was dropped and made anew."""
    word = sha256(f"{slot.name} {wish.made_at!r}".encode()).hexdigest()[:8]
    return f"{slot.name}-{word}"


def setup_steps(
    job: JobSpec, snapshot: str, dest: str, files: Mapping[str, str] | None
) -> tuple[Mapping[str, Any], ...]:
    """Its steps as the agent takes them, each with the stamp by which it is not done again.

    A step depends on those before it, on the variables, and on the files that it may read.
    """
    steps: list[Mapping[str, Any]] = []
    before = ""
    for number, text in enumerate(job.setup, 1):
        depends = [before, text, *(f"{key}={value}" for key, value in sorted(job.env.items()))]
        depends += step_inputs(text, snapshot, files)
        before = sha256("\0".join(depends).encode()).hexdigest()[:STAMP_LENGTH]
        steps.append({
            "name": f"{number} {text.splitlines()[0][:60]}",
            "shell": with_installers(text),
            "env": dict(job.env),
            "hash": before,
            "apt": bool(APT.search(text)),
            **({"directory": dest} if snapshot else {}),
        })  # fmt: skip
    return tuple(steps)


def with_installers(text: str) -> str:
    """A step that has what it installs packages with, if the host's Python can give it that."""
    used = set(re.findall(r"(?:^|[\s;&|(])(pip3?(?=\s)|uv(?=x?\s))", text))
    return "\n".join([*(line for tool, line in PRESENCE.items() if tool in used), text])


def step_inputs(text: str, snapshot: str, files: Mapping[str, str] | None) -> list[str]:
    """What a step may read of the code: some files where it is known, else all of it."""
    if not snapshot:
        return []
    if files is None or not all(word in KNOWN for word in find_programs(text)):
        return [snapshot]
    words = set(re.split(r"[\s'\"=;&|()]+", text))
    named = {word.removeprefix("./") for word in words}
    return [f"{path}:{id}" for path, id in sorted(files.items())
            if path in named or LOCKS.fullmatch(path)]  # fmt: skip


def find_programs(text: str) -> Iterable[str]:
    """The programs that a shell's text runs, as far as can be seen; a word of its own if not."""
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
    """The steps of one host of many: those that fetch packages don't all begin at once."""
    if workers < STAGGER_FROM:
        return list(steps)
    spread_s = min(workers * STAGGER_S, STAGGER_S_MAX)
    delay_s = round(spread_s * worker / workers, 2)
    first = next((at for at, one in enumerate(steps) if FETCHES.search(one["shell"])), -1)
    return [{**one, "delay_s": delay_s} if at == first else one for at, one in enumerate(steps)]
