"""A training run: counts its steps, saves in time, and resumes where it stopped."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Any

from tpuherd_host.train import process_env
from tpuherd_host.train.array_trees import is_gone
from tpuherd_host.train.checkpoint_commit import Commit, ModelMismatch
from tpuherd_host.train.checkpoints import Checkpoints
from tpuherd_host.train.compile_cache import ProgramCache, cache_folder
from tpuherd_host.train.join_pod import (
    FAILED,
    INTERRUPTED,
    TOGETHER_S,
    TRAINS_AGAIN,
    exit_together,
    init,
    is_stop_agreed,
    refuse,
)
from tpuherd_host.train.lazy_import import jax
from tpuherd_host.train.process_group import PeerSilent
from tpuherd_host.train.retention import Retention
from tpuherd_host.train.sample_order import derive_seed
from tpuherd_host.train.sample_split import InvalidSetup
from tpuherd_host.train.save_interval import SaveCosts, count_losses, parse_node_life
from tpuherd_host.train.send_reports import ReportSender
from tpuherd_host.train.startup_times import STARTUP
from tpuherd_host.train.storage import TemporarilyUnreachable, Unreachable, above_run, of_run, place

REPORT_S = 1.0
STEPS_REMEMBERED = 64
EARLY = 2  #: the first save is after this many steps, to measure what a save costs


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state after a number of steps."""

    step: int
    state: Any
    record: Mapping[str, Any]
    metrics: Mapping[str, Any]
    milestone: bool


