"""The file that marks a checkpoint as complete, and says which model it belongs to."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tpuherd_host.train.array_trees import named_leaves
from tpuherd_host.train.lazy_import import numpy
from tpuherd_host.train.storage import Place, Readable

NAME = "whole.json"  #: written last: without it a checkpoint is incomplete
BEGINNING = "attempt-"  #: the prefix of files that say where attempts began
BEGINNINGS_MAX = 64
PARTIAL = "restore(state, partial=True) loads what both have"
EMPTY: Mapping[str, Any] = {}
BYTES_MAX, NUMBER_MAX = 1 << 26, 1 << 53  #: of what a checkpoint says, which anybody may write
#: The type of each field, and the fields.
KINDS: tuple[tuple[Any, str], ...] = (
    (int, "step attempt launched best_count"), (int | None, "losses"), (bool, "at_end milestone"),
    (int | float, "made trained_s"), (dict, "record parts leaves types metrics"),
    (str, "run pod form best_by better"),
)  # fmt: skip


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
    launched: int = 0  #: when that was, in milliseconds; 0: not by an engine, or an earlier version
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """Where an attempt began: what an earlier one saves of later steps is not of the run's line."""

    launched: int
    run: str
    start: int  #: the step that it restored; 0: none


def read_beginnings(place: Place, run: str | None = None) -> list[Beginning]:
    """Return where attempts began, of this run or of all; one that can't be read counts as none."""
    found = []
    for name in place.names(BEGINNING):
        try:
            one = Beginning(**json.loads(place.read(name, 0, BYTES_MAX)))
            if isinstance(one.launched + one.start, int) and run in (None, one.run):
                found.append(one)
        except (FileNotFoundError, ValueError, TypeError, RecursionError):
            continue
    return found


def write_beginning(place: Place, beginning: Beginning) -> None:
    """Say that an attempt begins, and remove the oldest of what others said."""
    content = json.dumps(asdict(beginning)).encode()
    place.write(f"{BEGINNING}{beginning.launched:015d}.json", [content])
    for name in place.names(BEGINNING)[:-BEGINNINGS_MAX]:
        place.remove(name)


def is_left_behind(commit: Commit, beginnings: Collection[Beginning]) -> bool:
    """Whether an attempt saved this after its successor had begun without it."""
    return any(
        one.run == commit.run and one.launched > commit.launched and one.start < commit.step
        for one in beginnings
    )


def has_successor(place: Place, run: str, launched: int) -> bool:
    """Whether a later attempt of the run has begun."""
    mine = f"{BEGINNING}{launched:015d}.json"
    if not any(name > mine for name in place.names(BEGINNING)):
        return False
    return any(one.launched > launched for one in read_beginnings(place, run))


def parse_commit(text: bytes) -> Commit:
    try:
        fields = json.loads(text)
        known = Commit.__dataclass_fields__
        commit = Commit(**{name: value for name, value in fields.items() if name in known})
        check_types(commit)
        if commit.better not in ("lower", "higher") and (commit.better or commit.best_by):
            raise ValueError(f"it compares by {commit.better[:40]!r}")
        metrics = {name: float(value) for name, value in commit.metrics.items()}
        return replace(commit, metrics=metrics)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedCheckpoint(f"{NAME} can't be read: {str(error)[:200]}") from error


def check_types(commit: Commit) -> None:
    """Raise ValueError if a field has no value that a save writes."""
    for kind, names in KINDS:
        for name in names.split():
            value = getattr(commit, name)
            is_number = isinstance(value, int | float)
            if not isinstance(value, kind) or (is_number and not 0 <= value <= NUMBER_MAX):
                raise ValueError(f"its {name} is {str(value)[:40]!r}")
    sizes = [size for shape in commit.leaves.values() for size in shape]
    if not all(isinstance(size, int) and 0 <= size <= NUMBER_MAX for size in sizes):
        raise ValueError("an array has a shape that no array has")
    if not all(isinstance(name, str) for name in commit.types.values()):
        raise ValueError("an array has a type that no array has")
    folder = step_folder(commit.step)
    if not all(name.startswith(folder) and ".." not in name for name in commit.parts):
        raise ValueError(f"it names files outside of {folder}")


def read_whole(place: Readable, step: int) -> bytes:
    """Return what a checkpoint says about itself, as it is written; FileNotFoundError."""
    return place.read(step_folder(step) + NAME, 0, BYTES_MAX)


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
