"""Checkpoints: saved beside the training, found again whole or not at all, on any shape of pod."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tpuherd_host.train import checkpoint_commit as commits
from tpuherd_host.train import compile_cache, process_env
from tpuherd_host.train.checkpoint_commit import Commit, Damaged, OtherModel, folder
from tpuherd_host.train.lazy_import import Missing, there
from tpuherd_host.train.native_format import Pieces
from tpuherd_host.train.orbax_format import Orbax
from tpuherd_host.train.process_group import Circle
from tpuherd_host.train.sample_split import Unfit
from tpuherd_host.train.storage import Away, Place, Unreachable, passing, place

OWN = "pieces"  #: the usual form, of every place: it needs nothing but NumPy
ORBAX = "orbax"  #: on request


class Form(Protocol):
    """A way to write a tree. All processes call each of these together."""

    def begin(self, step: int, tree: Any) -> Any:
        """Take what is to be written off the devices; the training goes on after this."""
        ...

    def finish(self, step: int, begun: Any) -> Mapping[str, int]:
        """Write it, in a thread. On process 0: all files of the step."""
        ...

    def load(self, commit: Commit, like: Any) -> Any:
        """The tree; Damaged."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What was found."""

    tree: Any
    commit: Commit


class Checkpoints:
    """Holds the save that is under way."""

    def __init__(
        self, location: str, circle: Circle | None = None, *, keep: int = 2, form: str = ""
    ) -> None:
        self.circle = circle or Circle()
        self.place: Place = place(location)
        self.keep = max(1, keep)
        self.form = checked_form(form or OWN, location)
        self.forms: Mapping[str, Form] = {
            ORBAX: Orbax(self.place, self.circle),
            OWN: Pieces(self.place, self.circle),
        }
        self.newest = 0  #: of the whole ones, as far as this process knows
        self.took_s = 0.0
        self.skipped: set[int] = set()  #: damaged: removed once there is a newer whole one
        self.given = False  #: what was compiled in this attempt
        self.busy: threading.Thread | None = None
        self.trouble: Exception | None = None

    def save(self, commit: Commit, tree: Any, *, wait: bool = False) -> float:
        """Begin a save once the one before is over; seconds for which the training stood still."""
        began = process_env.tick()
        self.wait()
        form = self.forms[self.form]
        whole = replace(commit, form=self.form, leaves=commits.shapes(tree))
        begun = form.begin(commit.step, tree)

        def finish() -> None:
            try:
                parts = form.finish(commit.step, begun)
                if self.circle.index == 0:
                    self._commit(replace(whole, parts=parts))
                    if not self.given:
                        self.given = True
                        compile_cache.give(self.place)
                self.newest = commit.step
                self.took_s = process_env.tick() - began
            except Exception as error:  # noqa: BLE001  # told where somebody waits for it
                self.trouble = error

        self.busy = threading.Thread(target=finish, name=f"save-{commit.step}", daemon=True)
        self.busy.start()
        if wait:
            self.wait()
        return process_env.tick() - began

    def wait(self) -> None:
        """Until the save under way is over; its trouble is told, and does not end the training."""
        if self.busy is not None:
            self.busy.join()
            self.busy = None
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            process_env.say(f"a checkpoint could not be saved to {self.place.location}: {trouble}")

    def load(self, like: Any) -> Loaded | None:
        """The newest that is whole, in the shape of this tree; every process gets the same one."""
        leads = self.circle.index == 0
        steps, trouble = json.loads(self.circle.told(json.dumps(self._found() if leads else None)))
        stop_at(trouble)
        for step in steps:
            found, mine = self._tried(step, like)
            words = self.circle.gather(json.dumps(mine))
            heard = {kind: said for word in words for kind, said in json.loads(word).items()}
            where = f"{self.place.location}/{folder(step)}"
            stop_at(heard)
            if "other" in heard:
                raise OtherModel(f"{where} is of another model: {heard['other']}")
            if found is not None and not heard:
                self.newest = step
                return found
            if leads:
                process_env.say(f"skipped the checkpoint of step {step}: {heard['damage']}")
                self.skipped.add(step)
        return None

    def _tried(self, step: int, like: Any) -> tuple[Loaded | None, dict[str, str]]:
        """What loading gives here; else what is damaged, what another model has, or what trouble
        there was: then nothing is said of the checkpoint."""
        try:
            commit = commits.read(self.place.read(folder(step) + commits.NAME))
            other = commits.difference(commit.leaves, commits.shapes(like))
            if other:
                return None, {"other": other}
            tree = self.forms[commit.form].load(commit, like)
        except (Damaged, FileNotFoundError, KeyError) as damage:
            return None, {"damage": str(damage) or "it can't be read"}
        except OSError as trouble:
            return None, told(trouble)
        return Loaded(tree=tree, commit=commit), {}

    def _found(self) -> tuple[list[int], dict[str, str]]:
        """The steps, or why they can't be known."""
        try:
            return self._steps(), {}
        except OSError as trouble:
            return [], told(trouble)

    def _steps(self) -> list[int]:
        """Newest first. Torsos are named and removed: who wrote them is dead."""
        whole: set[int] = set()
        torsos: set[int] = set()
        for name in self.place.names("step-"):
            top, _, rest = name.partition("/")
            number = top.removeprefix("step-")
            if rest and number.isdecimal():
                (whole if rest == commits.NAME else torsos).add(int(number))
        for step in sorted(torsos - whole):
            process_env.say(f"skipped the checkpoint of step {step}: its save was cut short")
            self.place.remove(folder(step))
        return sorted(whole, reverse=True)

    def _commit(self, commit: Commit) -> None:
        """Declare a step whole, and let go of those that are too many."""
        self.place.write(folder(commit.step) + commits.NAME, [commit.text()])
        self.skipped.discard(commit.step)
        end = "/" + commits.NAME
        tops = [name.removesuffix(end) for name in self.place.names("step-") if name.endswith(end)]
        steps = [int(top.removeprefix("step-")) for top in tops]
        good = [step for step in steps if step not in self.skipped]
        for step in {*good[: -self.keep], *self.skipped}:
            self.place.remove(folder(step) + commits.NAME)
            self.place.remove(folder(step))
        self.skipped.clear()


def told(trouble: OSError) -> dict[str, str]:
    """In words that other processes hear."""
    return {"away" if passing(trouble) else "trouble": str(trouble)}


def stop_at(heard: Mapping[str, str]) -> None:
    """Raise the trouble that a process has told of; what says no comes first."""
    if "trouble" in heard:
        raise Unreachable(heard["trouble"])
    if "away" in heard:
        raise Away(heard["away"])


def checked_form(form: str, location: str) -> str:
    """A form that is known, and installed with what it needs for that place."""
    if form not in (OWN, ORBAX):
        raise Unfit(f"form={form!r} is neither {OWN!r} nor {ORBAX!r}")
    wanted = [("orbax.checkpoint", "orbax-checkpoint"), ("gcsfs", "gcsfs")]
    for package, install in wanted[: 1 + location.startswith("gs://")] if form == ORBAX else ():
        if not there(package):
            raise Missing(f"form={ORBAX!r} needs {package} here: pip install {install}")
    return form
