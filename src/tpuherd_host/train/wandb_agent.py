"""The agent of a W&B sweep, with trials that outlive their node.

    python3 -m tpuherd_host.train.wandb_agent ENTITY/PROJECT/SWEEP

W&B's agent loses a trial with its machine. Here each slot records its current trial below the job's
checkpoint, and its next node resumes that trial first. On a pod worker 0 runs the agent, and the
other hosts run the recorded trial.
"""

import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import FrameType

from tpuherd_host.train import process_env
from tpuherd_host.train.join_pod import FAILED, INTERRUPTED, PEER_LOST, UNFIT
from tpuherd_host.train.send_reports import VARIABLE as STEPS
from tpuherd_host.train.storage import TemporarilyUnreachable, Unreachable
from tpuherd_host.train.wandb_relay import ReportRelay
from tpuherd_host.train.wandb_state import TrialState, TrialStore

FOLDER = "HERD_TRIALS"  #: the folder of the `python` shim that records trials
STOP, PROGRAM = "stop", "program"
OF_WANDB = ("WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_PROJECT", "WANDB_ENTITY")
PARAMETERS = "WANDB_SWEEP_PARAM_PATH"
LOOK_S = 1.0  #: how often another worker reads the record
TERM_AFTER, KILL_AFTER = 10, 40  #: reads without the trial before TERM and KILL
TRIES = 3  #: of a trial that ended because another host failed
GONE = (PEER_LOST, -signal.SIGABRT)  #: our exit status, and JAX's after missed heartbeats
FLAPPING = 3  #: after this many failures in a row W&B's agent ends with success
#: Ignores TERM: a stop before the trial is recorded is a file in the folder.
SHIM = "#!/bin/sh\ntrap '' TERM\nexec {python} -m tpuherd_host.train.wandb_agent --noted \"$@\"\n"


class ProgramRunner:
    """Runs one program at a time, and forwards signals to it."""

    def __init__(self, folder: Path, *, ours: bool) -> None:
        self.folder = folder
        self.ours = ours  #: signals to this process come from herd, not from W&B
        self.process = 0
        signal.signal(signal.SIGTERM, self.on_terminate)

    def on_terminate(self, number: int, frame: FrameType | None) -> None:
        if self.ours:
            (self.folder / STOP).touch()
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        if self.process:
            signal_process(self.process, number)

    @property
    def is_stopped(self) -> bool:
        """Whether herd stopped it: the trial will resume elsewhere."""
        return (self.folder / STOP).exists()

    def start_program(self, words: tuple[str, ...], environ: Mapping[str, str]) -> None:
        self.process = os.posix_spawnp(words[0], words, environ)
        if self.is_stopped:
            self.send_signal(signal.SIGTERM)

    def poll_status(self, *, wait: bool = False) -> int | None:
        """Return the program's status; None while it runs."""
        process, status = os.waitpid(self.process, 0 if wait else os.WNOHANG)
        if not process:
            return None
        self.process = 0
        return os.waitstatus_to_exitcode(status)


def signal_process(process: int, number: int) -> None:
    """Signal a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


def main(words: Sequence[str]) -> int:
    """Run a slot's host, or a trial that W&B's agent started, and return the exit status."""
    environ = process_env.process_environment()
    try:
        return (
            run_noted_trial(words[1:], environ)
            if words[:1] == ["--noted"]
            else run_slot(words, environ)
        )
    except Unreachable as error:
        process_env.log_error(str(error))
        return FAILED if isinstance(error, TemporarilyUnreachable) else UNFIT


def run_slot(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run this slot's part of the sweep."""
    leads = environ.get("HERD_WORKER", "0") == "0"
    if trouble := find_setup_problem(words, environ):
        if leads:
            process_env.log_error(trouble)
        return UNFIT
    with tempfile.TemporaryDirectory() as folder:
        watch, book = ProgramRunner(Path(folder), ours=True), TrialStore(environ)
        return run_leader(words, watch, book) if leads else run_follower(watch, book)


