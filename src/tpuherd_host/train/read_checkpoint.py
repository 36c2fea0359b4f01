"""Reads checkpoints outside of a training, with NumPy only: what is there, and the arrays."""

from collections.abc import Collection
from typing import Any

from tpuherd_host.train import checkpoint_commit as commits
from tpuherd_host.train.checkpoint_commit import Beginning, Commit, DamagedCheckpoint, step_folder
from tpuherd_host.train.lazy_import import numpy
from tpuherd_host.train.part_files import BFLOAT16, PartReader
from tpuherd_host.train.retention import Retention
from tpuherd_host.train.storage import Place, place

BEST = "best"
NATIVE = "pieces"


class NoCheckpoint(LookupError):
    """There is no such checkpoint or array; the message says what there is."""


def list_checkpoints(location: str) -> list[Commit]:
    """Return what the complete checkpoints of a run say about themselves, oldest first.

    `location` is a folder or `gs://…` with step-… folders. One that can't be read is left out.
    """
    where = place(location)
    found = []
    for step in list_steps(where):
        try:
            found.append(read_commit(where, step))
        except (DamagedCheckpoint, FileNotFoundError):
            continue
    return found


def read_checkpoint(
    location: str, step: int | str | None = None, leaves: Collection[str] = ()
) -> dict[str, Any]:
    """Return arrays of a checkpoint by name: of the newest, of a step, or of the "best".

    `leaves` limits them; only these are read. Without the package ml_dtypes, bfloat16 arrays are
    returned as float32, which is exact. A changed or missing file raises DamagedCheckpoint.
    """
    where = place(location)
    commit = find_commit(location, step)
    if commit.form != NATIVE:
        raise NoCheckpoint(
            f"the checkpoint of step {commit.step} has the form {commit.form!r}: read "
            f"{location}/{step_folder(commit.step)}state with orbax.checkpoint"
        )
    unknown = sorted(set(leaves) - commit.leaves.keys())
    if unknown:
        raise NoCheckpoint(
            f"the checkpoint of step {commit.step} has no array {unknown[0]}; it has "
            f"{', '.join(sorted(commit.leaves)[:8])}{', …' if len(commit.leaves) > 8 else ''}"
        )
    reader = PartReader(where, sorted(commit.parts))
    for name in (name for name, kind in commit.types.items() if not kind.startswith("key")):
        reader.require_shape(name, commit.leaves.get(name, ()))
    return {
        name: read_array(reader, name) for name in commit.leaves if not leaves or name in leaves
    }


def find_commit(location: str, step: int | str | None = None) -> Commit:
    """Return the commit of the newest checkpoint, of a step, or of the "best"."""
    where = place(location)
    steps = list_steps(where)
    if not steps:
        raise NoCheckpoint(f"there is no complete checkpoint in {location}{suggest_run(where)}")
    if step == BEST:
        every = list_checkpoints(location)
        best = best_steps(every)
        if not best:
            raise NoCheckpoint(
                f"no checkpoint in {location} is the best: "
                "the run did not compare them (Retention(best=…))"
            )
        return next(commit for commit in every if commit.step == best[0])
    if step is not None and step not in steps:
        raise NoCheckpoint(
            f"{location} has no complete checkpoint of step {step}; "
            f"it has {', '.join(map(str, steps))}"
        )
    return read_commit(where, steps[-1] if step is None else int(step))


def list_steps(where: Place) -> list[int]:
    """Return the steps of the run's line: what a frozen attempt saved when it thawed is not."""
    whole, _ = commits.split_steps(where.names("step-"))
    beginnings = commits.read_beginnings(where)
    late = {step for step in whole if any(step > one.start for one in beginnings)}
    return sorted(whole - {step for step in late if is_left_behind(where, step, beginnings)})


def is_left_behind(where: Place, step: int, beginnings: Collection[Beginning]) -> bool:
    try:
        return commits.is_left_behind(read_commit(where, step), beginnings)
    except (DamagedCheckpoint, FileNotFoundError):
        return False


def suggest_run(where: Place) -> str:
    """Return the end of a sentence that names runs below a job's location."""
    tops = {name.partition("/step-")[0] for name in where.names() if "/step-" in name}
    return f"; there are runs below it: {', '.join(sorted(tops)[:8])}" if tops else ""


def best_steps(every: Collection[Commit]) -> list[int]:
    """Return the best steps, the best first, as the newest checkpoint says how to compare them."""
    newest = max(every, key=lambda commit: commit.step, default=None)
    if newest is None or not newest.best_by:
        return []
    rule = Retention(
        best=newest.best_by, better=newest.better, best_count=max(1, newest.best_count)
    )
    return rule.best_steps({commit.step: commit.metrics for commit in every})


def read_commit(where: Place, step: int) -> Commit:
    return commits.parse_commit(commits.read_whole(where, step))


def read_array(reader: PartReader, name: str) -> Any:
    content = reader.read_whole(name)
    if reader.find_entry(name).dtype == BFLOAT16 and content.dtype == numpy.uint16:
        return (content.astype(numpy.uint32) << 16).view(numpy.float32)
    return content
