"""The file that marks a checkpoint as complete, and says which model it belongs to."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tpuherd_host.train.array_trees import named_leaves
from tpuherd_host.train.lazy_import import numpy

NAME = "whole.json"  #: written last: without it a checkpoint is incomplete
PARTIAL = "restore(state, partial=True) loads what both have"
EMPTY: Mapping[str, Any] = {}


class DamagedCheckpoint(Exception):
    """A checkpoint is incomplete or corrupt; the message names the file."""


class ModelMismatch(Exception):
    """A complete checkpoint belongs to another model; the message names the difference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """What a complete checkpoint says about itself."""

    step: int  #: number of finished steps: training continues with this step, counted from 0
    run: str = ""
    attempt: int = 0
    made: float = 0.0
    trained_s: float = 0.0  #: in all attempts
    losses: int | None = None  #: attempts before this one that lost work; None: not counted yet
    at_end: bool = False  #: its attempt ended with it, and lost nothing
    pod: str = ""  #: processes × devices: bits are promised on the same one only
    record: Mapping[str, Any] = field(default_factory=dict)  #: the program's own
    form: str = ""  #: pieces or orbax
    parts: Mapping[str, int] = field(default_factory=dict)  #: files, and what the form says of them
    leaves: Mapping[str, list[int]] = field(default_factory=dict)  #: the arrays' shapes
    types: Mapping[str, str] = field(default_factory=dict)  #: of the arrays
    milestone: bool = False  #: it is never removed
    metrics: Mapping[str, float] = field(default_factory=dict)  #: as given to `run.keep`
    best_by: str = ""  #: the metric by which checkpoints are compared
    better: str = ""  #: lower or higher
    best_count: int = 1  #: how many of the best are kept

    def to_json_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def step_folder(step: int) -> str:
    """Return the prefix of all names of a step."""
    return f"step-{step:08d}/"


def split_steps(names: Collection[str]) -> tuple[set[int], set[int]]:
    """Return the steps of these files that are complete, and those that are not."""
    whole: set[int] = set()
    every: set[int] = set()
    for name in names:
        top, _, rest = name.partition("/")
        number = top.removeprefix("step-")
        if rest and number.isdecimal():
            every.add(int(number))
            if rest == NAME:
                whole.add(int(number))
    return whole, every - whole


def parse_commit(text: bytes) -> Commit:
    try:
        fields = json.loads(text)
        known = Commit.__dataclass_fields__
        commit = Commit(**{name: value for name, value in fields.items() if name in known})
        if not isinstance(commit.step, int) or commit.step < 0:
            raise ValueError(f"its step is {commit.step!r}")
        if not isinstance(commit.losses, int | None) or not isinstance(commit.at_end, bool):
            raise ValueError(f"it counts {commit.losses!r} losses, at_end is {commit.at_end!r}")
        for mapping in (commit.parts, commit.leaves, commit.types, commit.metrics):
            mapping.items()
        if commit.better not in ("", "lower", "higher") or not isinstance(commit.best_count, int):
            raise ValueError(f"it compares by {commit.better!r} and keeps {commit.best_count!r}")
        metrics = {name: float(value) for name, value in commit.metrics.items()}
        return replace(commit, metrics=metrics)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(f"{NAME} can't be read: {error}") from error


def array_shapes(tree: Any) -> dict[str, list[int]]:
    return {name: list(numpy.shape(leaf)) for name, leaf in named_leaves(tree)}


def array_types(tree: Any) -> dict[str, str]:
    """Return the types of the arrays; of a plain number its Python type."""
    return {
        name: str(getattr(leaf, "dtype", type(leaf).__name__)) for name, leaf in named_leaves(tree)
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafComparison:
    """How the arrays of a checkpoint and of a program differ."""

    common: tuple[str, ...]
    added: tuple[str, ...]  #: only the program has them
    left_out: tuple[str, ...]  #: only the checkpoint has them
    reshaped: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Return one sentence for each array that is not loaded."""
        return [f"{name} keeps its initial value: the checkpoint has no such array"
                for name in self.added] + [
                f"{name} is only in the checkpoint and is left out" for name in self.left_out
        ]  # fmt: skip


def compare_leaves(
    saved: Mapping[str, list[int]], wanted: Mapping[str, list[int]]
) -> LeafComparison:
    both = sorted(saved.keys() & wanted.keys())
    same = tuple(name for name in both if list(saved[name]) == list(wanted[name]))
    return LeafComparison(
        common=same,
        added=tuple(sorted(wanted.keys() - saved.keys())),
        left_out=tuple(sorted(saved.keys() - wanted.keys())),
        reshaped=tuple(name for name in both if name not in same),
    )


def find_difference(
    saved: Mapping[str, list[int]], wanted: Mapping[str, list[int]], *, partial: bool = False
) -> str | None:
    """Return a sentence about why a checkpoint does not fit a program, or None."""
    found = compare_leaves(saved, wanted)
    names = found.reshaped if partial else (*found.reshaped, *found.left_out, *found.added)
    if partial and not names and not found.common:
        return "it has none of the program's arrays"
    if not names:
        return None
    name = min(names)
    if name in found.reshaped:
        return f"{name} is {saved[name]} in the checkpoint, {wanted[name]} in the program"
    which = ("checkpoint", "program") if name in found.left_out else ("program", "checkpoint")
    return f"the {which[0]} has {name}, the {which[1]} does not; {PARTIAL}"
