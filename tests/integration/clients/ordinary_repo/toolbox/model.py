"""A model with one parameter, whose best value is 2."""

import jax
import jax.numpy as jnp


def gradient(value: float, shard: int):
    return jax.grad(lambda v: jnp.mean((v - 2.0) ** 2 * (1 + shard * 0)))(value)
