"""A small convolutional network that classifies shapes: plain JAX, nothing else."""

# mypy: ignore-errors
# JAX is not installed where types are checked.

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = dict[str, Any]
CHANNELS = (3, 16, 32, 64)


def made(seed: int, classes: int) -> Tree:
    """Return initial parameters in NumPy: the same on every host, and nothing to compile."""
    chance = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        spread = (2 / np.prod(shape[:-1])) ** 0.5
        return (chance.standard_normal(shape) * spread).astype(np.float32)

    return {
        "layers": [
            {"look": weights(3, 3, before, after), "shift": np.zeros(after, np.float32)}
            for before, after in pairwise(CHANNELS)
        ],
        "out": weights(CHANNELS[-1], classes) * 0.5,
    }


def scores(parameters: Tree, pictures: jax.Array) -> jax.Array:
    """Return one score per class; pixels are between 0 and 1."""
    x = pictures - 0.4
    for place, layer in enumerate(parameters["layers"]):
        step = (1, 1) if place == 0 else (2, 2)
        x = jax.lax.conv_general_dilated(
            x, layer["look"], step, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["shift"])
    return jnp.max(x, axis=(1, 2)) @ parameters["out"]


def loss(parameters: Tree, pictures: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy."""
    likely = jax.nn.log_softmax(scores(parameters, pictures))
    return -jnp.mean(jnp.take_along_axis(likely, labels[:, None], axis=-1))
