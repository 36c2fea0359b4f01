"""Dated tables of what Google offers and where, and their reader."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpuherd.catalogue.reader import (
        accelerators,
        bucket_locations,
        by_topology,
        discovery,
        egress,
        generations,
        prices,
        regions,
        runtimes,
        zones,
    )
    from tpuherd.catalogue.rows import (
        Accelerator,
        BucketLocation,
        Generation,
        Price,
        Region,
        Runtime,
        Zone,
    )


__all__ = [
    "Accelerator",
    "BucketLocation",
    "Generation",
    "Price",
    "Region",
    "Runtime",
    "Zone",
    "accelerators",
    "bucket_locations",
    "by_topology",
    "discovery",
    "egress",
    "generations",
    "prices",
    "regions",
    "runtimes",
    "zones",
]


def __getattr__(name: str) -> Any:
    """Load the reader at its first use, so that importing this package is cheap."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tpuherd.catalogue.reader"), name)
