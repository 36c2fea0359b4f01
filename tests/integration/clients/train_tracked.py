"""A training without computations that reports to W&B and TensorBoard: --at 7 --do kill."""

import argparse
import os
import signal
import time

import numpy as np

from tpuherd_host import train

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--lr", type=float, default=1.0)
parser.add_argument("--at", type=int, default=-1)
parser.add_argument("--do", default="term")
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--board", default="")
parser.add_argument("--every", type=float, default=1e-6)
asked = parser.parse_args()

run = train.Run(every_s=asked.every)
state = run.restore({"x": np.full((), asked.lr)})
log = train.wandb(run, project="p", config={"lr": asked.lr})
loss = None
board = train.board(run, asked.board) if asked.board else None
for step in run.steps(asked.steps):
    state = {"x": state["x"] / 2}
    loss = float(state["x"])
    run.keep(state, loss=loss)
    log.log({"loss": loss}, step=step)
    if board is not None:
        board.add_scalar("loss", loss, step)
    time.sleep(asked.pause)
    if step == asked.at:
        if board is not None:
            board.flush()
        time.sleep(20.0 if asked.do == "kill" else 0.0)  # W&B sends every 15 s
        os.kill(os.getpid(), getattr(signal, f"SIG{asked.do.upper()}"))
if board is not None:
    board.close()
log.finish()
print(f"loss {loss}", flush=True)
