"""Trees of arrays, leaf by leaf."""

from collections.abc import Callable, Iterator
from typing import Any

from tpuherd_host.train.lazy_import import LazyModule, jax, numpy

optax = LazyModule("optax")


def named_leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Return every array of a tree with its name, such as .params['w'][0]."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield jax.tree_util.keystr(path), leaf


def is_key(leaf: Any) -> bool:
    """Whether it is a typed random key, which has no bytes of its own."""
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def is_gone(tree: Any) -> bool:
    """Whether arrays of a tree were donated to a function and can no longer be read."""
    found = (getattr(leaf, "is_deleted", None) for leaf in jax.tree_util.tree_leaves(tree))
    return any(gone() for gone in found if gone is not None)


def placed(tree: Any, sharding: Any) -> Any:
    """Put NumPy arrays, the same on every host, on all chips without compiling or sending.

    `jax.device_put` asks every other process whether its array is equal.
    """

    def one(array: Any) -> Any:
        array = numpy.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree_util.tree_map(one, tree)


def shapes(tree: Any) -> str:
    """Return a table of a tree's arrays (name, shape, type) and how many numbers they have."""
    rows = [(name, tuple(numpy.shape(leaf)), str(leaf.dtype)) for name, leaf in named_leaves(tree)]
    wide = max((len(name) for name, _, _ in rows), default=0)
    lines = [f"{name:<{wide}}  {kind:<9} {shape}" for name, shape, kind in rows]
    total = sum(int(numpy.prod(shape)) for _, shape, _ in rows)
    return "\n".join([*lines, f"{total:,} numbers in {len(rows)} arrays"])


def frozen(optimizer: Any, tree: Any, still: Callable[[str], bool]) -> Any:
    """Wrap an optax optimizer so that it does not change arrays for whose names `still` is true."""
    names = [name for name, _ in named_leaves(tree)]
    labels = jax.tree_util.tree_unflatten(
        jax.tree_util.tree_structure(tree), ["still" if still(name) else "moved" for name in names]
    )
    parts = {"moved": optimizer, "still": optax.set_to_zero()}
    return optax.multi_transform(parts, labels)
