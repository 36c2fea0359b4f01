"""Saves and removes checkpoints, and dies at every single write and removal in turn: FOLDER."""

import json
import sys
import threading
from pathlib import Path

import numpy as np

from tpuherd_host.train import Checkpoints, Retention
from tpuherd_host.train.checkpoint_commit import Commit
from tpuherd_host.train.storage import Folder

SCORES = {1: 0.4, 2: 0.6, 3: 0.5, 4: 0.9, 5: 0.1, 6: 0.2, 7: 0.8}
MILESTONES = (3, 5)


class Killed(BaseException):
    """The node is gone."""


class DyingFolder(Folder):
    """A folder whose user dies before its next change once `left` of them are done.

    A removal of a whole step is many changes: of each file.
    """

    def __init__(self, location: str, left: int) -> None:
        super().__init__(location)
        self.left = left

    def count(self):
        self.left -= 1
        if self.left < 0:
            raise Killed

    def write(self, name, pieces):
        self.count()
        super().write(name, pieces)

    def remove(self, beginning):
        for name in self.names(beginning):
            self.count()
            (self.path / name).unlink()


def checkpoints(folder, left):
    found = Checkpoints(
        str(folder),
        keep=Retention(newest=1, milestones=MILESTONES, best="score", better="higher"),
    )
    found.place = DyingFolder(str(folder), left)
    for form in found.forms.values():
        form.place = found.place
    return found


def life(folder, left):
    """Go on to the end, or until the death; return where it began and whether it lived."""
    mine = checkpoints(folder, left)
    like = {"w": np.zeros(3, np.float32), "v": 0.0}
    try:
        loaded = mine.load(like)
    except Killed:
        return None, False
    start = loaded.commit.step if loaded else 0
    if loaded:
        assert loaded.tree["w"].tolist() == [start] * 3
    for step in range(start + 1, 8):
        commit = Commit(step=step, milestone=step in MILESTONES)
        tree = {"w": np.full(3, step, np.float32), "v": float(step)}
        mine.save(commit, tree, metrics={"score": SCORES[step]})
        mine.busy.join()
        if mine.place.left < 0:
            return start, False
    return start, True


def whole(folder):
    return sorted(int(one.parent.name[5:]) for one in folder.glob("step-*/whole.json"))


threading.excepthook = lambda args: None  # Killed is what is expected
root = Path(sys.argv[1])
told = []
for left in range(10_000):
    folder = root / str(left)
    _, lived = life(folder, left)
    after = whole(folder)
    start, _ = life(folder, 10_000)
    told.append({
        "lived": lived, "after": after, "start": start, "end": whole(folder),
        "files": sorted({one.parent.name for one in folder.rglob("*") if one.is_file()}),
    })  # fmt: skip
    if lived:
        break
print(json.dumps(told))
