"""A training run: counts its steps, saves it in time, and goes on where it stopped."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Any

from tpuherd_host.train import here, programs
from tpuherd_host.train.checkpoints import Checkpoints
from tpuherd_host.train.commit import Commit, OtherModel
from tpuherd_host.train.interval import Costs, usual_s
from tpuherd_host.train.late import jax
from tpuherd_host.train.order import seed_of
from tpuherd_host.train.places import Away, Unreachable, of_run
from tpuherd_host.train.reports import Reports
from tpuherd_host.train.start import FAILED, INTERRUPTED, init, leave, refuse, stop_agreed

REPORT_S = 1.0
STEPS_REMEMBERED = 64
EARLY = 2  #: the first save comes after so many steps: it finds out what a save costs


@dataclass(frozen=True, slots=True)
class Kept:
    """The state after so many steps."""

    step: int
    state: Any
    record: Mapping[str, Any]


class Run:
    """One attempt at a training, in every process of it.

    `checkpoints` is a folder that all hosts see, or `gs://…`; the job's own where not given.
    `every_s`: seconds between saves; by Young's rule where not given. `form`: "orbax" or "pieces".
    """

    def __init__(
        self, checkpoints: str = "", *, seed: int = 0, every_s: float = 0.0,
        keep: int = 2, form: str = "",
    ) -> None:  # fmt: skip
        environ = here.environment()
        self.pod = init()
        self.id = environ.get("HERD_RUN_ID") or environ.get("RUN_ID") or "run"
        attempt = environ.get("HERD_ATTEMPT", "")
        self.attempt = int(attempt) if attempt.isdecimal() else 1
        self.is_main = self.pod.is_main
        self.seed = seed
        self.record: Mapping[str, Any] = {}  #: the program's own, as it was saved
        self.start = 0  #: the first step of this attempt
        self.stopping = False  #: this step is the last one of this attempt
        location = checkpoints
        if not location and environ.get("HERD_CHECKPOINT"):
            # Copies of a job share that place, and so does a run that is begun anew.
            location = of_run(environ["HERD_CHECKPOINT"], self.id)
        self.checkpoints: Checkpoints | None = None
        if location:
            self.checkpoints = Checkpoints(location, self.pod.circle, keep=keep, form=form)
            programs.fetch(self.checkpoints.place)
        self._every_s = every_s
        self._reports = Reports(environ)
        usual = usual_s(environ.get("HERD_LIFE_S", ""))
        self._costs = Costs(blocked=[], took=[], usual_s=usual)
        self._kept: Kept | None = None
        self._metrics: Mapping[str, Any] = {}
        self._step = self._due = self._total = self._begun = self._own = 0
        self._trained_s = self._earlier_s = 0.0
        self._lasted: list[float] = []
        self._at = self._told = 0.0
        self._entered = False
        self._news: dict[str, Any] = {"resumed": 0}  #: what is told once

    def restore(self, state: Any) -> Any:
        """The state of the newest whole checkpoint; this one where there is none.

        It comes in the shape, type and sharding of what is given, whatever pod has saved it.
        """
        if self.checkpoints is None:
            return state
        began = here.tick()
        try:
            found = self.checkpoints.load(state)
        except Away as error:
            refuse(str(error), FAILED)
        except (OtherModel, Unreachable) as error:
            refuse(str(error))
        if found is None:
            return state
        commit = found.commit
        self.start, self.record = commit.step, commit.record
        self._news = {"resumed": commit.step, "restore_s": round(here.tick() - began, 3)}
        self._earlier_s, self._begun = commit.trained_s, commit.step
        if self.is_main:
            here.say(f"resumed at step {commit.step}, saved by attempt {commit.attempt}")
        return found.tree

    def steps(self, total: int) -> Iterator[int]:
        """The steps that are left. A stop is agreed on by all hosts between two of them."""
        self._total = total
        self._due = self.start + EARLY
        self._at = here.tick()
        self._told = self._at - REPORT_S
        for step in range(self.start, total):
            if self.stopping or stop_agreed(self.pod, step):
                if self._kept is not None or self.stopping:
                    self._interrupted(step)
                self.stopping = True  # the program saves by itself: it has this step for that
            self._step = step
            yield step
            self._count(step)
        self._finished(total)

    def keep(self, state: Any, record: Mapping[str, Any] | None = None, **metrics: Any) -> None:
        """At the end of a step: what to save when it is time, or when the node goes away."""
        self._metrics = metrics
        self._kept = Kept(self._step + 1, state, record or {})
        if self._kept.step >= self._due:
            self._save(self._kept)

    def saved(self, step: int) -> None:
        """A program that saves by itself says which step is on the disk.

        It sets `start` when it goes on, and finds `stopping` true in its last step.
        """
        self._own = step

    def key(self, step: int) -> Any:
        """The random key of a step: nothing of it need be saved."""
        return jax.random.fold_in(jax.random.key(self.seed), step)

    def seed_here(self, *parts: object) -> int:
        """A seed of this process's own, for what must differ between hosts (32 bits)."""
        return seed_of(self.seed, self.pod.index, *parts) & 0xFFFFFFFF

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

    def complete(self) -> None:
        """Tell that all is done. Without it an attempt that was told to stop counts as stopped."""
        self._reports.insist({**self._place(self._total), "complete": True})
        self._reports.close()

    def _count(self, step: int) -> None:
        """After each step: how long it took, and now and then a word to the agent."""
        at = here.tick()
        if step > self.start:  # the first one is compiled, and says nothing of those to come
            self._lasted.append(at - self._at)
        self._trained_s += at - self._at
        self._at = at
        if at - self._told < REPORT_S:
            return
        self._told = at
        del self._lasted[:-STEPS_REMEMBERED]
        pace = {"step_s": round(median(self._lasted), 6)} if self._lasted else {}
        if self._reports.tell({**self._place(step + 1), **pace}):
            self._news = {}

    def _place(self, step: int) -> dict[str, Any]:
        """How far it is; with the metrics that can be had without waiting for a device."""
        told: dict[str, Any] = {"step": step, "total": self._total, **self._news}
        if self.is_main:  # the others don't know when all of it was on the disk
            told["saved"] = self._saved()
        for name, value in self._metrics.items():
            ready = getattr(value, "is_ready", None)
            if ready is None or ready():
                told[name] = float(value)
        return told

    def _saved(self) -> int:
        return max(self._own, self.checkpoints.newest if self.checkpoints else 0)

    def _save(self, kept: Kept, *, wait: bool = False) -> None:
        checkpoints = self.checkpoints
        if checkpoints is None or kept.step <= self._begun:
            return  # on all processes alike: what is known of the disk differs
        self._begun = kept.step
        commit = Commit(
            step=kept.step,
            run=self.id,
            attempt=self.attempt,
            made=here.now(),
            trained_s=round(self._earlier_s + self._trained_s, 3),
            pod=f"{self.pod.count} × {jax.local_device_count()}",
            record=kept.record,
        )
        if checkpoints.took_s:
            self._costs.ended(checkpoints.took_s)
        self._costs.saw(checkpoints.save(commit, kept.state, wait=wait))
        self._due = kept.step + int(self.pod.circle.told(str(self._pause())))

    def _pause(self) -> int:
        """Steps until the next save; process 0 says it for all."""
        step_s = median(self._lasted[-STEPS_REMEMBERED:]) if self._lasted else 1.0
        if self._every_s:
            return max(1, round(self._every_s / max(step_s, 1e-6)))
        trained_s = self._earlier_s + self._trained_s
        return self._costs.steps(step_s, trained_s, self.attempt - 1)

    def _interrupted(self, step: int) -> None:
        """Save what is there, and end on all hosts with the same status."""
        if self._kept is not None:
            self._save(self._kept, wait=True)
        if self.checkpoints is not None:
            self.checkpoints.wait()
        saved = self._saved()
        if self.is_main:
            here.say(f"stopped before step {step}, saved at step {saved}: start it again to go on")
        self._reports.insist({**self._place(step), "stopped": True})
        self._reports.close()
        leave(INTERRUPTED)

    def _finished(self, total: int) -> None:
        """The last step is done: save it for good."""
        if self._kept is not None:
            self._save(self._kept, wait=True)
        if self.checkpoints is not None:
            self.checkpoints.wait()
        if not self._entered:
            self.complete()
