"""Ray Data writes shards of samples to a bucket; Ray Train fits a sum of waves to them.

It runs as the command of a job with `cluster: ray`, on worker 0. Ray gives lost tasks and workers
to other hosts; a new attempt skips shards that are complete, and resumes from Ray's checkpoint.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
import ray.train
from pyarrow import fs
from ray.train.collective import broadcast_from_rank_zero
from ray.train.v2.jax import JaxTrainer

Vector = np.ndarray[Any, Any]
WAVES = np.arange(1, 9)
SAMPLES = 500  #: in a shard
RATE = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0, help="seconds in each shard and epoch")
    options = parser.parse_args()
    place = os.environ["HERD_CHECKPOINT"].rstrip("/")
    ray.init()
    ray.data.DataContext.get_current().enable_progress_bars = False
    prepare_shards(f"{place}/shards", options.shards, options.pause)
    result = fit_model(place, options.epochs, options.pause)
    print(f"finished: {options.epochs} epochs, loss {result.metrics['loss']:.4f}", flush=True)


# ---- preparation ---------------------------------------------------------------------------------


def prepare_shards(place: str, many: int, pause: float) -> None:
    """Write the shards that are not there yet, each by a task of its own."""
    bucket, folder = fs.FileSystem.from_uri(place)
    found = bucket.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    missing = set(range(many)) - {int(one.base_name.partition(".")[0]) for one in found}
    print(f"{many - len(missing)} of {many} shards are complete", flush=True)
    if missing:
        rows = [{"shard": shard, "place": place, "pause": pause} for shard in sorted(missing)]
        tasks = ray.data.from_items(rows, override_num_blocks=len(rows))
        tasks.map(write_shard).materialize()


def write_shard(row: dict[str, Any]) -> dict[str, Any]:
    """Measure the samples of a shard. A shard appears in the bucket when it is complete."""
    time.sleep(row["pause"])
    chance = np.random.default_rng(row["shard"])
    at = chance.uniform(0, 2 * np.pi, SAMPLES)
    value = np.sign(np.sin(at)) + chance.normal(0, 0.1, SAMPLES)
    bucket, folder = fs.FileSystem.from_uri(row["place"])
    table = pa.table({"at": at, "value": value})
    pq.write_table(table, f"{folder}/{row['shard']:05}.parquet", filesystem=bucket)
    return {"shard": row["shard"]}


# ---- training ------------------------------------------------------------------------------------


def fit_model(place: str, epochs: int, pause: float) -> ray.train.Result:
    """Train with one worker on each host. The name of the run makes Ray resume it."""
    hosts = len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]})
    trainer = JaxTrainer(
        train_part,
        train_loop_config={
            "place": f"{place}/shards",
            "epochs": epochs,
            "pause": pause,
            "mean": Mean.remote(hosts),
        },
        # For the chips: use_tpu=True, topology="2x2x4", accelerator_type="TPU-V4"
        scaling_config=ray.train.ScalingConfig(
            num_workers=hosts, resources_per_worker={"CPU": 1}, placement_strategy="STRICT_SPREAD"
        ),
        run_config=ray.train.RunConfig(
            name=os.environ["RUN_ID"],
            storage_path=place,
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
            failure_config=ray.train.FailureConfig(max_failures=3),
        ),
    )
    return trainer.fit()


def train_part(config: dict[str, Any]) -> None:
    """What a worker does with its part of the samples."""
    context = ray.train.get_context()
    me, workers = context.get_world_rank(), context.get_world_size()
    group = broadcast_from_rank_zero(os.urandom(8).hex())  # a restarted group is another one
    weights, first = load_state()
    if not me:
        print(f"training begins with epoch {first}", flush=True)
    at, value = read_shards(config["place"], me, workers)
    waves = np.sin(np.outer(at, WAVES))
    for epoch in range(first, config["epochs"]):
        time.sleep(config["pause"])
        error = waves @ weights - value
        mine = np.append(waves.T @ error / len(error), np.mean(error**2))
        *gradient, loss = ray.get(config["mean"].await_all.remote((group, epoch), mine))
        weights = weights - RATE * np.array(gradient)
        with tempfile.TemporaryDirectory() as folder:
            state = {"weights": weights.tolist(), "epochs": epoch + 1}
            Path(folder, "state.json").write_text(json.dumps(state))
            saved = None if me else ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss, "epoch": epoch}, checkpoint=saved)
        if not me:
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)


def read_shards(place: str, me: int, workers: int) -> tuple[Vector, Vector]:
    """Return the samples of every so many-th shard."""
    bucket, folder = fs.FileSystem.from_uri(place)
    files = sorted(one.path for one in bucket.get_file_info(fs.FileSelector(folder)))
    table = pa.concat_tables(pq.read_table(file, filesystem=bucket) for file in files[me::workers])
    return table["at"].to_numpy(), table["value"].to_numpy()


def load_state() -> tuple[Vector, int]:
    """Return the weights of the newest checkpoint, and how many epochs they have seen."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return np.zeros(len(WAVES)), 0
    with checkpoint.as_directory() as folder:
        state = json.loads(Path(folder, "state.json").read_text())
    return np.array(state["weights"]), state["epochs"]


@ray.remote(num_cpus=0)
class Mean:
    """Averages the vectors of all workers: with JAX or PyTorch, their own collectives do this."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.rounds: dict[tuple[str, int], tuple[list[Vector], asyncio.Event]] = {}

    async def await_all(self, key: tuple[str, int], vector: Vector) -> Vector:
        vectors, complete = self.rounds.setdefault(key, ([], asyncio.Event()))
        vectors.append(vector)
        if len(vectors) == self.workers:
            complete.set()
        await complete.wait()
        return np.asarray(np.mean(vectors, axis=0))


if __name__ == "__main__":
    main()