def find_setup_problem(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return a sentence about what is missing, or ""."""
    if not words:
        return "name the sweep: python3 -m tpuherd_host.train.wandb_agent ENTITY/PROJECT/SWEEP"
    if not (environ.get("HERD_CHECKPOINT") and environ.get("RUN_ID")):
        return "trials are recorded below the job's checkpoint: give the job `checkpoint: gs://BUCKET/PATH`"
    if not (environ.get("WANDB_API_KEY") or Path("~/.netrc").expanduser().exists()):
        return "W&B has no key: give the job `secrets: [WANDB_API_KEY]`"
    try:
        metadata.version("wandb")
    except metadata.PackageNotFoundError:
        return "this needs wandb: pip install wandb"
    return ""


def run_leader(words: Sequence[str], watch: ProgramRunner, book: TrialStore) -> int:
    """Be worker 0: finish the recorded trial first, then run W&B's agent."""
    note = book.read()
    if note.run:
        process_env.log_message(f"resuming trial {note.run}")
        run_trial(replace(note, tried=0), watch, book)
    if watch.is_stopped:
        return INTERRUPTED
    book.write(TrialState(before=book.read().before))
    environ = dict(process_env.process_environment())
    for name in ("python", "python3"):
        shim = watch.folder / name
        shim.write_text(SHIM.format(python=shlex.quote(sys.executable)))
        shim.chmod(0o700)
    environ[FOLDER] = str(watch.folder)
    environ["PATH"] = os.pathsep.join((environ[FOLDER], environ.get("PATH", os.defpath)))
    watch.start_program(
        (sys.executable, "-m", "wandb", "agent", "--forward-signals", *words), environ
    )
    status = watch.poll_status(wait=True)
    left = watch.folder / PROGRAM
    if left.exists():  # the agent ended at once and killed the shim
        signal_process(int(left.read_text()), signal.SIGKILL)
    if watch.is_stopped:
        return INTERRUPTED
    note = book.read()
    if status or note.failed >= FLAPPING:
        process_env.log_error(
            f"W&B's agent ended with {status} after {note.failed} failures in a row"
        )
        return status or 1
    book.write(TrialState(over=True, before=note.before))
    return 0


def run_noted_trial(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run what W&B's agent starts as `python …`, and record it before and after."""
    program = (sys.executable, *words)
    if PARAMETERS not in environ or FOLDER not in environ:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.execv(program[0], program)
    watch, book = ProgramRunner(Path(environ[FOLDER]), ours=False), TrialStore(environ)
    note = replace(
        book.read(),
        run=environ["WANDB_RUN_ID"],
        words=program,
        environ={name: environ[name] for name in OF_WANDB if name in environ},
        parameters=Path(environ[PARAMETERS]).read_text(),
        tried=0,
    )
    status = run_trial(note, watch, book)
    return status if status >= 0 else 128 - status


def run_trial(note: TrialState, watch: ProgramRunner, book: TrialStore) -> int:
    """Run a trial to its end; if herd stops it, its record stays."""
    status = PEER_LOST
    while status in GONE and note.tried < TRIES:
        note = replace(note, tried=note.tried + 1)
        book.write(note)
        if watch.is_stopped:
            return INTERRUPTED
        status, steps = run_program(note, watch)
        if watch.is_stopped and status:
            return status
    failed = note.failed + 1 if status else 0
    book.write(TrialState(before=note.before + steps, failed=failed))
    return status


def run_follower(watch: ProgramRunner, book: TrialStore) -> int:
    """Be another worker: run each newly recorded trial until the sweep is over."""
    seen = TrialState()
    while not watch.is_stopped:
        note = book.read()
        if note.attempt == book.attempt:
            if note.over:
                return 0
            if note.run and not is_same_try(note, seen):
                seen = note
                run_program(note, watch, book)
        process_env.wait(LOOK_S)
    return INTERRUPTED


def is_same_try(one: TrialState, other: TrialState) -> bool:
    return (one.run, one.tried) == (other.run, other.tried)


def run_program(
    note: TrialState, watch: ProgramRunner, book: TrialStore | None = None
) -> tuple[int, int]:
    """Return the status of a trial's program, and how many steps it reported.

    With a book, this is a follower: it ends the program when another trial is recorded.
    """
    with ReportRelay(process_env.process_environment().get(STEPS, ""), note.before) as relay:
        environ = trial_environment(note)
        if relay.name:
            environ[STEPS] = relay.name
        watch.start_program(note.words, environ)
        program = watch.folder / PROGRAM
        program.write_text(str(watch.process))
        looked, late = process_env.monotonic_time(), 0
        while (status := watch.poll_status()) is None:
            relay.forward_reports()
            if book is not None and process_env.monotonic_time() - looked >= LOOK_S:
                looked = process_env.monotonic_time()
                late += not is_same_try(book.read(), note)
                if late in (TERM_AFTER, KILL_AFTER):
                    watch.send_signal(signal.SIGTERM if late == TERM_AFTER else signal.SIGKILL)
        program.unlink()
        relay.forward_reports()
        return status, relay.furthest


def trial_environment(note: TrialState) -> dict[str, str]:
    """Return the variables of a trial's program on any node."""
    environ = {**process_env.process_environment(), **note.environ}
    sweep = Path("wandb", f"sweep-{environ['WANDB_SWEEP_ID']}").absolute()
    sweep.mkdir(parents=True, exist_ok=True)
    parameters = sweep / f"config-{note.run}.yaml"
    parameters.write_text(note.parameters)
    own = environ.pop(FOLDER, "")
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    return {
        **environ,
        "PATH": os.pathsep.join(one for one in folders if one != own),
        "WANDB_RESUME": "allow",
        PARAMETERS: str(parameters),
        "HERD_RUN_ID": note.run,  # each trial has its own checkpoints
        "RUN_ID": note.run,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
