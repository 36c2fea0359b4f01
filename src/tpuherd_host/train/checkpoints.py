"""Checkpoints: saved beside the training, and loaded only if complete, on a pod of any shape."""

import json
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Protocol

from tpuherd_host.train import checkpoint_commit as commits
from tpuherd_host.train import process_env
from tpuherd_host.train.checkpoint_commit import (
    EMPTY,
    Beginning,
    Commit,
    DamagedCheckpoint,
    ModelMismatch,
    step_folder,
)
from tpuherd_host.train.fetched_copy import find_copy, remove_copy
from tpuherd_host.train.join_pod import FAILED, exit_now
from tpuherd_host.train.lazy_import import MissingPackage, is_installed
from tpuherd_host.train.native_format import NativeFormat, load_tree
from tpuherd_host.train.orbax_format import OrbaxFormat
from tpuherd_host.train.process_group import ProcessGroup
from tpuherd_host.train.retention import Retention
from tpuherd_host.train.sample_split import InvalidSetup
from tpuherd_host.train.storage import (
    Place,
    TemporarilyUnreachable,
    Unreachable,
    is_temporary,
    place,
)

OWN = "pieces"  #: the usual form, of every place: it needs nothing but NumPy
ORBAX = "orbax"  #: on request


class CheckpointFormat(Protocol):
    """A way to write a tree. All processes call each method together."""

    def start_save(self, step: int, tree: Any) -> Any:
        """Copy the tree off the devices; the training continues when this returns."""
        ...

    def finish_save(self, step: int, begun: Any) -> Mapping[str, int]:
        """Write the copy, in a thread; on process 0 return all files of the step."""
        ...

    def load(self, commit: Commit, like: Any, names: Collection[str]) -> Any:
        """Load these arrays of the tree, the others stay; or raise DamagedCheckpoint."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedCheckpoint:
    tree: Any
    commit: Commit
    copied: bool = False  #: from the copy that this host had fetched


class Checkpoints:
    """Holds the save that is in progress."""

    def __init__(
        self,
        location: str,
        circle: ProcessGroup | None = None,
        *,
        keep: int | Retention = 2,
        form: str = "",
        run: str = "",
        launched: int = 0,
    ) -> None:
        self.run = run
        self.launched = launched  #: when this attempt was, in ms; 0: not by an engine
        self.circle = circle or ProcessGroup()
        self.place: Place = place(location)
        self.retention = Retention(newest=max(1, keep)) if isinstance(keep, int) else keep
        self.form = check_format(form or OWN, location)
        self.forms: Mapping[str, CheckpointFormat] = {
            ORBAX: OrbaxFormat(self.place, self.circle),
            OWN: NativeFormat(self.place, self.circle, launched),
        }
        self.newest = 0  #: of the whole ones, as far as this process knows
        self.took_s = 0.0
        self.saved_bytes = 0  #: size of the last whole one; 0: not known here
        self.durable_count = 0  #: how many this process has seen saved
        self.blocked_s = 0.0  #: for how long training stood still for all of them
        self.commits: dict[int, Commit] = {}  #: of complete steps, as far as process 0 read them
        self.marks: Mapping[str, int] = {}  #: the best step and the newest milestone
        self.skipped: set[int] = set()  #: damaged: removed once there is a newer whole one
        self.beginnings: list[Beginning] = []  #: of attempts, when this one began
        self.left_behind: set[int] = set()  #: saved after a successor began: removed likewise
        self.busy: threading.Thread | None = None
        self.trouble: Exception | None = None

    def save(
        self,
        commit: Commit,
        tree: Any,
        *,
        metrics: Mapping[str, Any] = EMPTY,
        wait: bool = False,
    ) -> float:
        """Start a save after the previous one; return for how many seconds training stood still."""
        began = process_env.monotonic_time()
        self.wait()
        form = self.forms[self.form]
        whole = replace(
            commit,
            form=self.form,
            leaves=commits.array_shapes(tree),
            types=commits.array_types(tree),
            best_by=self.retention.best,
            better=self.retention.better if self.retention.best else "",
            best_count=self.retention.best_count,
        )
        begun = form.start_save(commit.step, tree)

        def finish() -> None:
            try:
                parts = form.finish_save(commit.step, begun)
                if self.circle.index == 0:
                    self._commit_step(replace(whole, parts=parts, metrics=finite_metrics(metrics)))
                    self._remove_old_steps()
                self.newest = commit.step
                self.saved_bytes = sum(parts.values()) if self.form == OWN else 0
                self.took_s = process_env.monotonic_time() - began
                self.durable_count += 1
            except Exception as error:  # noqa: BLE001  # raised where the save is awaited
                self.trouble = error

        self.busy = threading.Thread(target=finish, name=f"save-{commit.step}", daemon=True)
        self.busy.start()
        if wait:
            self.wait()
        blocked_s = process_env.monotonic_time() - began
        self.blocked_s += blocked_s
        return blocked_s

    def wait(self) -> None:
        """Wait for the save in progress; a failure is logged and does not end the training."""
        if self.busy is not None:
            self.busy.join()
            self.busy = None
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            process_env.log_message(
                f"a checkpoint could not be saved to {self.place.location}: {trouble}"
            )

    def load(self, like: Any, *, partial: bool = False) -> LoadedCheckpoint | None:
        """Load the newest complete checkpoint in this tree's shape, the same in every process.

        `partial` loads the arrays that both have, and logs each that only one of them has.
        """
        try:
            found = self._load_newest(like, partial=partial)
        finally:
            remove_copy(self.place)
        if self.launched and self.circle.index == 0:
            start = found.commit.step if found else 0
            mine = Beginning(launched=self.launched, run=self.run, start=start)
            self.beginnings.append(mine)
            try:
                commits.write_beginning(self.place, mine)
            except OSError as trouble:
                process_env.log_message(f"that this attempt begins could not be saved: {trouble}")
        return found

    def _load_newest(self, like: Any, *, partial: bool) -> LoadedCheckpoint | None:
        leads = self.circle.index == 0
        steps, trouble = json.loads(
            self.circle.broadcast_word(json.dumps(self._find_steps() if leads else None))
        )
        raise_trouble(trouble)
        for step in steps:
            found, mine = self._try_load(step, like, partial=partial)
            words = self.circle.gather_words(json.dumps(mine))
            heard = {kind: value for word in words for kind, value in json.loads(word).items()}
            where = f"{self.place.location}/{step_folder(step)}"
            raise_trouble(heard)
            if "other" in heard:
                raise ModelMismatch(f"{where} belongs to another model: {heard['other']}")
            if found is not None and not heard:
                self.newest = step
                if leads and partial:
                    log_comparison(step, found.commit, like)
                return found
            if leads:
                process_env.log_message(f"skipped the checkpoint of step {step}: {heard['damage']}")
                self.skipped.add(step)
        return None

    def _try_load(
        self, step: int, like: Any, *, partial: bool
    ) -> tuple[LoadedCheckpoint | None, dict[str, str]]:
        """Return what loading gives here: the tree, the damage, the mismatch, or a failure that
        says nothing about the checkpoint."""
        try:
            whole = commits.read_whole(self.place, step)
            commit = commits.parse_commit(whole)
            shapes = commits.array_shapes(like)
            other = commits.find_difference(commit.leaves, shapes, partial=partial)
            if other:
                return None, {"other": other}
            names = frozenset(commits.compare_leaves(commit.leaves, shapes).common)
            found = self._load_copy(commit, whole, like, names)
            if found is not None:
                return found, {}
            tree = self.forms[commit.form].load(commit, like, names)
        except (DamagedCheckpoint, FileNotFoundError, KeyError) as damage:
            return None, {"damage": str(damage) or "it can't be read"}
        except OSError as trouble:
            return None, trouble_message(trouble)
        return LoadedCheckpoint(tree=tree, commit=commit), {}

    def _load_copy(
        self, commit: Commit, whole: bytes, like: Any, names: Collection[str]
    ) -> LoadedCheckpoint | None:
        """Load from the copy on this host's disk; None if there is none of this checkpoint, or a
        damaged one."""
        copy = find_copy(self.place, commit.step, whole) if commit.form == OWN else None
        if copy is None:
            return None
        try:
            tree = load_tree(copy, commit, like, names)
        except (DamagedCheckpoint, OSError, KeyError) as damage:
            process_env.log_message(f"the copy of step {commit.step} on this host's disk is damaged"
                                    f" ({damage}); the checkpoint itself is read")  # fmt: skip
            return None
        return LoadedCheckpoint(tree=tree, commit=commit, copied=copy.was_read)

    def _find_steps(self) -> tuple[list[int], dict[str, str]]:
        """Return the steps, or why they cannot be listed."""
        try:
            return self._list_steps(), {}
        except OSError as trouble:
            return [], trouble_message(trouble)

    def _list_steps(self) -> list[int]:
        """List steps, newest first. Log and remove incomplete ones: their writers are dead."""
        whole, torsos = commits.split_steps(self.place.names("step-"))
        for step in sorted(torsos):
            process_env.log_message(
                f"skipped the checkpoint of step {step}: its save was cut short"
            )
            self.place.remove(step_folder(step))
        self._end_if_succeeded()
        self.beginnings = commits.read_beginnings(self.place)
        first = min((one.start for one in self.beginnings), default=max(whole, default=0))
        self._read_commits({step for step in whole if step > first})
        for step in sorted(self.left_behind):
            process_env.log_message(
                f"ignored the checkpoint of step {step}: its attempt saved it after the next one"
                " had begun"
            )
        if self.retention.best or self.retention.milestones:
            self._read_commits(whole)
            self._find_marks()
        return sorted(whole - self.left_behind, reverse=True)

    def _end_if_succeeded(self) -> None:
        """End this process if a later attempt has begun: this one was frozen, and taken for dead.

        At once, so that nothing more is written to the place that the later one uses.
        """
        if self.launched and commits.has_successor(self.place, self.run, self.launched):
            process_env.log_error("a later attempt of this run has begun, so this one ends")
            exit_now(FAILED)

    def is_among_best(self, step: int, value: float) -> bool:
        """Whether a step with this value of the metric would be one of the best. For process 0."""
        self.wait()
        try:
            self._read_commits(commits.split_steps(self.place.names("step-"))[0])
        except OSError:
            return True  # if the save fails as well, that is logged
        metrics = {step: commit.metrics for step, commit in self.commits.items()}
        return step in self.retention.best_steps({**metrics, step: {self.retention.best: value}})

    def _commit_step(self, commit: Commit) -> None:
        """Mark a step as complete."""
        self._end_if_succeeded()
        self.place.write(step_folder(commit.step) + commits.NAME, [commit.to_json_bytes()])
        self.skipped.discard(commit.step)
        self.left_behind.discard(commit.step)
        self.commits[commit.step] = commit

    def _remove_old_steps(self) -> None:
        """Remove what the retention does not keep. What is interrupted here is done next time."""
        try:
            whole, _ = commits.split_steps(self.place.names("step-"))
            self._read_commits(whole)
            good = [commit for step, commit in self.commits.items() if step not in self.skipped]
            kept = self.retention.retained_steps(good)
            for step in {*self.commits, *((self.skipped | self.left_behind) & whole)} - kept:
                # First what makes it complete: a rest of it is never taken for a checkpoint.
                self.place.remove(step_folder(step) + commits.NAME)
                self.place.remove(step_folder(step))
                self.commits.pop(step, None)
            self.skipped.clear()
            self._find_marks()
        except OSError as trouble:
            process_env.log_message(f"old checkpoints could not be removed: {trouble}")

    def _read_commits(self, whole: Collection[int]) -> None:
        """Know the commits of these complete steps. One that can't be read is left alone."""
        for step in self.commits.keys() - whole:
            self.commits.pop(step, None)
        for step in sorted(whole - self.commits.keys()):
            try:
                commit = commits.parse_commit(commits.read_whole(self.place, step))
                if commits.is_left_behind(commit, self.beginnings):
                    self.left_behind.add(step)
                else:
                    self.commits[step] = commit
            except (DamagedCheckpoint, FileNotFoundError):
                continue

    def _find_marks(self) -> None:
        """Find the best step and the newest milestone among the known commits."""
        metrics = {step: commit.metrics for step, commit in self.commits.items()}
        milestones = [step for step, commit in self.commits.items() if commit.milestone]
        best = self.retention.best_steps(metrics)[:1]
        self.marks = {
            **({"best_step": best[0]} if best else {}),
            **({"milestone": max(milestones)} if milestones else {}),
        }


