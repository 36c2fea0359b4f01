"""A PyTorch/XLA training that resumes where it stopped: python3 pytorch_xla.py --steps 2000."""

# mypy: ignore-errors
# PyTorch is not installed where types are checked.

import argparse
import io
import os

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from saves import Saves

BATCH, WIDTH, SAVE_EVERY = 64, 128, 200


def main() -> None:
    """Start one process per chip; PJRT finds the other hosts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    torch_xla.launch(trained, args=(parser.parse_args().steps,))


def trained(_: int, steps: int) -> None:
    """Train on one chip."""
    device, rank = torch_xla.device(), xr.global_ordinal()
    torch.manual_seed(7)  # the same parameters everywhere
    network = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, 1)
    ).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    saves = Saves(os.environ)
    start, content = saves.newest()
    if content is not None:
        state = torch.load(io.BytesIO(content), map_location="cpu")
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(start, steps):
        # The samples depend only on step and chip, so the data has no state to save.
        chance = torch.Generator().manual_seed(step * xr.world_size() + rank)
        x = torch.randn(BATCH, WIDTH, generator=chance).to(device)
        optimizer.zero_grad()
        loss = (network(x) - x.sum(dim=1, keepdim=True).sin()).square().mean()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)  # sums over all chips
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == steps:
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            whole = io.BytesIO()
            xm.save(state, whole, master_only=True, global_master=True)
            if rank == 0:
                saves.keep(step + 1, whole.getvalue())
                print(f"step {step + 1}  loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