class Run:
    """One attempt at a training, in every process of it.

    `checkpoints` is a folder that all hosts see, or `gs://…`; by default the job's own.
    `every_s`: seconds between saves; by default Young's rule decides. `form`: "orbax" or "pieces".
    `keep`: how many of the newest checkpoints stay, or a Retention with milestones and the best.
    """

    def __init__(
        self, checkpoints: str = "", *, seed: int = 0, every_s: float = 0.0,
        keep: int | Retention = 2, form: str = "",
    ) -> None:  # fmt: skip
        environ = process_env.process_environment()
        self.pod = init()
        self.id = environ.get("HERD_RUN_ID") or environ.get("RUN_ID") or "run"
        attempt = environ.get("HERD_ATTEMPT", "")
        self.attempt = int(attempt) if attempt.isdecimal() else 1
        self.is_main = self.pod.is_main
        self.seed = seed
        self.record: Mapping[str, Any] = {}  #: the program's own values, as saved
        self.start = 0  #: the first step of this attempt
        self.stopping = False  #: this step is the last one of this attempt
        location = checkpoints
        if not location and environ.get("HERD_CHECKPOINT"):
            # Copies of a job share that place, and so does a run that starts over.
            location = of_run(environ["HERD_CHECKPOINT"], self.id)
        self.checkpoints: Checkpoints | None = None
        self._programs: ProgramCache | None = None
        if location and not self.pod.is_child:
            launched = environ.get("HERD_LAUNCHED", "")
            self.checkpoints = Checkpoints(
                location, self.pod.circle, keep=keep, form=form, run=self.id,
                launched=int(launched) if launched.isdecimal() else 0,
            )  # fmt: skip
            shared = location if checkpoints else above_run(location, self.id)
            self._programs = ProgramCache(place(shared), cache_folder())
            self._programs.fetch()
        self._every_s = every_s
        self._reports = ReportSender({} if self.pod.is_child else environ)
        usual = parse_node_life(environ.get("HERD_LIFE_S", ""))
        self._costs = SaveCosts(blocked=[], took=[], usual_s=usual)
        self._losses = self.attempt - 1  #: attempts before this one that lost work
        self._kept: KeptState | None = None
        self._judged = False  #: the last keep() named the metric of the best checkpoints
        self._ever_judged = False
        self._metrics: Mapping[str, Any] = {}
        self._step = self._done = self._due = self._total = self._begun = self._own = 0
        self._trained_s = self._earlier_s = 0.0
        self._lasted: list[float] = []
        self._at = self._reported_at = 0.0
        self._entered = False
        self._compiled_s = 0.0  #: before the first step
        self._news: dict[str, Any] = {}  #: reported once

    def restore(self, state: Any, *, partial: bool = False) -> Any:
        """Return the state of the newest complete checkpoint, or this one if there is none.

        It has the shape, type and sharding of this state, whatever pod saved it. `partial` accepts
        a checkpoint that has more arrays than this state, or fewer: those keep their values here.
        """
        if self.checkpoints is None:
            return state
        began = process_env.monotonic_time()
        try:
            found = self.checkpoints.load(state, partial=partial)
        except TemporarilyUnreachable as error:
            refuse(str(error), FAILED)
        except (ModelMismatch, Unreachable) as error:
            refuse(str(error))
        if found is None:
            return state
        commit = found.commit
        self.start, self.record = commit.step, commit.record
        self._news = {"restore_s": round(process_env.monotonic_time() - began, 3)}
        self._earlier_s, self._begun = commit.trained_s, commit.step
        self._losses = count_losses(
            self.attempt, commit.attempt, commit.losses, at_end=commit.at_end
        )
        if self.is_main:
            process_env.log_message(
                f"resumed at step {commit.step}, saved by attempt {commit.attempt}"
                + (", from the copy fetched to this host" if found.copied else "")
            )
        return found.tree

    def steps(self, total: int) -> Iterator[int]:
        """Yield the remaining steps. All hosts agree on a stop between two steps."""
        if self.pod.is_child:
            raise InvalidSetup(TRAINS_AGAIN)
        self._total, self._done = total, self.start
        self._news["resumed"] = self.start  # by `restore`, or by a program that loads by itself
        self._own = max(self._own, self.start)
        self._compiled_s = STARTUP.compiled_s
        self._due = self.start + EARLY
        self._at = process_env.monotonic_time()
        self._reported_at = self._at - REPORT_S
        for step in range(self.start, total):
            if self.stopping or is_stop_agreed(self.pod, step):
                if self._kept is not None or self.stopping:
                    self._end_interrupted(step)
                self.stopping = True  # the program saves by itself, in this step
            self._step = step
            try:
                yield step
            except GeneratorExit:
                self._leave_loop(step)
                raise
            self._count_step(step)
            self._check_kept(step)
        self._end_finished()

    def keep(self, state: Any, record: Mapping[str, Any] | None = None, **metrics: Any) -> None:
        """Register, at the end of a step, what to save when a save is due or the node goes away.

        If steps donate the state to the next one, call it in every step.
        """
        self._metrics = metrics
        self._done = self._step + 1
        if state is None and record is None:
            return  # only metrics: the program saves by itself
        before = self._kept.step if self._kept else self.start
        checkpoints = self.checkpoints
        milestone = checkpoints is not None and checkpoints.retention.has_milestone(
            before, self._step + 1
        )
        self._kept = KeptState(self._step + 1, state, record or {}, metrics, milestone)
        if self._is_among_best() or milestone or self._kept.step >= self._due:
            self._save_kept(self._kept)

    def saved(self, step: int) -> None:
        """Record which step is on the disk, for a program that saves by itself.

        It sets `start` when it resumes, and finds `stopping` true in its last step.
        """
        self._own = step

    def key(self, step: int) -> Any:
        """Return the random key of a step, which need not be saved."""
        return jax.random.fold_in(jax.random.key(self.seed), step)

    def seed_here(self, *parts: object) -> int:
        """Return a seed of this process, for what must differ between hosts (32 bits)."""
        return derive_seed(self.seed, self.pod.index, *parts) & 0xFFFFFFFF

    def __enter__(self) -> "Run":
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._step + 1 >= self._total:
            self.complete()
        elif kind is None:
            self._save_for_good()

    def finish(self) -> None:
        """End early though steps are left, after a `break` for instance: save the last kept state.

        All processes call it.
        """
        self._save_for_good()
        self.complete()

    def complete(self) -> None:
        """Report that training is complete; without it, a stopping attempt counts as stopped."""
        self._reports.send_with_retries({**self._progress_report(self._done), "complete": True})
        self._reports.close()
        if self._programs is not None and self.is_main:
            self._programs.close()

    def _count_step(self, step: int) -> None:
        """Measure the step, and report to the agent now and then."""
        at = process_env.monotonic_time()
        self._done = step + 1
        if step > self.start:  # the first step compiles: it is not typical
            self._lasted.append(at - self._at)
        else:
            self._news.update(STARTUP.finish_first_step(at - self._at, self._compiled_s))
        self._trained_s += at - self._at
        self._at = at
        if at - self._reported_at < REPORT_S:
            return
        self._reported_at = at
        if self._programs is not None and self.is_main:  # JAX writes them on the first process only
            self._programs.share_new()
        del self._lasted[:-STEPS_REMEMBERED]
        pace = {"step_s": round(median(self._lasted), 6)} if self._lasted else {}
        if self._reports.send_report({**self._progress_report(step + 1), **pace}):
            self._news = {}

    def _progress_report(self, step: int) -> dict[str, Any]:
        """Return the progress, with metrics that are ready without waiting for a device."""
        report: dict[str, Any] = {"step": step, "total": self._total, **self._news}
        if self.is_main:  # the other processes don't know when all of it was on the disk
            report["saved"] = self._saved_step()
            report.update(self._save_totals())
            report.update(self.checkpoints.marks if self.checkpoints else {})
        for name, value in self._metrics.items():
            ready = getattr(value, "is_ready", None)
            if ready is None or ready():
                report[name] = float(value)
        return report

    def _save_totals(self) -> dict[str, float]:
        """Return what the checkpoints of this attempt cost so far."""
        checkpoints = self.checkpoints
        if checkpoints is None or not checkpoints.durable_count:
            return {}
        return {
            "saves": checkpoints.durable_count,
            "save_blocked_s": round(checkpoints.blocked_s, 3),
            "save_took_s": round(checkpoints.took_s, 3),
            **({"save_bytes": checkpoints.saved_bytes} if checkpoints.saved_bytes else {}),
        }

    def _saved_step(self) -> int:
        return max(self._own, self.checkpoints.newest if self.checkpoints else 0)

    def _save_kept(self, kept: KeptState, *, wait: bool = False) -> None:
        checkpoints = self.checkpoints
        if checkpoints is None or kept.step <= self._begun:
            return  # the same on all processes, unlike what they know of the disk
        self._begun = kept.step
        commit = Commit(
            step=kept.step,
            run=self.id,
            attempt=self.attempt,
            launched=checkpoints.launched,
            made=process_env.wall_time(),
            trained_s=round(self._earlier_s + self._trained_s, 3),
            losses=self._losses,
            at_end=wait,
            pod=f"{self.pod.count} × {jax.local_device_count()}",
            record=kept.record,
            milestone=kept.milestone,
        )
        if checkpoints.took_s:
            self._costs.add_duration(checkpoints.took_s)
        self._costs.add_blocked(
            checkpoints.save(commit, kept.state, metrics=kept.metrics, wait=wait)
        )
        self._due = kept.step + int(self.pod.circle.broadcast_word(str(self._steps_until_save())))

    def _steps_until_save(self) -> int:
        """Return the steps until the next save, as process 0 decides for all."""
        step_s = median(self._lasted[-STEPS_REMEMBERED:]) if self._lasted else 1.0
        if self._every_s:
            return max(1, round(self._every_s / max(step_s, 1e-6)))
        trained_s = self._earlier_s + self._trained_s
        return self._costs.steps_until_save(step_s, trained_s, self._losses)

    def _is_among_best(self) -> bool:
        """Whether this step is evaluated and one of the best, as process 0 decides for all.

        If the step before was evaluated as well, this is no reason to save more often.
        """
        checkpoints = self.checkpoints
        before, self._judged = self._judged, False
        if checkpoints is None or checkpoints.retention.best not in self._metrics:
            return False
        self._judged = self._ever_judged = True
        if before:
            return False
        word = ""
        if self.is_main:
            value = float(self._metrics[checkpoints.retention.best])
            word = "1" if checkpoints.is_among_best(self._step + 1, value) else ""
        return bool(self.pod.circle.broadcast_word(word))

    def _check_kept(self, step: int) -> None:
        """End at the first step after which a preemption would lose the state."""
        kept = self._kept
        if self.checkpoints is None or kept is None or kept.step > step or not is_gone(kept.state):
            return
        self.checkpoints.wait()
        raise InvalidSetup(
            f"run.keep() was not called in step {step}, and the arrays that it was given in step "
            f"{kept.step - 1} have been donated since: call it in every step, where it costs "
            "nothing unless it is time to save"
        )

    def _leave_loop(self, step: int) -> None:
        """Save if the loop ends early on all hosts, by `break` for instance."""
        if self._kept is None or self.checkpoints is None:
            return
        try:
            self.pod.circle.wait_for_all(f"left/{step}/{self._kept.step}", TOGETHER_S)
        except PeerSilent:
            return  # only this process failed: the others are still in their step
        self._save_for_good()
        if self.is_main and self._saved_step() == self._kept.step:
            process_env.log_message(
                f"the loop was left in step {step}, saved at step {self._saved_step()}"
            )

    def _save_for_good(self) -> None:
        """Save the last kept state and wait for it. All processes call it."""
        kept = self._kept
        if self.checkpoints is None:
            return
        if kept is not None and kept.step > self._begun:
            if is_gone(kept.state):
                process_env.log_message(
                    f"what was kept in step {kept.step - 1} has been donated since and is not "
                    "saved: call run.keep() before the loop is left"
                )
            else:
                self._save_kept(kept, wait=True)
        self.checkpoints.wait()
        best = self.checkpoints.retention.best
        if best and kept is not None and self.is_main and not self._ever_judged:
            process_env.log_message(
                f"no checkpoint is the best: run.keep() was never given {best}=…, by which "
                "they are compared"
            )

    def _end_interrupted(self, step: int) -> None:
        """Save, and end on all hosts with the same status."""
        self._save_for_good()
        saved = self._saved_step()
        if self.is_main:
            process_env.log_message(
                f"stopped before step {step}, saved at step {saved}; run it again to resume"
            )
        self._reports.send_with_retries({**self._progress_report(step), "stopped": True})
        self._reports.close()
        exit_together(INTERRUPTED)

    def _end_finished(self) -> None:
        self._save_for_good()
        if not self._entered:
            self.complete()
