"""What runs in an environment with JAX and other libraries: a step, samples, saves; prints JSON."""

import io
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

SHARDS, SAMPLES, BYTES, BATCH = 4, 2000, 4096, 100
STEPS = 100_000


def per_step(train: Any) -> float:
    """Microseconds of a step that does nothing, with its state kept and its loss reported."""
    run = train.Run()
    began = perf_counter()
    for step in run.steps(STEPS):
        run.keep(None, loss=step)
    return (perf_counter() - began) / STEPS * 1e6


def shards(folder: Path) -> list[str]:
    """Tars as webdataset writes them."""
    paths = []
    for number in range(SHARDS):
        path = folder / f"{number:05}.tar"
        with tarfile.open(path, "w") as archive:
            for place in range(SAMPLES):
                for kind, content in (("bin", os.urandom(BYTES)), ("cls", b"7")):
                    one = tarfile.TarInfo(f"{number:03}{place:05}.{kind}")
                    one.size = len(content)
                    archive.addfile(one, io.BytesIO(content))
        paths.append(str(path))
    return paths


def readers(train: Any, paths: list[str]) -> dict[str, Callable[[], int]]:
    """Ways to read one epoch in batches; each gives the samples it has read."""
    grain, wds, np = map(import_module, ("grain", "webdataset", "numpy"))

    def decoded(sample: Any) -> Any:
        return np.frombuffer(sample["bin"], np.uint8), int(sample["cls"])

    def ours() -> int:
        index = train.Shards(paths)
        split = train.Split(sizes=index.sizes, batch=BATCH, seed=1)
        batches = train.Batches(index, split, decode=decoded)
        return sum(len(batch[1]) for _, batch in batches.ahead(0, split.steps))

    def webdataset() -> int:
        data = wds.WebDataset(paths, shardshuffle=False, empty_check=False).shuffle(1000)
        whole = data.map(decoded).batched(BATCH, partial=False)
        return sum(len(batch[1]) for batch in whole)

    def of_grain() -> int:
        index = train.Shards(paths)
        flat = [(shard, place) for shard, size in enumerate(index.sizes) for place in range(size)]
        source = grain.MapDataset.source(flat).seed(1).shuffle()
        data = source.map(lambda at: decoded(index[at[0]][at[1]])).batch(BATCH).to_iter_dataset()
        return sum(len(batch[1]) for batch in data)

    return {"ours": ours, "webdataset": webdataset, "grain over our tars": of_grain}


def step(train: Any, rounds: int) -> Any:
    """Microseconds of a step."""
    return [per_step(train) for _ in range(rounds)]


def loader(train: Any, rounds: int) -> Any:
    """Samples a second of each way, rounds of all in turn."""
    with tempfile.TemporaryDirectory() as folder:
        ways = readers(train, shards(Path(folder)))
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                began = perf_counter()
                read = way()
                rates[name].append(read / (perf_counter() - began))
    return rates


def save(train: Any, rounds: int) -> Any:
    """Of each form: milliseconds that a save blocks, and takes."""
    np = import_module("numpy")
    tree = {f"w{number}": np.ones((1 << 20,), np.float32) for number in range(25)}
    with tempfile.TemporaryDirectory() as folder:
        return {
            form: saves(train, Path(folder), form, tree, rounds) for form in ("pieces", "orbax")
        }


def saves(train: Any, folder: Path, form: str, tree: Any, rounds: int) -> Any:
    """Milliseconds for which a save of 100 MB blocks, and until it is whole."""
    jax, commit = map(import_module, ("jax", "tpuherd_host.train.checkpoint_commit"))
    arrays = jax.tree.map(jax.numpy.asarray, tree)
    store = train.Checkpoints(str(folder / form), form=form)
    blocked, took = [], []
    for step in range(1, rounds + 2):
        blocked.append(store.save(commit.Commit(step=step), arrays) * 1e3)
        store.wait()
        took.append(store.took_s * 1e3)
    return blocked[1:], took[1:]


PARTS: dict[str, Callable[[Any, int], Any]] = {"step": step, "loader": loader, "save": save}

if __name__ == "__main__":
    package = import_module("tpuherd_host.train")
    print(json.dumps({part: PARTS[part](package, int(sys.argv[1])) for part in sys.argv[2:]}))
