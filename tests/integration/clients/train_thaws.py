"""Freezes an attempt at each of its reads and writes in turn, while its successor trains: FOLDER.

Attempt 1 saves, attempt 2 freezes, attempt 3 begins and saves, attempt 2 thaws and goes on, attempt
3 saves again, or does not, and attempt 4 restores.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

from tpuherd_host.train import Checkpoints
from tpuherd_host.train.checkpoint_commit import Commit
from tpuherd_host.train.storage import Folder


class FreezingFolder(Folder):
    """A folder whose user freezes before its next use once `left` of them are done."""

    def __init__(self, location: str, left: int, frozen: int, thaw: int) -> None:
        super().__init__(location)
        self.left, self.frozen, self.thaw = left, frozen, thaw

    def count(self):
        self.left -= 1
        if self.left == -1:
            os.write(self.frozen, b"f")
            os.read(self.thaw, 1)

    def names(self, beginning=""):
        self.count()
        return super().names(beginning)

    def read(self, name, first=0, length=None):
        self.count()
        return super().read(name, first, length)

    def write(self, name, pieces):
        self.count()
        super().write(name, pieces)

    def remove(self, beginning):
        self.count()
        super().remove(beginning)


def attempt(folder, number, place=None):
    """Begin; return the attempt, and the step and number that it restored."""
    found = Checkpoints(str(folder), keep=2, run="gpt-0", launched=number)
    if place is not None:
        found.place = place
        for form in found.forms.values():
            form.place = place
    loaded = found.load({"w": np.zeros(3, np.float32)})
    return found, *((loaded.commit.step, int(loaded.tree["w"][0])) if loaded else (0, 0))


def train(mine, first, last):
    for step in range(first, last + 1):
        commit = Commit(step=step, run="gpt-0", attempt=mine.launched, launched=mine.launched)
        mine.save(commit, {"w": np.full(3, mine.launched, np.float32)})
        mine.wait()


def freeze(folder, left):
    """Attempt 2, in a process of its own; return it, and how it is told to go on."""
    frozen, thaw = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(frozen[0])
        mine, start, _ = attempt(folder, 2, FreezingFolder(str(folder), left, frozen[1], thaw[0]))
        train(mine, start + 1, start + 4)
        os._exit(0)
    os.close(frozen[1])
    has_frozen = os.read(frozen[0], 1) == b"f"
    return child, thaw[1], has_frozen


def history(folder, left, *, saves_again):
    """Return what happened; None: attempt 2 ended before it froze."""
    first, *_ = attempt(folder, 1)
    train(first, 1, 2)
    child, thaw, has_frozen = freeze(folder, left)
    if not has_frozen:
        os.waitpid(child, 0)
        return None
    third, start, _ = attempt(folder, 3)
    train(third, start + 1, start + 3)
    os.write(thaw, b"t")
    _, status = os.waitpid(child, 0)
    if saves_again:
        train(third, start + 4, start + 4)
    _, step, by = attempt(folder, 4)
    return {"saved": start + 3 + saves_again, "step": step, "by": by,
            "status": os.waitstatus_to_exitcode(status)}  # fmt: skip


root = Path(sys.argv[1])
told = []
for saves_again in (True, False):
    for left in range(10_000):
        one = history(root / f"{left}-{saves_again}", left, saves_again=saves_again)
        if one is None:
            break
        told.append(one)
print(json.dumps(told))
