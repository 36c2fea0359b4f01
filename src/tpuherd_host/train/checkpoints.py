"""Checkpoints: saved beside the training, found again whole or not at all, on any shape of pod."""

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
    """A way to write a tree. All processes call each of these together."""

    def start_save(self, step: int, tree: Any) -> Any:
        """Take what is to be written off the devices; the training goes on after this."""
        ...

    def finish_save(self, step: int, begun: Any) -> Mapping[str, int]:
        """Write it, in a thread. On process 0: all files of the step."""
        ...

    def load(self, commit: Commit, like: Any) -> Any:
        """The tree; Damaged."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedCheckpoint:
    """What was found."""

    tree: Any
    commit: Commit


class Checkpoints:
    """Holds the save that is under way."""

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
        """Begin a save once the one before is over; seconds for which the training stood still."""
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
            except Exception as error:  # noqa: BLE001  # told where somebody waits for it
                self.trouble = error

        self.busy = threading.Thread(target=finish, name=f"save-{commit.step}", daemon=True)
        self.busy.start()
        if wait:
            self.wait()
        return process_env.monotonic_time() - began

    def wait(self) -> None:
        """Until the save under way is over; its trouble is told, and does not end the training."""
        if self.busy is not None:
            self.busy.join()
            self.busy = None
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            process_env.log_message(
                f"a checkpoint could not be saved to {self.place.location}: {trouble}"
            )

    def load(self, like: Any) -> LoadedCheckpoint | None:
        """The newest that is whole, in the shape of this tree; every process gets the same one."""
        leads = self.circle.index == 0
        steps, trouble = json.loads(
            self.circle.broadcast_word(json.dumps(self._find_steps() if leads else None))
        )
        raise_trouble(trouble)
        for step in steps:
            found, mine = self._try_load(step, like)
            words = self.circle.gather_words(json.dumps(mine))
            heard = {kind: said for word in words for kind, said in json.loads(word).items()}
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
        """What loading gives here; else what is damaged, what another model has, or what trouble
        there was: then nothing is said of the checkpoint."""
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
        """The steps, or why they can't be known."""
        try:
            return self._list_steps(), {}
        except OSError as trouble:
            return [], trouble_message(trouble)

    def _list_steps(self) -> list[int]:
        """Newest first. Torsos are named and removed: who wrote them is dead."""
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
        """Declare a step whole, and let go of those that are too many."""
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
    """In words that other processes hear."""
    return {"away" if is_temporary(trouble) else "trouble": str(trouble)}


def raise_trouble(heard: Mapping[str, str]) -> None:
    """Raise the trouble that a process has told of; what says no comes first."""
    if "trouble" in heard:
        raise Unreachable(heard["trouble"])
    if "away" in heard:
        raise TemporarilyUnreachable(heard["away"])


def check_format(form: str, location: str) -> str:
    """A form that is known, and installed with what it needs for that place."""
    if form not in (OWN, ORBAX):
        raise InvalidSetup(f"form={form!r} is neither {OWN!r} nor {ORBAX!r}")
    wanted = [("orbax.checkpoint", "orbax-checkpoint"), ("gcsfs", "gcsfs")]
    for package, install in wanted[: 1 + location.startswith("gs://")] if form == ORBAX else ():
        if not is_installed(package):
            raise MissingPackage(f"form={ORBAX!r} needs {package} here: pip install {install}")
    return form