def finite_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are finite numbers; the step that computes them is over."""
    found = {name: float(value) for name, value in metrics.items()}
    return {name: value for name, value in found.items() if isfinite(value)}


def log_comparison(step: int, commit: Commit, like: Any) -> None:
    """Log each array that a partial restore did not load."""
    found = commits.compare_leaves(commit.leaves, commits.array_shapes(like))
    loaded = len(found.common)
    process_env.log_message(
        f"loaded {loaded} of {loaded + len(found.added)} arrays from the checkpoint of step {step}"
    )
    for sentence in found.sentences():
        process_env.log_message(sentence)


def trouble_message(trouble: OSError) -> dict[str, str]:
    """Return a failure as text that other processes receive."""
    return {"away" if is_temporary(trouble) else "trouble": str(trouble)}


def raise_trouble(heard: Mapping[str, str]) -> None:
    """Raise the failure that a process reported, permanent ones first."""
    if "trouble" in heard:
        raise Unreachable(heard["trouble"])
    if "away" in heard:
        raise TemporarilyUnreachable(heard["away"])


def check_format(form: str, location: str) -> str:
    """Check that a format is known and that its packages are installed."""
    if form not in (OWN, ORBAX):
        raise InvalidSetup(f"form={form!r} is neither {OWN!r} nor {ORBAX!r}")
    wanted = [("orbax.checkpoint", "orbax-checkpoint"), ("gcsfs", "gcsfs")]
    for package, install in wanted[: 1 + location.startswith("gs://")] if form == ORBAX else ():
        if not is_installed(package):
            raise MissingPackage(f"form={ORBAX!r} needs {package} here: pip install {install}")
    return form
