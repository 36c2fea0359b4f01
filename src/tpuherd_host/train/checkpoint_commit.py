"""The file that marks a checkpoint as complete, and says which model it belongs to."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tpuherd_host.train.array_trees import named_leaves
from tpuherd_host.train.lazy_import import numpy

NAME = "whole.json"  #: written last: without it a checkpoint is incomplete
EMPTY: Mapping[str, Any] = {}


class DamagedCheckpoint(Exception):
    """A checkpoint is incomplete or corrupt; the message names the file."""


class ModelMismatch(Exception):
    """A complete checkpoint belongs to another model; the message names the difference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """What a complete checkpoint says about itself."""

    step: int  #: steps that are done: training goes on with this one, counted from 0
    run: str = ""
    attempt: int = 0
    made: float = 0.0
    trained_s: float = 0.0  #: in all attempts
    pod: str = ""  #: processes × devices: bits are promised on the same one only
    record: Mapping[str, Any] = field(default_factory=dict)  #: the program's own
    form: str = ""  #: pieces or orbax
    parts: Mapping[str, int] = field(default_factory=dict)  #: files, and what the form says of them
    leaves: Mapping[str, list[int]] = field(default_factory=dict)  #: the arrays' shapes

    def to_json_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def step_folder(step: int) -> str:
    """Return the prefix of all names of a step."""
    return f"step-{step:08d}/"


def parse_commit(text: bytes) -> Commit:
    try:
        fields = json.loads(text)
        known = Commit.__dataclass_fields__
        return Commit(**{name: value for name, value in fields.items() if name in known})
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(f"{NAME} can't be read: {error}") from error


def array_shapes(tree: Any) -> dict[str, list[int]]:
    return {name: list(numpy.shape(leaf)) for name, leaf in named_leaves(tree)}


def find_difference(saved: Mapping[str, list[int]], wanted: Mapping[str, list[int]]) -> str | None:
    """Return a sentence about how two trees differ, or None."""
    for name in sorted({*saved, *wanted}):
        if name not in wanted:
            return f"the checkpoint has {name}, the program has not"
        if name not in saved:
            return f"the program has {name}, the checkpoint has not"
        if list(saved[name]) != list(wanted[name]):
            return f"{name} is {saved[name]} in the checkpoint, {wanted[name]} in the program"
    return None
