"""Try a learning rate. It continues from its own file, as such scripts do."""

import argparse
import json
import os

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
args = parser.parse_args()

state = {"step": 0, "w": 5.0}
if os.path.exists("ckpt.json"):
    with open("ckpt.json") as file:
        state = json.load(file)
print("begins at step", state["step"])
for step in range(state["step"], 10):
    state = {"step": step + 1, "w": state["w"] * (1 - args.lr)}
    with open("ckpt.json", "w") as file:
        json.dump(state, file)
os.makedirs("results", exist_ok=True)
with open("results/loss.json", "w") as file:
    json.dump({"lr": args.lr, "loss": state["w"] ** 2}, file)
print(f"lr {args.lr}: loss={state['w'] ** 2:.6f}")
