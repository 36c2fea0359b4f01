"""The shell lines that run a job's command under another engine."""

import re
import shlex
from collections.abc import Mapping, Sequence

from tpuherd.errors import InvalidInput
from tpuherd.jobfile.fields import VARIABLE
from tpuherd.jobfile.job_spec import JobSpec, Secret
from tpuherd.jobfile.launch_spec import with_installers
from tpuherd.jobfile.read_job import split_repository

INTERRUPTED = 75  #: stopped before its end, after a save: start it again
UNFIT = 78  #: it can't run like this: no other start helps
CODE_FOLDER = "herd-code"
#: TERM reaches the command alone: its data workers must live until it has saved.
RUN = """\
asked=0 child=
trap 'asked=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
{before}[ "$asked" = 0 ] || exit {stopped}
setsid {command} &
child=$!
[ "$asked" = 0 ] || kill -TERM "$child"
while kill -0 "$child" 2>/dev/null; do wait "$child"; done
wait "$child"
status=$?
"""


def run_lines(job: JobSpec, code: Sequence[str] = (), stopped: int = INTERRUPTED) -> str:
    """Return the lines that set up and run the job; then `status` is the command's status.

    `code`: lines before. `stopped`: the status of a host that is asked to stop before it began.
    """
    before = "".join(f"{line}\n" for line in (*code, *setup_lines(job)))
    return RUN.format(before=before, command=command_words(job), stopped=stopped)


def command_words(job: JobSpec) -> str:
    """Return the command as words of the shell."""
    run = job.run or ""
    return shlex.join(["bash", "-c", run.strip()] if isinstance(run, str) else run)


def code_lines(job: JobSpec) -> list[str]:
    """Return the lines that get the repository, if the job names one."""
    if not job.repo:
        return []
    url, ref = split_repository(job.repo)
    if ref.startswith("-"):
        raise InvalidInput(f"{ref!r} is not a commit", hint="write repo: URL@COMMIT")
    return [
        f"rm -rf {CODE_FOLDER} && git clone --quiet -- {shlex.quote(url)} {CODE_FOLDER} || exit 1",
        f"cd {CODE_FOLDER} && git checkout --quiet {shlex.quote(ref)} -- || exit 1",
    ]


def setup_lines(job: JobSpec) -> list[str]:
    return [f"bash -c {shlex.quote(with_installers(step))} || exit 1" for step in job.setup]


def export_line(variables: Mapping[str, str]) -> str:
    """Return one line that sets variables of the environment to these texts."""
    return "export " + " ".join(f"{name}={shlex.quote(it)}" for name, it in variables.items())


def secret_word(secret: Secret) -> str:
    """Return the word of the shell that stands for a secret's value."""
    if secret.source == "file":
        return f'"$(cat -- {shell_path(secret.value)})"'
    if secret.source == "command":
        return f'"$(sh -c {shlex.quote(secret.value)})"'
    if re.fullmatch(VARIABLE, secret.value):
        return f'"${{{secret.value}?}}"'
    return f'"$(printenv -- {shlex.quote(secret.value)})"'


def shell_path(path: str) -> str:
    """Quote a path, all but its ~."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)
