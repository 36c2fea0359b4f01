"""Fit a line: one file, options, results in a folder. It knows nothing of TPUs' clouds."""

import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--out", default="results")
parser.add_argument("--sleep", type=float, default=0.0)
args = parser.parse_args()

os.makedirs(args.out, exist_ok=True)
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 3)).astype(np.float32)
y = x @ np.array([1.0, -2.0, 3.0], np.float32)


@jax.jit
def update(w):
    loss, grad = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
    return w - args.lr * grad, loss


saved = os.path.join(args.out, "last.npz")
w, first = jnp.zeros(3), 0
if os.path.exists(saved):
    with np.load(saved) as file:
        w, first = jnp.asarray(file["w"]), int(file["step"])
print(f"starting at step {first} on {jax.device_count()} devices")
for step in range(first, args.steps):
    w, loss = update(w)
    np.savez(saved, w=np.asarray(w), step=step + 1)
    print(f"step {step + 1} loss {float(loss):.4f}")
    time.sleep(args.sleep)
print("done", np.round(np.asarray(w), 2).tolist())
