"""A PyTorch training on the CPUs of all hosts, over gloo: python3 pytorch.py --steps 400."""

# mypy: ignore-errors
# PyTorch is not installed where types are checked.

import argparse
import io
import os

import torch
import torch.distributed as dist
from saves import Saves
from torch.nn.parallel import DistributedDataParallel

from tpuherd_host import train

BATCH, WIDTH, SAVE_EVERY = 64, 128, 50  #: samples a step on all hosts together


def main() -> None:
    """Train on this host, as one of several."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    steps = parser.parse_args().steps
    pod = train.init(use_jax=False)
    run = train.Run()
    address = f"tcp://{os.environ['HERD_COORDINATOR']}"
    dist.init_process_group("gloo", init_method=address, rank=pod.index, world_size=pod.count)
    torch.manual_seed(7)  # the same parameters everywhere
    network = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, 1)
    )
    trained = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
    saves = Saves(os.environ)
    run.start, content = saves.newest()
    if content is not None:
        state = torch.load(io.BytesIO(content), map_location="cpu")
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        if run.is_main:
            print(f"resumed at step {run.start}", flush=True)
    for step in run.steps(steps):
        run.stopping = is_told_to_stop(run.stopping)
        x = batch(step, pod)
        optimizer.zero_grad()
        loss = (trained(x) - x.sum(dim=1, keepdim=True).sin()).square().mean()
        loss.backward()  # averages over all hosts
        optimizer.step()
        run.keep(None, loss=float(loss.detach()))
        last = run.stopping or step + 1 == steps
        if run.is_main and (last or (step + 1) % SAVE_EVERY == 0):
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            whole = io.BytesIO()
            torch.save(state, whole)
            saves.keep(step + 1, whole.getvalue())
            run.saved(step + 1)
            print(f"step {step + 1}  loss {loss.item():.4f}  saved", flush=True)
    dist.destroy_process_group()


def is_told_to_stop(here: bool) -> bool:
    """Whether any host knows that the node goes away: then this is the last step on all of them."""
    told = torch.tensor(int(here))
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told)


def batch(step: int, pod: train.Pod) -> torch.Tensor:
    """Return this host's samples of a step. They depend on nothing else, so data has no state."""
    chance = torch.Generator().manual_seed(step)
    return torch.randn(BATCH, WIDTH, generator=chance).chunk(pod.count)[pod.index]


if __name__ == "__main__":
    main()
