"""Checkpoints: saved beside the training, and loaded only if complete, on a pod of any shape."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tpuherd_host.train import checkpoint_commit as commits
from tpuherd_host.train import compile_cache, process_env
from tpuherd_host.train.checkpoint_commit import (
    Commit,
    DamagedCheckpoint,
    ModelMismatch,
    step_folder,
)
from tpuherd_host.train.lazy_import import MissingPackage, is_installed
from tpuherd_host.train.native_format import NativeFormat
from tpuherd_host.train.orbax_format import OrbaxFormat
from tpuherd_host.train.process_group import ProcessGroup
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

    def load(self, commit: Commit, like: Any) -> Any:
        """Load the tree, or raise DamagedCheckpoint."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedCheckpoint:
    tree: Any
    commit: Commit


class Checkpoints:
    """Holds the save that is in progress."""

    def __init__(
        self, location: str, circle: ProcessGroup | None = None, *, keep: int = 2, form: str = ""
    ) -> None:
        self.circle = circle or ProcessGroup()
        self.place: Place = place(location)
        self.keep = max(1, keep)
        self.form = check_format(form or OWN, location)
        self.forms: Mapping[str, CheckpointFormat] = {
            ORBAX: OrbaxFormat(self.place, self.circle),
            OWN: NativeFormat(self.place, self.circle),
        }
        self.newest = 0  #: of the whole ones, as far as this process knows
        self.took_s = 0.0
        self.skipped: set[int] = set()  #: damaged: removed once there is a newer whole one
        self.given = False  #: what was compiled in this attempt
        self.busy: threading.Thread | None = None
        self.trouble: Exception | None = None

    def save(self, commit: Commit, tree: Any, *, wait: bool = False) -> float:
        """Start a save after the previous one; return for how many seconds training stood still."""
        began = process_env.monotonic_time()
        self.wait()
        form = self.forms[self.form]
        whole = replace(commit, form=self.form, leaves=commits.array_shapes(tree))
        begun = form.start_save(commit.step, tree)

        def finish() -> None:
            try:
                parts = form.finish_save(commit.step, begun)
                if self.circle.index == 0:
                    self._commit_step(replace(whole, parts=parts))
                    if not self.given:
                        self.given = True
                        compile_cache.upload_programs(self.place)
                self.newest = commit.step
                self.took_s = process_env.monotonic_time() - began
            except Exception as error:  # noqa: BLE001  # raised where the save is awaited
                self.trouble = error

        self.busy = threading.Thread(target=finish, name=f"save-{commit.step}", daemon=True)
        self.busy.start()
        if wait:
            self.wait()
        return process_env.monotonic_time() - began

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

    def load(self, like: Any) -> LoadedCheckpoint | None:
        """Load the newest complete checkpoint in this tree's shape, the same in every process."""
        leads = self.circle.index == 0
        steps, trouble = json.loads(
            self.circle.broadcast_word(json.dumps(self._find_steps() if leads else None))
        )
        raise_trouble(trouble)
        for step in steps:
            found, mine = self._try_load(step, like)
            words = self.circle.gather_words(json.dumps(mine))
            heard = {kind: value for word in words for kind, value in json.loads(word).items()}
            where = f"{self.place.location}/{step_folder(step)}"
            raise_trouble(heard)
            if "other" in heard:
                raise ModelMismatch(f"{where} belongs to another model: {heard['other']}")
            if found is not None and not heard:
                self.newest = step
                return found
            if leads:
                process_env.log_message(f"skipped the checkpoint of step {step}: {heard['damage']}")
                self.skipped.add(step)
        return None

    def _try_load(self, step: int, like: Any) -> tuple[LoadedCheckpoint | None, dict[str, str]]:
        """Return what loading gives here: the tree, the damage, the mismatch, or a failure that
        says nothing about the checkpoint."""
        try:
            commit = commits.parse_commit(self.place.read(step_folder(step) + commits.NAME))
            other = commits.find_difference(commit.leaves, commits.array_shapes(like))
            if other:
                return None, {"other": other}
            tree = self.forms[commit.form].load(commit, like)
        except (DamagedCheckpoint, FileNotFoundError, KeyError) as damage:
            return None, {"damage": str(damage) or "it can't be read"}
        except OSError as trouble:
            return None, trouble_message(trouble)
        return LoadedCheckpoint(tree=tree, commit=commit), {}

    def _find_steps(self) -> tuple[list[int], dict[str, str]]:
        """Return the steps, or why they cannot be listed."""
        try:
            return self._list_steps(), {}
        except OSError as trouble:
            return [], trouble_message(trouble)

    def _list_steps(self) -> list[int]:
        """List steps, newest first. Log and remove incomplete ones: their writers are dead."""
        whole: set[int] = set()
        torsos: set[int] = set()
        for name in self.place.names("step-"):
            top, _, rest = name.partition("/")
            number = top.removeprefix("step-")
            if rest and number.isdecimal():
                (whole if rest == commits.NAME else torsos).add(int(number))
        for step in sorted(torsos - whole):
            process_env.log_message(
                f"skipped the checkpoint of step {step}: its save was cut short"
            )
            self.place.remove(step_folder(step))
        return sorted(whole, reverse=True)

    def _commit_step(self, commit: Commit) -> None:
        """Mark a step as complete and remove old steps."""
        self.place.write(step_folder(commit.step) + commits.NAME, [commit.to_json_bytes()])
        self.skipped.discard(commit.step)
        end = "/" + commits.NAME
        tops = [name.removesuffix(end) for name in self.place.names("step-") if name.endswith(end)]
        steps = [int(top.removeprefix("step-")) for top in tops]
        good = [step for step in steps if step not in self.skipped]
        for step in {*good[: -self.keep], *self.skipped}:
            self.place.remove(step_folder(step) + commits.NAME)
            self.place.remove(step_folder(step))
        self.skipped.clear()


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
