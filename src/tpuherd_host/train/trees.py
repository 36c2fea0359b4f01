"""Trees of arrays, leaf by leaf."""

from collections.abc import Iterator
from typing import Any

from tpuherd_host.train.late import jax, numpy


def leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every array of a tree with its name: .params['w'][0]."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield jax.tree_util.keystr(path), leaf


def is_key(leaf: Any) -> bool:
    """Whether it is a random key of the new kind, which has no bytes of its own."""
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def placed(tree: Any, sharding: Any) -> Any:
    """Arrays of NumPy, the same on every host, as arrays of all chips: nothing is compiled or sent.

    `jax.device_put` asks every other process whether its array is equal.
    """

    def one(array: Any) -> Any:
        array = numpy.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree_util.tree_map(one, tree)
