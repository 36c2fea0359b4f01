"""Chooses the fastest installed compressor whose output every host can read."""

import zlib
from importlib import import_module

from tpuherd_host.agent.snapshots.stream import MakeCompressor


def fastest_compressor() -> MakeCompressor:
    """zlib-ng, which needs a third of the time for the same bytes, else the standard library."""
    try:
        made: MakeCompressor = import_module("zlib_ng.zlib_ng").compressobj
    except ImportError:
        return zlib.compressobj
    return made


COMPRESSOR = fastest_compressor()
