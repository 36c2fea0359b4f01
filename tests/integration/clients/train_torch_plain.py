"""A plain PyTorch training over gloo, beside an unused JAX: FOLDER STEPS [AT WHO].

It saves by itself. At a step one host is told to stop, and all of them stop after that step.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tpuherd_host import train

SIZES, BATCH = (40, 24, 33), 8


class Numbers:
    """Shards of numbers."""

    def __len__(self):
        return len(SIZES)

    def __getitem__(self, shard):
        return [torch.tensor([shard + place / 100]) for place in range(SIZES[shard])]


def main(folder, steps, at=-1, who=0):
    pod = train.init(use_jax=False)
    run = train.Run(seed=1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{os.environ['HERD_COORDINATOR']}",
        rank=pod.index,
        world_size=pod.count,
    )
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    saved = folder / "model.pt"
    if saved.exists():
        told = torch.load(saved)
        model.load_state_dict(told["model"])
        run.start = told["step"]
    split = train.Split(sizes=SIZES, batch=BATCH, host=pod.index, hosts=pod.count, seed=1)
    batches = train.Batches(Numbers(), split, collate=torch.stack)
    loader = iter(DataLoader(batches, batch_size=None, sampler=range(run.start, steps)))
    seen = []
    for step in run.steps(steps):
        if (step, pod.index) == (at, who):
            os.kill(os.getpid(), signal.SIGTERM)
        told = torch.tensor(int(run.stopping))
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
        run.stopping = bool(told)
        numbers = next(loader)
        seen += [[step, round(float(number), 2)] for number in numbers]
        optimizer.zero_grad()
        loss = ((model(numbers) - 2 * numbers) ** 2).mean()
        loss.backward()
        optimizer.step()
        run.keep(None, loss=float(loss.detach()))
        if run.is_main and (run.stopping or step + 1 == steps):
            torch.save({"model": model.state_dict(), "step": step + 1}, saved)
            run.saved(step + 1)
        print(json.dumps({"start": run.start, "index": pod.index, "seen": seen}), flush=True)
    weights = [float(one.detach().sum()) for one in model.parameters()]
    told = {"index": pod.index, "count": pod.count, "is_main": run.is_main}
    print(json.dumps({"start": run.start, **told, "seen": seen, "weights": weights}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
