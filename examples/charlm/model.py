"""A small transformer that predicts the next character, and Adam: plain JAX, nothing else."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = dict[str, Any]
WIDTH, HEADS, LAYERS = 64, 4, 2


def made(seed: int, letters: int, window: int) -> Tree:
    """Return initial parameters in NumPy: the same on every host, and nothing to compile."""
    chance = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        return (chance.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32)

    layers = [
        {
            "attend": weights(WIDTH, 3 * WIDTH),
            "mix": weights(WIDTH, WIDTH),
            "up": weights(WIDTH, 4 * WIDTH),
            "down": weights(4 * WIDTH, WIDTH),
        }
        for _ in range(LAYERS)
    ]
    return {
        "letters": weights(letters, WIDTH),
        "places": weights(window, WIDTH),
        "layers": layers,
        "out": weights(WIDTH, letters),
    }


def normed(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attended(layer: Tree, x: jax.Array) -> jax.Array:
    """Causal attention: each position sees those before it."""
    many, window, _ = x.shape
    q, k, v = jnp.split((x @ layer["attend"]).reshape(many, window, HEADS, -1), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    past = jnp.tril(jnp.ones((window, window), bool))
    looks = jax.nn.softmax(jnp.where(past, scores, -1e9))
    return jnp.einsum("bhqk,bkhd->bqhd", looks, v).reshape(x.shape) @ layer["mix"]


def loss(parameters: Tree, text: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of the next character."""
    seen, wanted = text[:, :-1], text[:, 1:]
    x = parameters["letters"][seen] + parameters["places"]
    for layer in parameters["layers"]:
        x = x + attended(layer, normed(x))
        x = x + jax.nn.gelu(normed(x) @ layer["up"]) @ layer["down"]
    scores = jax.nn.log_softmax(normed(x) @ parameters["out"])
    return -jnp.mean(jnp.take_along_axis(scores, wanted[..., None], axis=-1))


def adam(state: Tree, gradients: Tree, rate: float = 3e-3) -> Tree:
    """Do one step of Adam; the learning rate rises over the first 20 steps."""
    count = state["count"] + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["first"], gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["second"], gradients)
    rate = rate * jnp.minimum(1.0, count / 20)

    def moved(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        m, v = m / (1 - 0.9**count), v / (1 - 0.99**count)
        return p - rate * m / (jnp.sqrt(v) + 1e-8)

    parameters = jax.tree.map(moved, state["parameters"], first, second)
    return {"parameters": parameters, "first": first, "second": second, "count": count}
